//! What can be read by name: `stead://…`.

use std::{fmt, str::FromStr};

use rmcp::model::{Resource, ResourceTemplate};
use serde_json::{Value as Json, json};
use stead_doc::{
    context::Caller,
    fit,
    id::ObjectId,
    refusal::{Code, Refusal},
};
use stead_node::{core::Event, handle::Node};

/// Bytes of a resource's text: the same as a tool's result.
const RESOURCE_BYTES: usize = 10_000;

/// Resources in one page of the list.
pub(crate) const PAGE: usize = 25;

/// Characters of an address: a slug and the words around it.
const URI_CHARS: usize = 256;

const JSON: &str = "application/json";

/// The address of a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Address {
    Workspace,
    Conflicts,
    Board(String),
    Sprint(String),
    Task(ObjectId),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace => f.write_str("stead://workspace"),
            Self::Conflicts => f.write_str("stead://conflicts"),
            Self::Board(slug) => write!(f, "stead://project/{slug}/board"),
            Self::Sprint(slug) => write!(f, "stead://project/{slug}/sprint"),
            Self::Task(id) => write!(f, "stead://task/{id}"),
        }
    }
}

impl FromStr for Address {
    type Err = Refusal;

    fn from_str(uri: &str) -> Result<Self, Refusal> {
        let unknown = || {
            Refusal::new(
                Code::UnknownId,
                "there is no such resource.",
                "Use one of accepted.",
            )
            .with("given", uri.chars().take(URI_CHARS).collect::<String>())
            .with(
                "accepted",
                json!([
                    "stead://workspace",
                    "stead://conflicts",
                    "stead://project/{slug}/board",
                    "stead://project/{slug}/sprint",
                    "stead://task/{id}",
                ]),
            )
        };
        let rest = uri.strip_prefix("stead://").ok_or_else(unknown)?;
        let parts: Vec<&str> = rest.split('/').collect();
        match parts.as_slice() {
            ["workspace"] => Ok(Self::Workspace),
            ["conflicts"] => Ok(Self::Conflicts),
            ["project", slug, "board"] if !slug.is_empty() => Ok(Self::Board((*slug).to_owned())),
            ["project", slug, "sprint"] if !slug.is_empty() => Ok(Self::Sprint((*slug).to_owned())),
            ["task", id] => stead_doc::arguments::id("uri", &Json::from(*id)).map(Self::Task),
            _ => Err(unknown()),
        }
    }
}

impl Address {
    /// Whether it can be watched.
    pub(crate) fn is_watchable(&self) -> bool {
        matches!(self, Self::Conflicts | Self::Sprint(_) | Self::Task(_))
    }

    /// Whether a change of an object, in the project of this slug, is one of what is read here.
    pub(crate) fn is_touched_by(&self, event: &Event, project: Option<&str>) -> bool {
        match self {
            Self::Workspace | Self::Board(_) => false,
            Self::Conflicts => event.open,
            Self::Task(id) => event.subject == *id || event.object == *id,
            Self::Sprint(slug) => {
                project == Some(slug.as_str())
                    && (event.kind.contains("sprint") || event.entered("review"))
            }
        }
    }

    /// Whether a caller may read it.
    pub(crate) fn is_readable(&self, node: &Node, caller: &Caller) -> bool {
        match self {
            Self::Task(id) => {
                let asked = json!({ "id": id.to_string(), "view": "summary" });
                node.call(caller, "task_get", asked).is_ok()
            }
            Self::Sprint(slug) | Self::Board(slug) => {
                let asked = json!({ "projectId": slug, "limit": 1 });
                node.call(caller, "task_search", asked).is_ok()
            }
            Self::Workspace | Self::Conflicts => {
                caller.need("tasks:read", &node.shared().directory).is_ok()
            }
        }
    }

    /// What stands there, as JSON within the bounds of a result.
    pub(crate) fn read(&self, node: &Node, caller: &Caller) -> Result<Json, Refusal> {
        let mut found = match self {
            Self::Workspace => node.call(caller, "workspace", json!({})),
            Self::Conflicts => node.call(caller, "conflicts", json!({})),
            Self::Board(slug) => node.call(caller, "project_board", json!({ "projectId": slug })),
            Self::Sprint(slug) => node.call(caller, "project_sprint", json!({ "projectId": slug })),
            Self::Task(id) => node.call(caller, "task_get", json!({ "id": id.to_string() })),
        }?;
        if *self == Self::Workspace {
            shorten_members(&mut found);
        }
        fit::fit(&mut found, RESOURCE_BYTES);
        Ok(found)
    }
}

