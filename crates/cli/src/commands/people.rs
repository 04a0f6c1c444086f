//! Projects, members and agents.

use serde_json::{Map, Value, json};

use crate::{
    args::{Agent, AgentAdd, Member, Project},
    commands::{Cx, put, put_flag, put_list},
    failure::Failure,
    output::{
        Style, page,
        show::{first_text, text},
        table,
    },
};

pub(super) fn project(cx: &mut Cx<'_>, args: &Project) -> Result<u8, Failure> {
    match args {
        Project::Add(args) => {
            let mut map = Map::new();
            map.insert("slug".into(), args.slug.as_str().into());
            let name = args.name.as_ref().unwrap_or(&args.slug);
            map.insert("name".into(), name.as_str().into());
            cx.show("project_add", map, page::written)?;
        }
        Project::List => listed(
            cx,
            "project_list",
            "projects",
            table::projects,
            "No projects. Make one: stead project add SLUG",
        )?,
    }
    Ok(0)
}

pub(super) fn member(cx: &mut Cx<'_>, args: &Member) -> Result<u8, Failure> {
    match args {
        Member::Add(args) => {
            let mut map = Map::new();
            map.insert("name".into(), args.name.as_str().into());
            put(&mut map, "email", args.email.clone());
            map.insert("rank".into(), args.rank.as_str().into());
            map.insert("responsibility".into(), args.role.as_str().into());
            cx.show("member_add", map, page::written)?;
        }
        Member::Set(args) => {
            let mut map = Map::new();
            map.insert("member".into(), args.member.as_str().into());
            put(&mut map, "name", args.name.clone());
            put(&mut map, "email", args.email.clone());
            put(&mut map, "rank", args.rank.clone());
            put(&mut map, "responsibility", args.role.clone());
            cx.show("member_change", map, page::written)?;
        }
        Member::List => listed(
            cx,
            "member_list",
            "members",
            table::members,
            "No members. Add one: stead member add NAME",
        )?,
    }
    Ok(0)
}

pub(super) fn agent(cx: &mut Cx<'_>, args: &Agent) -> Result<u8, Failure> {
    match args {
        Agent::Add(args) => add_agent(cx, args)?,
        Agent::List => listed(
            cx,
            "agent_list",
            "agents",
            table::agents,
            "No agents. Add one: stead agent add NAME --local",
        )?,
        Agent::Revoke(args) => {
            let map = Map::from_iter([("name".to_owned(), args.name.as_str().into())]);
            cx.show("agent_revoke", map, |data, _| {
                format!("revoked {}", name_of(data, &args.name))
            })?;
        }
    }
    Ok(0)
}

fn add_agent(cx: &mut Cx<'_>, args: &AgentAdd) -> Result<(), Failure> {
    let mut map = Map::new();
    map.insert("name".into(), args.name.as_str().into());
    put(&mut map, "member", args.member.clone());
    put_list(&mut map, "scopes", &args.scopes);
    put_list(&mut map, "projects", &args.projects);
    put_flag(&mut map, "local", args.local);
    let data = cx.show("agent_add", map, |data, style: Style| {
        let name = name_of(data, &args.name);
        match text(data, "token") {
            token if token.is_empty() => format!("{}  local", style.bold(&name)),
            token => format!("{}  {token}", style.bold(&name)),
        }
    })?;
    if text(&data, "token").is_empty() {
        cx.out.note(&format!(
            "On this machine use it with: stead --agent {} …",
            name_of(&data, &args.name)
        ));
    } else {
        cx.out
            .note("The token is shown this once. Give it to the agent as STEAD_TOKEN.");
    }
    Ok(())
}

fn name_of(data: &Value, given: &str) -> String {
    let agent = data.get("agent").unwrap_or(data);
    match first_text(agent, &["name"]) {
        name if name.is_empty() => text(&json!({ "name": given }), "name"),
        name => name,
    }
}

fn listed(
    cx: &mut Cx<'_>,
    method: &str,
    name: &str,
    rendered: impl FnOnce(&Value, Style) -> String,
    advice: &str,
) -> Result<(), Failure> {
    let data = cx.show(method, Map::new(), rendered)?;
    if table::items(&data, name).next().is_none() {
        cx.out.note(advice);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::ran;

    #[test]
    fn a_token_is_shown_once_and_a_local_agent_has_none() {
        let remote = ran(
            &[
                "agent",
                "add",
                "ci",
                "--scopes",
                "tasks:read,tasks:write",
                "--projects",
                "web",
            ],
            |_, _| Ok(json!({"agent": {"name": "ci"}, "token": "st_abc"})),
        );
        assert_eq!(
            *remote.call("agent_add"),
            json!({"name": "ci", "scopes": ["tasks:read", "tasks:write"], "projects": ["web"]})
        );
        assert_eq!(remote.stdout, "ci  st_abc\n");
        assert!(remote.stderr.contains("shown this once"));
        let local = ran(&["agent", "add", "bot", "--local"], |_, _| {
            Ok(json!({"agent": {"name": "bot"}, "token": null}))
        });
        assert_eq!(
            *local.call("agent_add"),
            json!({"name": "bot", "local": true})
        );
        assert_eq!(local.stdout, "bot  local\n");
    }

    #[test]
    fn members_and_projects_are_added() {
        let member = ran(
            &[
                "member", "add", "Ada", "--email", "a@x", "--rank", "admin", "--role", "lead",
            ],
            |_, _| Ok(json!({"member": {"id": "M", "name": "Ada", "email": "a@x"}})),
        );
        assert_eq!(
            *member.call("member_add"),
            json!({"name": "Ada", "email": "a@x", "rank": "admin", "responsibility": "lead"})
        );
        assert_eq!(member.stdout, "Ada  a@x  M\n");
        let project = ran(&["project", "add", "web"], |_, _| {
            Ok(json!({"project": {"id": "P", "slug": "web", "name": "web"}}))
        });
        assert_eq!(
            *project.call("project_add"),
            json!({"slug": "web", "name": "web"})
        );
        let none = ran(&["project", "list"], |_, _| Ok(json!({"projects": []})));
        assert_eq!(
            none.stderr,
            "No projects. Make one: stead project add SLUG\n"
        );
    }
}
