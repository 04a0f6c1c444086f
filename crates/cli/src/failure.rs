//! Why a command ended early, and the exit code that says so.

use std::io;

use stead_doc::refusal::{Code, Refusal};

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The node or the rules said no.
    Refused(Refusal),
    /// The command line does not say what to do.
    Usage(Refusal),
    /// Nobody reads the answer any more, or it cannot be written.
    Output(io::Error),
}

impl Failure {
    /// A command line that parses and still makes no sense.
    pub(crate) fn usage(field: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage(Refusal::argument(field, message, hint))
    }

    /// A file that cannot be read or written; the caller named it, so it is the caller's to mend.
    pub(crate) fn file(field: &str, doing: &str, path: &str, error: &io::Error) -> Self {
        Self::usage(
            field,
            format!("cannot {doing} {path}: {error}."),
            "Check the path and its permissions.",
        )
    }

    /// 1 refused, 2 usage, 3 node or store trouble. A reader that went away is no failure.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            // With RETRY the outcome is unknown: nothing was refused, the store is in trouble.
            Self::Refused(refusal) => match refusal.code {
                Code::Unavailable | Code::Retry => 3,
                _ => 1,
            },
            Self::Usage(_) => 2,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => 3,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_tell_refusals_from_trouble() {
        let refused = |code| Failure::Refused(Refusal::new(code, "", "")).exit_code();
        assert_eq!(refused(Code::StaleWrite), 1);
        assert_eq!(refused(Code::Unavailable), 3);
        assert_eq!(refused(Code::Retry), 3);
        assert_eq!(Failure::usage("x", "", "").exit_code(), 2);
        let pipe = Failure::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(pipe.exit_code(), 0);
    }
}
