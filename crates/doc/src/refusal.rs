//! Typed refusals: what a caller is told when nothing was written.

use serde_json::{Map, Value};

use crate::fit;

/// Why a command was refused. Nothing was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The kind of refusal.
    pub code: Code,
    /// What happened: ids, statuses and counts only, never text that somebody wrote, because
    /// whoever reads it may obey it.
    pub message: String,
    /// What to do next.
    pub hint: String,
    /// What else belongs to it: `current`, `changed`, `accepted`, ...
    pub details: Map<String, Value>,
}

/// The kinds of refusal, see SURFACE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    /// Something of the kind is active already.
    AlreadyActive,
    /// Held by somebody else.
    Claimed,
    /// The field has values written apart.
    ConflictOpen,
    /// It would close a circle.
    Cycle,
    /// The credential does not reach so far.
    Forbidden,
    /// Only a person decides this.
    HumanRequired,
    /// An argument is missing, unknown or of the wrong form.
    InvalidArgument,
    /// A mistyped id.
    InvalidId,
    /// The key was used with other content.
    KeyReused,
    /// The revision comes from elsewhere and is not here yet.
    NotCaughtUp,
    /// A reason is missing.
    ReasonRequired,
    /// The outcome is unknown.
    Retry,
    /// The object moved on.
    StaleWrite,
    /// Beyond a limit.
    TooLarge,
    /// A well-formed id that nothing here has.
    UnknownId,
    /// No project of this name.
    UnknownProject,
    /// It waits for something that is not done.
    UnmetDependencies,
    /// The node or its store is in trouble; not the caller's doing.
    Unavailable,
}

impl Code {
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AlreadyActive => "ALREADY_ACTIVE",
            Self::Claimed => "CLAIMED",
            Self::ConflictOpen => "CONFLICT_OPEN",
            Self::Cycle => "CYCLE",
            Self::Forbidden => "FORBIDDEN",
            Self::HumanRequired => "HUMAN_REQUIRED",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::InvalidId => "INVALID_ID",
            Self::KeyReused => "KEY_REUSED",
            Self::NotCaughtUp => "NOT_CAUGHT_UP",
            Self::ReasonRequired => "REASON_REQUIRED",
            Self::Retry => "RETRY",
            Self::StaleWrite => "STALE_WRITE",
            Self::TooLarge => "TOO_LARGE",
            Self::UnknownId => "UNKNOWN_ID",
            Self::UnknownProject => "UNKNOWN_PROJECT",
            Self::UnmetDependencies => "UNMET_DEPENDENCIES",
            Self::Unavailable => "UNAVAILABLE",
        }
    }

    /// The code of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// All codes.
    pub const ALL: [Self; 18] = [
        Self::AlreadyActive,
        Self::Claimed,
        Self::ConflictOpen,
        Self::Cycle,
        Self::Forbidden,
        Self::HumanRequired,
        Self::InvalidArgument,
        Self::InvalidId,
        Self::KeyReused,
        Self::NotCaughtUp,
        Self::ReasonRequired,
        Self::Retry,
        Self::StaleWrite,
        Self::TooLarge,
        Self::UnknownId,
        Self::UnknownProject,
        Self::UnmetDependencies,
        Self::Unavailable,
    ];
}

impl Refusal {
    /// A refusal that says what happened and what to do next.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
            details: Map::new(),
        }
    }

    /// With one more detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.into(), value.into());
        self
    }

    /// An argument that is missing, unknown or of the wrong form.
    pub fn argument(field: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message, hint).with("field", field)
    }

    /// The structure of an answer that is this refusal: what goes under `error`.
    pub fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), self.code.as_str().into());
        error.insert("message".into(), self.message.as_str().into());
        error.insert("hint".into(), self.hint.as_str().into());
        error.extend(self.details.clone());
        Value::Object(error)
    }

    /// From the structure, as the other end of a connection reads it.
    pub fn from_json(error: &Value) -> Option<Self> {
        let text = |name: &str| error.get(name)?.as_str().map(str::to_owned);
        let mut details = error.as_object()?.clone();
        for known in ["code", "message", "hint"] {
            details.remove(known);
        }
        Some(Self {
            code: Code::parse(&text("code")?)?,
            message: text("message")?,
            hint: text("hint")?,
            details,
        })
    }

    /// The sentence, and below it the fresh object or whatever else belongs to it: all that some
    /// clients show a model.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}: {} {}", self.code.as_str(), self.message, self.hint);
        let text_end = text.trim_end().len();
        text.truncate(text_end);
        let mut below = match self.details.get("current") {
            Some(current) => {
                let mut below = Map::from_iter([("current".to_owned(), current.clone())]);
                // The sentence speaks of it, so it is there.
                if let Some(accepted) = self.details.get("accepted") {
                    below.insert("accepted".to_owned(), accepted.clone());
                }
                Value::Object(below)
            }
            None if self.details.is_empty() => return text,
            None => Value::Object(self.details.clone()),
        };
        fit::fit(&mut below, Self::TEXT_BYTES);
        text.push('\n');
        text.push_str(&below.to_string());
        text
    }

    /// Bytes of what stands below the sentence.
    const TEXT_BYTES: usize = 2 << 10;
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} {}", self.code.as_str(), self.message, self.hint)
    }
}

impl std::error::Error for Refusal {}

impl From<crate::view::ViewError> for Refusal {
    fn from(error: crate::view::ViewError) -> Self {
        Self::new(
            Code::Unavailable,
            format!("{error}."),
            "Nothing was written. Run `stead doctor` on this machine.",
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_survives_its_own_structure() {
        for code in Code::ALL {
            let refusal =
                Refusal::new(code, "it happened.", "Do this.").with("current", json!({"id": 1}));
            assert_eq!(
                Refusal::from_json(&refusal.to_json()),
                Some(refusal.clone())
            );
            assert!(refusal.to_text().starts_with(code.as_str()));
        }
    }

    #[test]
    fn the_fresh_object_in_the_text_is_bounded() {
        let long = Refusal::new(Code::StaleWrite, "", "").with("current", "ä".repeat(5000));
        assert!(long.to_text().len() <= Refusal::TEXT_BYTES + 40);
        assert!(long.to_text().ends_with("[cut]\"}"));
    }

    #[test]
    fn the_text_has_what_to_choose_from_beside_the_fresh_object() {
        let refusal = Refusal::argument("field", "none.", "Use one of accepted.")
            .with("accepted", json!(["title"]))
            .with("current", json!({ "id": 1 }));
        assert_eq!(
            refusal.to_text(),
            "INVALID_ARGUMENT: none. Use one of accepted.\n{\"accepted\":[\"title\"],\"current\":{\"id\":1}}"
        );
    }

    #[test]
    fn the_text_alone_names_what_to_choose_from() {
        let refusal = Refusal::new(Code::UnknownProject, "none.", "Choose.")
            .with("knownProjects", json!(["web"]));
        assert_eq!(
            refusal.to_text(),
            "UNKNOWN_PROJECT: none. Choose.\n{\"knownProjects\":[\"web\"]}"
        );
    }
}
