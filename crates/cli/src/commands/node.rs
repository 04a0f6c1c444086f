//! The running node, and the home that it runs on.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use stead_doc::refusal::{Code, Refusal};

use crate::{
    args::{Init, Listening, Making, Node, Restore, Up},
    client::{self, Backend as _, Identity},
    commands::absolute,
    failure::Failure,
    local::{self, InitOptions, InitReport, Ready, Serving},
    output::{Out, Style, clean, page},
};

/// The project that `up` makes where none is named.
const FIRST_PROJECT: &str = "main";

pub(super) fn up(home: &Path, args: &Up, out: &mut Out) -> Result<u8, Failure> {
    if let Some(code) = runs_already(home, out)? {
        return Ok(code);
    }
    let made = if local::is_made(home) {
        None
    } else {
        let mut options = options(&args.making);
        // Whoever starts here creates a task next, and a task needs a project.
        options
            .project
            .get_or_insert_with(|| FIRST_PROJECT.to_owned());
        match local::init(home, &options) {
            // Another one was quicker.
            Err(refusal) if refusal.details.contains_key("exists") => None,
            made => Some(made?),
        }
    };
    let serving = Serving {
        first_agent: true,
        ..serving(&args.listening, None)?
    };
    match serve(home, serving, made.as_ref(), out) {
        Err(Failure::Refused(refusal)) if local::is_locked(&refusal) => {
            runs_already(home, out)?.ok_or(Failure::Refused(refusal))
        }
        ended => ended,
    }
}

/// One that runs already is what was asked for.
fn runs_already(home: &Path, out: &mut Out) -> Result<Option<u8>, Failure> {
    let Some(node) = client::running(home, &Identity::default())? else {
        return Ok(None);
    };
    let data = status(&node)?;
    out.note("A node runs here already.");
    out.answer(&data, page::fields)?;
    Ok(Some(0))
}

/// How a node is, and where.
fn status(node: &client::Http) -> Result<Value, Refusal> {
    let mut data = node.call("status", json!({}))?;
    if let Some(data) = data.as_object_mut() {
        data.insert("url".into(), node.url().into());
    }
    Ok(data)
}

pub(super) fn init(home: &Path, args: &Init, out: &mut Out) -> Result<u8, Failure> {
    let report = local::init(home, &options(&args.making))?;
    out.answer(&report_json(&report), |_, style| made(&report, style))?;
    out.note("Run its node: stead up");
    Ok(0)
}

pub(super) fn restore(home: &Path, args: &Restore, out: &mut Out) -> Result<u8, Failure> {
    let file = absolute("file", &args.file)?;
    let data = local::restore(home, Path::new(&file))?;
    out.answer(&data, |data, style| {
        format!("{}\n{}", style.bold("restored"), page::fields(data, style))
    })?;
    Ok(0)
}

pub(super) fn node(
    home: &Path,
    identity: &Identity,
    args: &Node,
    out: &mut Out,
) -> Result<u8, Failure> {
    match args {
        Node::Run(args) => serve(home, serving(&args.listening, args.idle_exit)?, None, out),
        Node::Status => {
            let data = status(&running(home, identity)?)?;
            out.answer(&data, page::fields)?;
            Ok(0)
        }
        Node::Stop => {
            let data = running(home, identity)?.call("shutdown", json!({}))?;
            out.answer(&data, |_, _| "stopping".into())?;
            Ok(0)
        }
        Node::Unit => {
            let program = std::env::current_exe()
                .map_err(|error| Failure::file("program", "find", "this program", &error))?;
            let unit = unit(&absolute("program", &program)?, &absolute("home", home)?);
            out.answer(&json!({ "unit": unit }), |_, _| unit.clone())?;
            out.note("Save it as ~/.config/systemd/user/stead.service, then: systemctl --user enable --now stead");
            Ok(0)
        }
    }
}

