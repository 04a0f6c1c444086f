//! What a change says about itself, in Automerge's commit message.

use serde::{Deserialize, Serialize};

use crate::hlc::Hlc;

/// Who asked for a change, with which command, and what for: compact JSON in the change's message.
///
/// Advisory, for display and for retries. What a change *touches* is computed from its operations.
/// Fields of newer versions are skipped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Message {
    /// The command's name: `create`, `update`, `move`, ...
    #[serde(rename = "c", default)]
    pub command: String,
    /// The credential that asked.
    #[serde(rename = "by", default)]
    pub credential: String,
    /// When, on the author's hybrid logical clock.
    #[serde(rename = "h", default)]
    pub hlc: u64,
    /// The idempotency key, where one was given.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What the key was used for: a hash of the command's arguments.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The object that the command was about, when it is not the first one touched.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The names from which the ids of objects made by this change derive.
    #[serde(rename = "n", default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The conflicts that this change settles, each `<object>/<field>`.
    #[serde(rename = "r", default, skip_serializing_if = "Vec::is_empty")]
    pub resolves: Vec<String>,
    /// What the caller calls itself; kept, never believed.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What led to the command: an import, a trigger.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The detached change that this one writes again.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub reauthors: Option<String>,
}

impl Message {
    /// The message of a change, empty where foreign software wrote none or something else.
    pub fn parse(text: Option<&str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    /// As it goes into the change.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// When the change was made, by its author's clock.
    pub fn stamp(&self) -> Hlc {
        Hlc(self.hlc)
    }

    /// The name from which an idempotency key's object derives its id.
    pub fn key_name(credential: &str, key: &str) -> String {
        format!("key:{credential}:{key}")
    }

    /// Whether the change may say that it derived an id from `name`: a key's name is its
    /// credential's alone.
    pub fn may_name(&self, name: &str) -> bool {
        if !name.starts_with("key:") {
            return true;
        }
        let own = |key: &str| {
            let base = Self::key_name(&self.credential, key);
            name.strip_prefix(&base)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
        };
        self.key.as_deref().is_some_and(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_and_foreign_ones_are_empty() {
        let message = Message {
            command: "create".into(),
            credential: "c_1".into(),
            hlc: 5,
            key: Some("k".into()),
            ..Message::default()
        };
        assert_eq!(Message::parse(Some(&message.to_text())), message);
        assert_eq!(
            Message::parse(Some(r#"{"c":"create","by":"c_1","h":5,"k":"k","new":[1]}"#)),
            message
        );
        assert_eq!(Message::parse(Some("fix typo")), Message::default());
        assert_eq!(Message::parse(None), Message::default());
    }

    #[test]
    fn only_the_credential_of_a_key_may_name_it() {
        let message = Message {
            credential: "c_1".into(),
            key: Some("k".into()),
            ..Message::default()
        };
        assert!(message.may_name("key:c_1:k"));
        assert!(message.may_name("key:c_1:k#2"));
        assert!(!message.may_name("key:c_1:kk"));
        assert!(!message.may_name("key:c_2:k"));
        assert!(message.may_name("beads:bd-1"));
    }
}
