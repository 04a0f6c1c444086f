//! Rights: scopes and project grants on a credential, bounded by the member's, and the capabilities they amount to.

use crate::entry::CredentialKind;
use crate::limits::MAX_SCOPES;
use crate::roster::Credential;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One thing each that the credential can do, in a fixed order. A revoked credential can do nothing.
///
/// The names are for display and for checks alike: the answer to "may it?" is whether the name is in this list.
#[must_use]
pub fn capabilities(credential: &Credential) -> Vec<&'static str> {
    let mut can = Vec::new();
    if credential.revoked_at.is_some() {
        return can;
    }
    let everywhere = credential.grants == Grants::All;
    let has = |scope| credential.scopes.contains(scope);
    if has(Scope::TasksRead) {
        can.push(if everywhere {
            "tasks:read:all"
        } else {
            "tasks:read:projects"
        });
    }
    if has(Scope::TasksWrite) {
        can.extend([
            "tasks:create",
            "tasks:update",
            "tasks:assign",
            "tasks:comment",
            "sprints:manage",
        ]);
    }
    if has(Scope::ProjectsWrite) {
        // A new project is outside every grant by name: whoever is limited to some could not reach what they made.
        if everywhere {
            can.push("projects:create");
        }
    }
    if has(Scope::MembersWrite) {
        can.push("members:manage");
    }
    // A person gives delegates of their own no more than they have; an administrator gives anybody's.
    if has(Scope::MembersWrite)
        || (credential.kind == CredentialKind::Person && has(Scope::TasksWrite))
    {
        can.push("agents:manage");
    }
    if has(Scope::WorkspaceAdmin) {
        can.push("workspace:admin");
    }
    can
}

/// One right. The order is that of the wire; new ones are added at the end, in a new kind of entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Scope {
    /// `tasks:read`: see the granted projects.
    #[serde(rename = "tasks:read")]
    TasksRead,
    /// `tasks:write`: create, change, assign and comment on tasks there.
    #[serde(rename = "tasks:write")]
    TasksWrite,
    /// `projects:write`: projects and sprints.
    #[serde(rename = "projects:write")]
    ProjectsWrite,
    /// `members:write`: members, devices and credentials.
    #[serde(rename = "members:write")]
    MembersWrite,
    /// `workspace:admin`: settings of the workspace.
    #[serde(rename = "workspace:admin")]
    WorkspaceAdmin,
}

impl Scope {
    /// Every scope there is.
    pub const ALL: [Self; 5] = [
        Self::TasksRead,
        Self::TasksWrite,
        Self::ProjectsWrite,
        Self::MembersWrite,
        Self::WorkspaceAdmin,
    ];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TasksRead => "tasks:read",
            Self::TasksWrite => "tasks:write",
            Self::ProjectsWrite => "projects:write",
            Self::MembersWrite => "members:write",
            Self::WorkspaceAdmin => "workspace:admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or(ScopeError::Unknown)
    }
}

/// A list of scopes was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// One of them does not exist. Its text is not repeated: it came from outside.
    #[error(
        "unknown scope; there are tasks:read, tasks:write, projects:write, members:write and workspace:admin"
    )]
    Unknown,
    /// More than a list may hold.
    #[error("more than {limit} scopes")]
    TooMany {
        /// [`MAX_SCOPES`].
        limit: usize,
    },
}

/// A sorted set of scopes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Every scope.
    #[must_use]
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// From the written scopes; repetitions are one.
    ///
    /// # Errors
    ///
    /// When one is unknown or there are more than [`MAX_SCOPES`].
    pub fn parse<'a>(written: impl IntoIterator<Item = &'a str>) -> Result<Self, ScopeError> {
        let mut scopes = Self::default();
        for (place, text) in written.into_iter().enumerate() {
            if place >= MAX_SCOPES {
                return Err(ScopeError::TooMany { limit: MAX_SCOPES });
            }
            scopes.0.insert(text.parse()?);
        }
        Ok(scopes)
    }

    /// Whether the scope is in it.
    #[must_use]
    pub fn contains(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }

    /// Whether nothing in it goes beyond the other.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The scopes in their order.
    pub fn iter(&self) -> impl Iterator<Item = Scope> + '_ {
        self.0.iter().copied()
    }

    /// What is in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.0.intersection(&other.0).copied().collect()
    }

    /// What is in either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        self.0.union(&other.0).copied().collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().collect())
    }
}

/// The projects a credential reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grants {
    /// Every project, those to come included.
    All,
    /// These only, by slug or id. This crate compares them as text.
    Projects(BTreeSet<String>),
}

impl Grants {
    /// No project at all: what a delegate has while its member has no live credential.
    #[must_use]
    pub const fn none() -> Self {
        Self::Projects(BTreeSet::new())
    }