/// Of a workspace too large for a result members go before projects: who is assigned can be named by
/// address, a project cannot be guessed.
fn shorten_members(workspace: &mut Json) {
    while workspace.to_string().len() > RESOURCE_BYTES {
        let Some(entry) = workspace
            .pointer_mut("/workspaces/0")
            .and_then(Json::as_object_mut)
        else {
            return;
        };
        let Some(Json::Array(members)) = entry.get_mut("members") else {
            return;
        };
        if members.is_empty() {
            return;
        }
        let gone = members.len() - members.len() / 2;
        members.truncate(members.len() / 2);
        let before = entry.get("membersLeft").and_then(Json::as_u64).unwrap_or(0);
        entry.insert("membersLeft".into(), (before + gone as u64).into());
    }
}

/// All resources that a caller can name beforehand: those of the workspace, then of each project.
pub(crate) fn listed(projects: &[(String, String)]) -> Vec<Resource> {
    let plain = |address: Address, name: String, title: String, about: &str| {
        Resource::new(address.to_string(), name)
            .with_title(title)
            .with_description(about)
            .with_mime_type(JSON)
    };
    let mut all = vec![
        plain(
            Address::Workspace,
            "workspace".into(),
            "Workspace".into(),
            "Read this first: in whose stead you act, what you can do, members, projects.",
        ),
        plain(
            Address::Conflicts,
            "conflicts".into(),
            "Open conflicts".into(),
            "Fields that were written apart and wait for a decision. Can be subscribed.",
        ),
    ];
    for (slug, name) in projects {
        all.push(plain(
            Address::Board(slug.clone()),
            format!("{slug}-board"),
            format!("{name}: board"),
            "The board by status.",
        ));
        all.push(plain(
            Address::Sprint(slug.clone()),
            format!("{slug}-sprint"),
            format!("{name}: active sprint"),
            "The active sprint and its tasks by priority. Can be subscribed.",
        ));
    }
    all
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    [
        (
            "stead://project/{slug}/board",
            "board",
            "Board of a project",
        ),
        (
            "stead://project/{slug}/sprint",
            "sprint",
            "Active sprint of a project",
        ),
        ("stead://task/{id}", "task", "One task, whole"),
    ]
    .into_iter()
    .map(|(uri, name, title)| {
        ResourceTemplate::new(uri, name)
            .with_title(title)
            .with_mime_type(JSON)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let id = ObjectId::random(7);
        for address in [
            Address::Workspace,
            Address::Conflicts,
            Address::Board("web".into()),
            Address::Sprint("web".into()),
            Address::Task(id),
        ] {
            assert_eq!(address.to_string().parse::<Address>(), Ok(address));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_those_that_are() {
        for wrong in [
            "http://x",
            "stead://",
            "stead://workspace/x",
            "stead://project//board",
            "stead://project/web",
            "stead://project/web/tasks",
        ] {
            let refusal = wrong.parse::<Address>().unwrap_err();
            assert_eq!(refusal.code, Code::UnknownId, "{wrong}");
            assert!(refusal.details.contains_key("accepted"));
        }
        let mistyped = "stead://task/0000000000001".parse::<Address>().unwrap_err();
        assert_eq!(mistyped.code, Code::InvalidId);
    }

    #[test]
    fn only_what_changes_alone_can_be_watched() {
        assert!(!Address::Workspace.is_watchable());
        assert!(!Address::Board("web".into()).is_watchable());
        assert!(Address::Sprint("web".into()).is_watchable());
        assert!(Address::Conflicts.is_watchable());
    }

    fn event(kind: &str) -> Event {
        let object = ObjectId::random(1);
        Event {
            object,
            project: Some(ObjectId::random(9)),
            slug: None,
            kind: kind.into(),
            revision: String::new(),
            cursor: 1,
            subject: object,
            status: (None, None),
            open: false,
        }
    }

    #[test]
    fn a_sprint_is_touched_by_sprints_of_its_project_and_by_reviews() {
        let sprint = Address::Sprint("web".into());
        assert!(sprint.is_touched_by(&event("sprint"), Some("web")));
        assert!(!sprint.is_touched_by(&event("sprint"), Some("app")));
        assert!(!sprint.is_touched_by(&event("task"), Some("web")));
        let mut review = event("task");
        review.status = (Some("ready".into()), Some("review".into()));
        assert!(sprint.is_touched_by(&review, Some("web")));
        review.status = (Some("review".into()), Some("review".into()));
        assert!(!sprint.is_touched_by(&review, Some("web")));
    }

    #[test]
    fn a_task_is_touched_by_its_comments_and_conflicts_by_what_is_open() {
        let mut comment = event("comment");
        comment.subject = ObjectId::random(5);
        assert!(Address::Task(comment.subject).is_touched_by(&comment, None));
        assert!(!Address::Task(ObjectId::random(6)).is_touched_by(&comment, None));
        assert!(!Address::Conflicts.is_touched_by(&comment, None));
        comment.open = true;
        assert!(Address::Conflicts.is_touched_by(&comment, None));
    }
}
