//! Members, agents and their credentials: entries of the roster.

use serde_json::{Value as Json, json};
use stead_doc::{
    arguments::{self, Arguments},
    context::Caller,
    limits,
    refusal::{Code, Refusal},
};
use stead_sync::{
    Body, Credential, CredentialAdded, CredentialId, CredentialKind, CredentialRevoked, Edit,
    Grants, MemberAdded, MemberChanged, MemberId, Rank, Responsibility, Scopes, Token,
    capabilities,
};

use super::need_person;
use crate::{
    handle::{Node, Shared},
    home::id_bytes,
};

impl Node {
    pub(super) fn member_add(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(
            Arguments::flatten(arguments)?,
            &["name", "email", "rank", "responsibility"],
        )?;
        need_person(caller, "add members")?;
        let name = args
            .line("name", limits::TITLE_CHARS)?
            .ok_or_else(|| arguments::missing("name"))?;
        let email = args
            .line("email", limits::TITLE_CHARS)?
            .filter(|email| !email.is_empty());
        let rank = rank(&args)?.unwrap_or(Rank::Member);
        let responsibility = responsibility(&args)?.unwrap_or(Responsibility::Contributor);
        let member = MemberId::from_bytes(id_bytes(self.world()));
        self.extend_roster(Body::MemberAdded(MemberAdded {
            member,
            name: name.clone(),
            email,
            rank,
            responsibility,
        }))?;
        // A member reaches nothing without a credential in person; agents are bounded by it.
        let credential = CredentialAdded {
            credential: CredentialId::from_bytes(id_bytes(self.world())),
            member,
            name,
            kind: CredentialKind::Person,
            token_hash: None,
            scopes: rank.scopes(),
            grants: Grants::All,
        };
        self.extend_roster(Body::CredentialAdded(credential))?;
        let shared = self.shared();
        Ok(json!({ "member": member_json(&shared, member) }))
    }

