//! Who asks, when, and what names mean: everything a command receives beside the view.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    hlc::Hlc,
    id::{DocumentId, ObjectId},
    refusal::{Code, Refusal},
    row::Stamp,
    schema::Schema,
    view::{ProjectEntry, View},
};

/// What a command is evaluated with.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The workspace.
    pub workspace: [u8; 16],
    /// Wall time of this node in milliseconds since 1970.
    pub now: i64,
    /// The stamp of the change, if one comes of the command.
    pub hlc: Hlc,
    /// Who asks.
    pub caller: &'a Caller,
    /// Members and credentials.
    pub directory: &'a Directory,
    /// Kinds, statuses, relations.
    pub schema: &'a Schema,
    /// Entropy of this command alone.
    pub entropy: [u8; 32],
}

impl Context<'_> {
    /// A fresh random id; `index` tells several of one command apart.
    pub fn fresh_id(&self, index: u32) -> ObjectId {
        let mut hasher = blake3::Hasher::new_keyed(&self.entropy);
        hasher.update(&index.to_le_bytes());
        let hash = hasher.finalize();
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        ObjectId::random(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    /// The id of a document of this workspace.
    pub fn document(&self, name: &crate::document::DocumentName) -> DocumentId {
        name.id(self.workspace)
    }

    /// Refuses a caller without `scope`.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, naming the scope and the supervisor.
    pub fn need(&self, scope: &str) -> Result<(), Refusal> {
        self.caller.need(scope, self.directory)
    }

    /// The projects that the caller reaches.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn reachable(&self, view: &dyn View) -> Result<Vec<ProjectEntry>, Refusal> {
        let all = view.projects()?;
        Ok(all
            .into_iter()
            .filter(|project| self.caller.reaches(project))
            .collect())
    }

    /// The project that a slug or id names.
    ///
    /// # Errors
    ///
    /// `UNKNOWN_PROJECT` with the known ones; nothing is made.
    pub fn project(&self, view: &dyn View, text: &str) -> Result<ProjectEntry, Refusal> {
        let known = self.reachable(view)?;
        let wanted = text.trim();
        let by_slug = known.iter().find(|project| project.slug == wanted);
        let by_id = || {
            let id = wanted.parse::<ObjectId>().ok()?;
            known.iter().find(|project| project.id == id)
        };
        match by_slug.or_else(by_id) {
            Some(project) => Ok(project.clone()),
            None => Err(Refusal::new(
                Code::UnknownProject,
                "no project of that name in this workspace.",
                "Use one of knownProjects; a project is never made by a task.",
            )
            .with("given", wanted)
            .with("knownProjects", known_projects(&known))),
        }
    }
}

/// Slugs, for an answer.
pub fn known_projects(projects: &[ProjectEntry]) -> Value {
    projects
        .iter()
        .filter(|project| !project.archived)
        .map(|project| project.slug.as_str())
        .collect()
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The credential.
    pub credential: String,
    /// The member whose credential it is.
    pub member: String,
    /// What kind of credential it is.
    pub kind: CallerKind,
    /// What it may do.
    pub scopes: BTreeSet<String>,
    /// The projects it reaches, by slug or id; all where nothing is said.
    pub grants: Option<BTreeSet<String>>,
    /// What the caller calls itself; kept beside the credential, never believed.
    pub label: Option<String>,
}

impl Caller {
    /// Refuses a caller without `scope`.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, naming the scope and the supervisor.
    pub fn need(&self, scope: &str, directory: &Directory) -> Result<(), Refusal> {
        if self.scopes.contains(scope) {
            return Ok(());
        }
        let have: Vec<_> = self.scopes.iter().map(String::as_str).collect();
        let have = if have.is_empty() {
            "none".to_owned()
        } else {
            have.join(", ")
        };
        Err(Refusal::new(
            Code::Forbidden,
            format!("needs {scope}; this credential has {have}."),
            "Ask your supervisor (named below).",
        )
        .with("needs", scope)
        .with("supervisor", directory.member_json(&self.member)))
    }

    /// Whether the caller's grants cover a project.
    pub fn reaches(&self, project: &ProjectEntry) -> bool {
        self.grants.as_ref().is_none_or(|grants| {
            grants.contains(&project.slug) || grants.contains(&project.id.to_string())
        })
    }
}