    /// These projects.
    pub fn projects<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self::Projects(names.into_iter().map(Into::into).collect())
    }

    /// Whether the project is reached.
    #[must_use]
    pub fn covers(&self, project: &str) -> bool {
        match self {
            Self::All => true,
            Self::Projects(names) => names.contains(project),
        }
    }

    /// Whether nothing in it goes beyond the other.
    #[must_use]
    pub fn within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::All) => true,
            (Self::All, Self::Projects(_)) => false,
            (Self::Projects(mine), Self::Projects(theirs)) => mine.is_subset(theirs),
        }
    }

    /// What both reach.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, grants) | (grants, Self::All) => grants.clone(),
            (Self::Projects(mine), Self::Projects(theirs)) => Self::Projects(mine & theirs),
        }
    }

    /// What either reaches.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Projects(mine), Self::Projects(theirs)) => Self::Projects(mine | theirs),
        }
    }
}

/// What a member is in the workspace. The order is that of authority and of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// Takes part; manages nobody but their own delegates.
    Member,
    /// Manages members.
    Admin,
    /// Manages everybody, owners and admins included.
    Owner,
}

impl Rank {
    /// The most a credential of such a member can have.
    #[must_use]
    pub fn scopes(self) -> Scopes {
        match self {
            Self::Member => [Scope::TasksRead, Scope::TasksWrite, Scope::ProjectsWrite]
                .into_iter()
                .collect(),
            Self::Admin | Self::Owner => Scopes::all(),
        }
    }

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{CredentialId, MemberId};

    fn credential(kind: CredentialKind, scopes: &[&str], grants: Grants) -> Credential {
        let scopes = Scopes::parse(scopes.iter().copied()).unwrap();
        Credential {
            id: CredentialId::from_bytes([1; 8]),
            member: MemberId::from_bytes([1; 8]),
            name: "x".into(),
            kind,
            token_hash: None,
            granted_scopes: scopes.clone(),
            granted_projects: grants.clone(),
            scopes,
            grants,
            added_at: 1,
            revoked_at: None,
        }
    }

    #[test]
    fn scope_strings() {
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
        }
        assert_eq!("tasks".parse::<Scope>(), Err(ScopeError::Unknown));
        assert_eq!("".parse::<Scope>(), Err(ScopeError::Unknown));
        assert_eq!(
            Scopes::parse(["workspace:admin", "tasks:read", "tasks:read"])
                .unwrap()
                .iter()
                .collect::<Vec<_>>(),
            [Scope::TasksRead, Scope::WorkspaceAdmin]
        );
    }

    #[test]
    fn scopes_limit() {
        let list = |len| Scopes::parse(std::iter::repeat_n("tasks:read", len));
        assert!(list(MAX_SCOPES - 1).is_ok());
        assert!(list(MAX_SCOPES).is_ok());
        assert_eq!(
            list(MAX_SCOPES + 1),
            Err(ScopeError::TooMany { limit: MAX_SCOPES })
        );
    }

    #[test]
    fn what_a_credential_can_do() {
        let read = credential(CredentialKind::Person, &["tasks:read"], Grants::All);
        assert_eq!(capabilities(&read), ["tasks:read:all"]);
        let limited = credential(
            CredentialKind::Delegate,
            &["tasks:read", "tasks:write", "projects:write"],
            Grants::projects(["site"]),
        );
        assert_eq!(
            capabilities(&limited),
            [
                "tasks:read:projects",
                "tasks:create",
                "tasks:update",
                "tasks:assign",
                "tasks:comment",
                "sprints:manage"
            ]
        );
        let all: Vec<_> = Scope::ALL.map(Scope::as_str).into();
        let mut owner = credential(CredentialKind::Person, &all, Grants::All);
        assert_eq!(
            capabilities(&owner),
            [
                "tasks:read:all",
                "tasks:create",
                "tasks:update",
                "tasks:assign",
                "tasks:comment",
                "sprints:manage",
                "projects:create",
                "members:manage",
                "agents:manage",
                "workspace:admin"
            ]
        );
        owner.revoked_at = Some(2);
        assert!(capabilities(&owner).is_empty());
    }

    #[test]
    fn grants_as_sets() {
        let (one, two) = (Grants::projects(["a"]), Grants::projects(["a", "b"]));
        assert!(one.within(&two) && !two.within(&one));
        assert!(two.within(&Grants::All) && !Grants::All.within(&two));
        assert_eq!(one.or(&two), two);
        assert_eq!(one.and(&two), one);
        assert_eq!(Grants::All.and(&one), one);
        assert_eq!(Grants::All.or(&one), Grants::All);
        assert!(one.covers("a") && !one.covers("b") && Grants::All.covers("b"));
        assert!(Grants::none().within(&one));
    }
}