    pub(super) fn member_change(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(
            Arguments::flatten(arguments)?,
            &["member", "name", "email", "rank", "responsibility"],
        )?;
        need_person(caller, "change members")?;
        let text = args
            .line("member", limits::TITLE_CHARS)?
            .ok_or_else(|| arguments::missing("member"))?;
        let member = find_member(&self.shared(), &text)?;
        let edit = |value: Option<String>| value.map_or(Edit::Keep, Edit::Set);
        let changed = MemberChanged {
            member,
            name: edit(args.line("name", limits::TITLE_CHARS)?),
            email: match (
                args.given("email"),
                args.line("email", limits::TITLE_CHARS)?,
            ) {
                (None, _) => Edit::Keep,
                (Some(_), email) => Edit::Set(email.filter(|email| !email.is_empty())),
            },
            rank: rank(&args)?.map_or(Edit::Keep, Edit::Set),
            responsibility: responsibility(&args)?.map_or(Edit::Keep, Edit::Set),
        };
        if changed == MemberChanged::of(member) {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "nothing is to be changed.",
                "Send name, email, rank or responsibility.",
            ));
        }
        self.extend_roster(Body::MemberChanged(changed))?;
        Ok(json!({ "member": member_json(&self.shared(), member) }))
    }

    /// What an agent reads before it acts: whose delegate it is, what it can do, who is there, and
    /// which projects.
    pub(super) fn workspace(&self, caller: &Caller) -> Result<Json, Refusal> {
        caller.need("tasks:read", &self.shared().directory)?;
        let shared = self.shared();
        let credential = caller
            .credential
            .parse()
            .ok()
            .and_then(|id| shared.roster.credential(id));
        let supervisor = supervisor(&shared, caller);
        let members: Vec<_> = shared
            .roster
            .members()
            .map(|member| shared.directory.member_json(&member.id.to_string()))
            .collect();
        let projects: Vec<_> = self
            .with_store(|store| Ok(store.projects()))?
            .into_iter()
            .filter(|project| !project.archived && caller.reaches(project))
            .map(|project| json!({ "slug": project.slug, "name": project.name }))
            .collect();
        let name = &shared.roster.genesis().workspace_name;
        Ok(json!({ "workspaces": [{
            "workspace": {
                "id": shared.roster.workspace().to_string(),
                "name": name,
                "slug": slug_of(name),
            },
            "delegation": {
                "supervisor": {
                    "userId": caller.member,
                    "displayName": supervisor.map(|member| member.name.as_str()),
                },
                "responsibilityRole": supervisor.map(|member| member.responsibility.as_str()),
                "advice": supervisor.map(|member| member.responsibility.advice()),
                "capabilities": credential.map(capabilities).unwrap_or_default(),
            },
            "members": members,
            "projects": projects,
        }] }))
    }

    pub(super) fn member_list(&self, caller: &Caller) -> Result<Json, Refusal> {
        caller.need("tasks:read", &self.shared().directory)?;
        let shared = self.shared();
        let members: Vec<_> = shared
            .roster
            .members()
            .map(|member| member_json(&shared, member.id))
            .collect();
        Ok(json!({ "members": members }))
    }

    pub(super) fn agent_add(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(
            Arguments::flatten(arguments)?,
            &["name", "member", "scopes", "projects", "local"],
        )?;
        need_person(caller, "add agents")?;
        let name = args
            .line("name", limits::TITLE_CHARS)?
            .filter(|name| !name.is_empty())
            .ok_or_else(|| arguments::missing("name"))?;
        let shared = self.shared();
        if shared.roster.credential_by_name(&name).is_some() {
            return Err(Refusal::argument(
                "name",
                "this name is taken.",
                "Choose another one, or revoke the agent that has it.",
            )
            .with("given", name));
        }
        let member = match args.line("member", limits::TITLE_CHARS)? {
            Some(text) => find_member(&shared, &text)?,
            None => caller
                .member
                .parse()
                .map_err(|_| arguments::missing("member"))?,
        };
        let scopes = match args.words("scopes", 32)? {
            Some(words) => Scopes::parse(words.iter().map(String::as_str)).map_err(|error| {
                let accepted: Vec<_> = stead_sync::Scope::ALL
                    .iter()
                    .map(|scope| scope.as_str())
                    .collect();
                Refusal::argument(
                    "scopes",
                    format!("scopes: {error}."),
                    "Use those in accepted.",
                )
                .with("accepted", json!(accepted))
            })?,
            None => Scopes::parse(["tasks:read", "tasks:write"])
                .map_err(|error| Refusal::argument("scopes", error.to_string(), "Send scopes."))?,
        };
        let grants = match args.words("projects", 200)? {
            Some(projects) => {
                let known = self.with_store(|store| Ok(store.projects()))?;
                if let Some(unknown) = projects
                    .iter()
                    .find(|slug| !known.iter().any(|project| project.slug == **slug))
                {
                    return Err(Refusal::new(
                        Code::UnknownProject,
                        "no project of that name in this workspace.",
                        "Use those in knownProjects.",
                    )
                    .with("given", unknown.as_str())
                    .with("knownProjects", stead_doc::context::known_projects(&known)));
                }
                Grants::projects(projects)
            }
            None => Grants::All,
        };
        let local = args.flag("local")?.unwrap_or(false);
        let token = if local {
            None
        } else {
            let mut entropy = [0; 20];
            for (to, from) in entropy.iter_mut().zip(self.world().entropy()) {
                *to = from;
            }
            Some(Token::from_entropy(&entropy))
        };
        let id = CredentialId::from_bytes(id_bytes(self.world()));
        self.extend_roster(Body::CredentialAdded(CredentialAdded {
            credential: id,
            member,
            name,
            kind: CredentialKind::Delegate,
            token_hash: token.as_ref().map(Token::hash),
            scopes,
            grants,
        }))?;
        let shared = self.shared();
        let agent = shared
            .roster
            .credential(id)
            .map(|credential| credential_json(&shared, credential));
        Ok(json!({ "agent": agent, "token": token.as_ref().map(Token::as_str) }))
    }

    pub(super) fn agent_list(&self, caller: &Caller) -> Result<Json, Refusal> {
        caller.need("tasks:read", &self.shared().directory)?;
        let shared = self.shared();
        let agents: Vec<_> = shared
            .roster
            .credentials()
            .filter(|credential| credential.kind != CredentialKind::Person)
            .map(|credential| credential_json(&shared, credential))
            .collect();
        Ok(json!({ "agents": agents }))
    }

    pub(super) fn agent_revoke(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(Arguments::flatten(arguments)?, &["name"])?;
        need_person(caller, "revoke credentials")?;
        let name = args
            .line("name", limits::TITLE_CHARS)?
            .ok_or_else(|| arguments::missing("name"))?;
        let shared = self.shared();
        let by_id = || {
            name.parse()
                .ok()
                .and_then(|id| shared.roster.credential(id))
        };
        let found = shared
            .roster
            .credential_by_name(&name)
            .or_else(by_id)
            .filter(|known| known.kind != CredentialKind::Person);
        let Some(found) = found else {
            let mut known: Vec<_> = shared
                .roster
                .credentials()
                .filter(|known| known.is_live() && known.kind != CredentialKind::Person)
                .map(|known| known.name.clone())
                .collect();
            known.sort_unstable();
            return Err(Refusal::argument(
                "name",
                "no live agent of that name.",
                "Use one of accepted.",
            )
            .with("given", name)
            .with("accepted", known));
        };
        let id = found.id;
        self.extend_roster(Body::CredentialRevoked(CredentialRevoked {
            credential: id,
        }))?;
        let shared = self.shared();
        let agent = shared
            .roster
            .credential(id)
            .map(|credential| credential_json(&shared, credential));
        Ok(json!({ "agent": agent }))
    }

    pub(super) fn whoami(&self, caller: &Caller) -> Result<Json, Refusal> {
        let shared = self.shared();
        let credential = caller
            .credential
            .parse()
            .ok()
            .and_then(|id| shared.roster.credential(id));
        let supervisor = supervisor(&shared, caller);
        Ok(json!({
            "actor": shared.directory.actor_json(&caller.credential, caller.label.as_deref()),
            "supervisor": shared.directory.member_json(&caller.member),
            "advice": supervisor.map(|member| member.responsibility.advice()),
            "scopes": caller.scopes,
            "projects": caller.grants,
            "capabilities": credential.map(capabilities).unwrap_or_default(),
        }))
    }
}