/// What kind of credential asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// A member, in person.
    Person,
    /// An agent of a member.
    Delegate,
    /// A key of a project.
    ProjectKey,
    /// The node itself.
    System,
}

/// The members and credentials of a workspace, for names. Filled from the roster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directory {
    /// Members by id.
    pub members: BTreeMap<String, Member>,
    /// Credentials by id, revoked ones included.
    pub credentials: BTreeMap<String, Credential>,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The name to show.
    pub name: String,
    /// The address that stands for the member in assignments.
    pub email: Option<String>,
    /// Advice on how the member's agents take part: lead, contributor, observer.
    pub responsibility: String,
}

/// A credential of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Its name; of a delegate, the agent's.
    pub name: String,
    /// The member whose it is.
    pub member: String,
    /// Whether it belongs to an agent.
    pub delegate: bool,
    /// Whether it still counts.
    pub live: bool,
}

impl Directory {
    /// The actor of an answer: `{credential, name, memberId, memberName, label}`.
    pub fn actor_json(&self, credential: &str, label: Option<&str>) -> Value {
        let known = self.credentials.get(credential);
        let member = known.and_then(|known| self.members.get(&known.member));
        json!({
            "credential": credential,
            "name": known.map(|known| known.name.as_str()),
            "memberId": known.map(|known| known.member.as_str()),
            "memberName": member.map(|member| member.name.as_str()),
            "label": label,
        })
    }

    /// The actor of a change.
    pub fn stamp_json(&self, stamp: &Stamp) -> Value {
        self.actor_json(&stamp.credential, stamp.label.as_deref())
    }

    /// A member of an answer.
    pub fn member_json(&self, id: &str) -> Value {
        let member = self.members.get(id);
        json!({
            "userId": id,
            "displayName": member.map(|member| member.name.as_str()),
            "email": member.and_then(|member| member.email.as_deref()),
            "responsibilityRole": member.map(|member| member.responsibility.as_str()),
        })
    }

    /// An assignee of an answer: a member or an agent with its member.
    pub fn assignee_json(&self, id: &str) -> Value {
        if let Some(member) = self.members.get(id) {
            return json!({ "id": id, "name": member.name, "memberId": id, "memberName": member.name });
        }
        let known = self.credentials.get(id);
        let member = known.and_then(|known| self.members.get(&known.member));
        json!({
            "id": id,
            "name": known.map(|known| known.name.as_str()),
            "memberId": known.map(|known| known.member.as_str()),
            "memberName": member.map(|member| member.name.as_str()),
        })
    }

    /// The member or agent that `text` names: a member's email, id or name, an agent's name or
    /// credential, or `me`.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` with those that can be assigned.
    pub fn assignee(&self, text: &str, caller: &Caller) -> Result<String, Refusal> {
        let wanted = text.trim();
        if wanted == "me" {
            let person = caller.kind == CallerKind::Person;
            return Ok(if person {
                caller.member.clone()
            } else {
                caller.credential.clone()
            });
        }
        let same = |name: &str| name.eq_ignore_ascii_case(wanted);
        let member = self.members.iter().find(|(id, member)| {
            *id == wanted || member.email.as_deref().is_some_and(same) || same(&member.name)
        });
        let agent = || {
            self.credentials.iter().find(|(id, credential)| {
                credential.live && credential.delegate && (*id == wanted || same(&credential.name))
            })
        };
        match member
            .map(|(id, _)| id)
            .or_else(|| agent().map(|(id, _)| id))
        {
            Some(id) => Ok(id.clone()),
            None => Err(Refusal::argument(
                "assignee",
                "assignee names no member and no agent of this workspace.",
                "Use one of accepted, `me`, or null for nobody.",
            )
            .with("given", wanted)
            .with("accepted", self.assignable())),
        }
    }

    fn assignable(&self) -> Value {
        let members = self
            .members
            .iter()
            .map(|(id, member)| member.email.as_ref().unwrap_or(id));
        let agents = self
            .credentials
            .values()
            .filter(|known| known.live && known.delegate)
            .map(|known| &known.name);
        let mut names: Vec<&str> = members.chain(agents).map(String::as_str).collect();
        names.sort_unstable();
        names.into()
    }
}