fn serving(listening: &Listening, idle_exit: Option<i64>) -> Result<Serving, Failure> {
    let network = match (listening.listen, &listening.tls_cert, &listening.tls_key) {
        (None, ..) => None,
        (Some(address), Some(certificate), Some(key)) => {
            Some(local::network(address, Some((certificate, key)))?)
        }
        (Some(address), ..) if listening.plain_http || address.ip().is_loopback() => {
            Some(local::network(address, None)?)
        }
        (Some(_), ..) => {
            return Err(Failure::usage(
                "listen",
                "beyond this machine a certificate is needed.",
                "Give --tls-cert and --tls-key, or --plain-http where nobody on the way may listen.",
            ));
        }
    };
    Ok(Serving {
        port: listening.port,
        allow_hosts: listening.allow_host.clone(),
        network,
        first_agent: false,
        idle_exit: idle_exit.map(|seconds| Duration::from_secs(seconds.unsigned_abs())),
    })
}

/// Runs a node until it is stopped; says where it is once it listens.
fn serve(
    home: &Path,
    serving: Serving,
    made_now: Option<&InitReport>,
    out: &mut Out,
) -> Result<u8, Failure> {
    let mut unwritten = None;
    local::serve(home, serving, &mut |ready| {
        let data = json!({
            "url": ready.url,
            "network": ready.network,
            "home": home.display().to_string(),
            "made": made_now.map(report_json),
        });
        // A node whose output nobody reads goes on running.
        unwritten = out
            .answer(&data, |_, style| greeting(home, ready, made_now, style))
            .err();
        out.note("Stop it with Ctrl-C or: stead node stop");
    })?;
    match unwritten {
        Some(failure) if failure.exit_code() != 0 => Err(failure),
        _ => Ok(0),
    }
}

fn running(home: &Path, identity: &Identity) -> Result<client::Http, Failure> {
    client::running(home, identity)?.ok_or_else(|| {
        Failure::Refused(Refusal::new(
            Code::Unavailable,
            format!("no node runs on {}.", home.display()),
            "Start one: stead up. Or name another home with --home.",
        ))
    })
}

fn options(making: &Making) -> InitOptions {
    InitOptions {
        name: making.name.clone(),
        member: making.member.clone(),
        email: making.email.clone(),
        project: making.project.clone(),
    }
}

fn report_json(report: &InitReport) -> Value {
    json!({
        "workspaceName": report.workspace_name,
        "workspaceId": report.workspace_id,
        "member": report.member,
        "recoveryKey": report.recovery_key,
        "home": report.home.display().to_string(),
    })
}

fn made(report: &InitReport, style: Style) -> String {
    format!(
        "Made the workspace {} ({}) for {} in {}\n\n\
         {}\n  {}\n\
         Keep it away from this machine. It names a new owner when every device is lost, and it is\n\
         shown this once.\n",
        style.bold(&clean::line(&report.workspace_name)),
        report.workspace_id,
        clean::line(&report.member),
        clean::line(&report.home.display().to_string()),
        style.bold("Recovery key"),
        report.recovery_key,
    )
}

fn greeting(home: &Path, ready: &Ready, made_now: Option<&InitReport>, style: Style) -> String {
    let mut text = made_now
        .map(|report| made(report, style) + "\n")
        .unwrap_or_default();
    let project = made_now
        .and_then(|report| report.project.as_deref())
        .map_or_else(|| "SLUG".to_owned(), clean::line);
    text.push_str(&format!(
        "The node listens at {}\nIts home is {}\n",
        style.bold(&ready.url),
        clean::line(&home.display().to_string()),
    ));
    if let Some(network) = &ready.network {
        text.push_str(&format!("Agents elsewhere reach it at {network}\n"));
    }
    let stead = program(home);
    let command = stead.join(" ");
    text.push_str(&format!(
        "\n\
         Create a task:    {command} create 'Fix the login' --project {project}\n\
         Import issues:    {command} import beads issues.jsonl --project {project}\n",
    ));
    if let Some(agent) = &ready.agent {
        text.push_str(&connecting(&stead, agent, &ready.url, style));
    }
    text
}