/// The member whose credential asks.
fn supervisor<'a>(shared: &'a Shared, caller: &Caller) -> Option<&'a stead_sync::Member> {
    shared.roster.member(caller.member.parse().ok()?)
}

fn find_member(shared: &Shared, text: &str) -> Result<MemberId, Refusal> {
    let same = |name: &str| name.eq_ignore_ascii_case(text);
    let found = shared.roster.members().find(|member| {
        member.id.to_string() == text
            || same(&member.name)
            || member.email.as_deref().is_some_and(same)
    });
    match found {
        Some(member) => Ok(member.id),
        None => {
            let mut known: Vec<_> = shared
                .roster
                .members()
                .map(|member| member.name.clone())
                .collect();
            known.sort_unstable();
            Err(Refusal::argument(
                "member",
                "no member of that name or address.",
                "Use one of accepted.",
            )
            .with("given", text)
            .with("accepted", known))
        }
    }
}

fn member_json(shared: &Shared, id: MemberId) -> Json {
    let member = shared.roster.member(id);
    json!({
        "id": id.to_string(),
        "name": member.map(|member| member.name.as_str()),
        "email": member.and_then(|member| member.email.as_deref()),
        "rank": member.map(|member| member.rank.as_str()),
        "responsibility": member.map(|member| member.responsibility.as_str()),
    })
}

fn credential_json(shared: &Shared, credential: &Credential) -> Json {
    json!({
        "id": credential.id.to_string(),
        "name": credential.name,
        "kind": credential.kind.as_str(),
        "memberId": credential.member.to_string(),
        "memberName": shared.roster.member(credential.member).map(|member| member.name.as_str()),
        "scopes": credential.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>(),
        "projects": match &credential.grants {
            Grants::All => Json::Null,
            Grants::Projects(projects) => json!(projects),
        },
        "method": if credential.token_hash.is_none() { "local" } else { "token" },
        "local": credential.token_hash.is_none(),
        "live": credential.is_live(),
        "capabilities": capabilities(credential),
    })
}

fn rank(args: &Arguments) -> Result<Option<Rank>, Refusal> {
    Ok(match args.line("rank", 32)?.as_deref() {
        None => None,
        Some("member") => Some(Rank::Member),
        Some("admin") => Some(Rank::Admin),
        Some("owner") => Some(Rank::Owner),
        Some(other) => return Err(unknown("rank", other, &["member", "admin", "owner"])),
    })
}

fn responsibility(args: &Arguments) -> Result<Option<Responsibility>, Refusal> {
    let Some(text) = args.line("responsibility", 32)? else {
        return Ok(None);
    };
    let known = || Responsibility::ALL.map(Responsibility::as_str);
    Responsibility::parse(&text)
        .map(Some)
        .ok_or_else(|| unknown("responsibility", &text, &known()))
}

/// A workspace's name as it stands before a project's slug.
fn slug_of(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.chars() {
        if letter.is_alphanumeric() {
            slug.extend(letter.to_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') && letter != '\'' {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

fn unknown(field: &str, given: &str, accepted: &[&str]) -> Refusal {
    Refusal::argument(
        field,
        format!("{field} is none of the known ones."),
        "Use one of accepted.",
    )
    .with("given", given)
    .with("accepted", json!(accepted))
}