/// What to paste so that an agent's client is connected.
fn connecting(stead: &[String], agent: &str, url: &str, style: Style) -> String {
    let mut args: Vec<String> = stead.iter().skip(1).cloned().collect();
    args.push("mcp".into());
    if agent != local::FIRST_AGENT {
        args.extend(["--agent".to_owned(), shell_word(agent)]);
    }
    let program = stead.first().map_or("stead", String::as_str);
    let server = json!({ "mcpServers": { "stead": { "command": program, "args": args } } });
    let (command, args) = (stead.join(" "), args.join(" "));
    format!(
        "\n{} (as the local agent {}):\n\
         Claude Code:      claude mcp add stead -- {program} {args}\n\
         Codex:            codex mcp add stead -- {program} {args}\n\
         Cursor, others:   {server}\n\
         Over HTTP:        {url}/mcp with the token that this prints: {command} agent add NAME\n\
         Let Stead do it:  {command} setup claude  (or codex, cursor, vscode, gemini)\n",
        style.bold("Connect an agent"),
        clean::line(agent),
    )
}

/// How to call this program for this home from anywhere: by its name where the PATH leads here.
fn program(home: &Path) -> Vec<String> {
    let here = std::env::current_exe().ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = here.as_ref().is_some_and(|here| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(here.file_name().unwrap_or_default()))
            .find(|candidate| candidate.is_file())
            .and_then(|candidate| candidate.canonicalize().ok())
            .is_some_and(|found| here.canonicalize().is_ok_and(|here| here == found))
    });
    let name = match here {
        Some(here) if !on_path => shell_word(&here.display().to_string()),
        _ => "stead".to_owned(),
    };
    let mut words = vec![name];
    if local::default_home().is_none_or(|default| default != home) {
        words.push("--home".into());
        words.push(shell_word(
            &crate::bridge::absolute_home(home).display().to_string(),
        ));
    }
    words
}

/// In quotes where a shell would take it for more than one word.
fn shell_word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+:\\".contains(letter);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A systemd unit of the user's own that runs the node.
fn unit(program: &str, home: &str) -> String {
    // In a unit's command line % and $ mean something; in quotes so do \ and ".
    let quoted = |text: &str| {
        let text = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('%', "%%")
            .replace('$', "$$");
        format!("\"{text}\"")
    };
    format!(
        "[Unit]\n\
         Description=Stead node\n\
         After=network-online.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         ExecStart={} --home {} node run\n\
         Restart=on-failure\n\
         RestartSec=2\n\
         TimeoutStopSec=30\n\
         UMask=0077\n\
         NoNewPrivileges=yes\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        quoted(program),
        quoted(home),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_quotes_its_paths() {
        let unit = unit("/opt/my stead", "/home/a\"b%c$d");
        assert!(
            unit.contains("ExecStart=\"/opt/my stead\" --home \"/home/a\\\"b%%c$$d\" node run\n")
        );
    }

    #[test]
    fn no_node_says_what_to_do() {
        let failure = running(Path::new("/nonexistent"), &Identity::default()).unwrap_err();
        assert_eq!(failure.exit_code(), 3);
        let Failure::Refused(refusal) = failure else {
            panic!("not a refusal")
        };
        assert!(refusal.hint.contains("stead up"));
    }

    #[test]
    fn the_recovery_key_is_shown_with_what_it_is_for() {
        let report = InitReport {
            workspace_name: "Acme\u{1b}".into(),
            workspace_id: "W".into(),
            member: "Ada".into(),
            project: None,
            recovery_key: "KEY".into(),
            home: "/h".into(),
        };
        let text = made(&report, Style::default());
        assert!(text.starts_with(
            "Made the workspace Acme\\u{1b} (W) for Ada in /h\n\nRecovery key\n  KEY\n"
        ));
    }
}
