//! Connecting agents' clients: their files, and the agent that they act as.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::ValueEnum as _;
use serde_json::{Map, Value, json};
use stead_doc::refusal::Refusal;

use crate::{
    args::{Client, Setup},
    client::{self, Backend, Identity},
    commands::{absolute, put},
    failure::Failure,
    local,
    output::{Out, Style, clean, show::text, table::items},
    setup::{self, After, Entry, Files, Found, Trouble, block, file::OnDisk},
};

pub(super) fn setup(
    home: &Path,
    agent: Option<&str>,
    args: &Setup,
    out: &mut Out,
) -> Result<u8, Failure> {
    let place = Place {
        client: args.client,
        dir: directory(args.dir.as_deref())?,
    };
    if args.remove {
        return place.remove(out);
    }
    let agent = agent.unwrap_or(args.client.as_str());
    let entry = Entry {
        command: program()?,
        args: arguments(agent, home)?,
        typed: place.files()?.typed,
    };
    let (config, instructions) = place.set(&entry)?;
    // A token speaks for itself; setting up for an agent is not acting as it.
    let backend = client::connect(home, &Identity::new(None))?;
    let standing = standing(backend.as_ref(), agent)?;
    if args.check {
        return check(args.client, agent, standing, &[config, instructions], out);
    }
    if standing == Standing::Missing {
        backend.call("agent_add", json!({ "name": agent, "local": true }))?;
    }
    drop(backend);
    config.write()?;
    instructions.write()?;
    let made = standing == Standing::Missing;
    let data = json!({
        "client": args.client.as_str(),
        "agent": agent,
        "agentMade": made,
        "files": [config.done(), instructions.done()],
    });
    out.answer(&data, |data, style| {
        let mut page = listed(data, style);
        if made {
            page.push_str(&format!("made       agent {}\n", clean::line(agent)));
        }
        page
    })?;
    out.note("Start the client anew; it may ask whether to trust the server `stead`.");
    Ok(0)
}

/// A client in a directory.
struct Place {
    client: Client,
    dir: PathBuf,
}

impl Place {
    fn files(&self) -> Result<Files, Failure> {
        let env = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let mut files = setup::files(self.client, &self.dir, &env).ok_or_else(|| {
            Failure::usage(
                "client",
                "the environment names no home directory.",
                "Name Codex' own with CODEX_HOME.",
            )
        })?;
        files.config = absolute("client", &files.config)?.into();
        Ok(files)
    }

    /// Both files with what belongs in them; nothing is written yet.
    fn set(&self, entry: &Entry) -> Result<(Change, Change), Failure> {
        let files = self.files()?;
        let config = Change::plan(&files.config, "written", |text| {
            let after = files.format.set(text, entry)?;
            let why = match files.format.find(text)? {
                _ if after == text => None,
                Found::Ours(there) => differs(&there, &entry.over(&there)),
                Found::Nothing | Found::Foreign => Some("it has no entry `stead`".to_owned()),
            };
            Ok((After::Text(after), why))
        })?;
        let instructions = Change::plan(&files.instructions, "written", |text| {
            let after = block::set(text)?;
            let why = match block::find(text)? {
                _ if after == text => None,
                Some(_) => Some("the block of Stead in it is another one".to_owned()),
                None => Some("it has no block of Stead".to_owned()),
            };
            Ok((After::Text(after), why))
        })?;
        Ok((config, instructions))
    }

    fn remove(&self, out: &mut Out) -> Result<u8, Failure> {
        let files = self.files()?;
        let mut agent = None;
        let config = Change::plan(&files.config, "removed", |text| {
            match files.format.find(text)? {
                Found::Ours(there) => agent = there.agent().map(str::to_owned),
                Found::Foreign => {
                    let why = "Stead did not write the entry `stead` in it";
                    return Ok((After::Text(text.to_owned()), Some(why.to_owned())));
                }
                Found::Nothing => {}
            }
            Ok((files.format.remove(text)?, None))
        })?;
        let reader = self.other_reader(&files);
        let instructions = Change::plan(&files.instructions, "removed", |text| {
            match (block::find(text)?, reader) {
                (Some(_), Some(client)) => {
                    let why = format!("{} reads the block too", client.as_str());
                    Ok((After::Text(text.to_owned()), Some(why)))
                }
                _ => Ok((block::remove(text)?, None)),
            }
        })?;
        let gone = config.after == After::Gone && !config.stays();
        config.write()?;
        instructions.write()?;
        if let Some(own) = files.own_dir.as_ref().filter(|_| gone) {
            // Goes where it is empty; what else is in it stays, and so does the directory.
            drop(fs::remove_dir(own));
        }
        let data = json!({
            "client": self.client.as_str(),
            "agent": agent,
            "agentMade": false,
            "files": [config.done(), instructions.done()],
        });
        out.answer(&data, listed)?;
        if let Some(agent) = agent {
            let agent = clean::line(&agent);
            out.note(&format!(
                "The agent {agent} keeps its rights. Take them away for good: stead agent revoke {agent}"
            ));
        }
        Ok(0)
    }

    /// Another client that is connected here and reads the same instructions.
    fn other_reader(&self, files: &Files) -> Option<Client> {
        // One name may be a link to the other.
        let itself = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let read = itself(&files.instructions);
        let others = Client::value_variants().iter().copied();
        others.filter(|other| *other != self.client).find(|other| {
            let place = Self {
                client: *other,
                dir: self.dir.clone(),
            };
            let Ok(theirs) = place.files() else {
                return false;
            };
            itself(&theirs.instructions) == read
                && OnDisk::read(&theirs.config).is_ok_and(|found| {
                    matches!(theirs.format.find(found.text()), Ok(Found::Ours(_)))
                })
        })
    }
}

/// What is to become of a file.
struct Change {
    path: String,
    file: OnDisk,
    after: After,
    /// What is done to it where it changes.
    verb: &'static str,
    /// What differs, or why it stays.
    why: Option<String>,
}

impl Change {
    fn plan(
        path: &Path,
        verb: &'static str,
        edit: impl FnOnce(&str) -> Result<(After, Option<String>), Trouble>,
    ) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let file = OnDisk::read(path)
            .map_err(|error| Failure::Refused(unusable("read", &shown, &error)))?;
        let (after, why) =
            edit(file.text()).map_err(|trouble| Failure::Refused(trouble.of(&shown)))?;
        Ok(Self {
            path: shown,
            file,
            after,
            verb,
            why,
        })
    }

    fn stays(&self) -> bool {
        self.file.stays(&self.after)
    }

    fn write(&self) -> Result<(), Failure> {
        if self.stays() {
            return Ok(());
        }
        let written = self.file.write(&self.after);
        written.map_err(|error| Failure::Refused(unusable("write", &self.path, &error)))
    }

    /// What was done.
    fn done(&self) -> Value {
        if self.stays() {
            self.entry("unchanged", self.why.as_deref())
        } else {
            self.entry(self.verb, None)
        }
    }

    /// How it is, where nothing is written.
    fn checked(&self) -> Value {
        match (self.stays(), self.file.exists()) {
            (true, _) => self.entry("unchanged", None),
            (false, true) => self.entry("differs", self.why.as_deref()),
            (false, false) => self.entry("missing", Some("there is no such file")),
        }
    }

    fn entry(&self, state: &str, why: Option<&str>) -> Value {
        let mut entry = Map::new();
        entry.insert("path".into(), self.path.as_str().into());
        entry.insert("state".into(), state.into());
        put(&mut entry, "why", why);
        let target = self.file.behind_link();
        put(
            &mut entry,
            "target",
            target.map(|target| target.display().to_string()),
        );
        Value::Object(entry)
    }
}

fn check(
    client: Client,
    agent: &str,
    standing: Standing,
    changes: &[Change],
    out: &mut Out,
) -> Result<u8, Failure> {
    let files: Vec<_> = changes.iter().map(Change::checked).collect();
    let missing = standing == Standing::Missing;
    let connected = !missing && changes.iter().all(Change::stays);
    let data = json!({
        "client": client.as_str(),
        "agent": agent,
        "agentMade": false,
        "agentMissing": missing,
        "files": files,
    });
    out.answer(&data, |data, style| {
        let mut page = listed(data, style);
        if missing {
            let agent = clean::line(agent);
            page.push_str(&format!("missing    agent {agent}\n"));
        }
        page
    })?;
    if !connected {
        let mut line = format!("Make it so: stead setup {}", client.as_str());
        if agent != client.as_str() {
            line.push_str(&format!(" --agent {}", clean::line(agent)));
        }
        out.note(&line);
    }
    Ok(u8::from(!connected))
}

/// Each file and what became of it, or how it is.
fn listed(data: &Value, style: Style) -> String {
    items(data, "files")
        .map(|file| {
            let mut line = format!(
                "{:<9}  {}",
                text(file, "state"),
                style.bold(&text(file, "path"))
            );
            let target = text(file, "target");
            if !target.is_empty() {
                line.push_str(&format!(" -> {target}"));
            }
            let why = text(file, "why");
            if !why.is_empty() {
                line.push_str(&format!(": {why}"));
            }
            line.push('\n');
            line
        })
        .collect()
}

/// Whether the agent has to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is there and needs no token.
    Local,
    /// There never was one of that name.
    Missing,
}

/// How it stands with the agent; one that cannot be used by its name alone is refused.
fn standing(backend: &dyn Backend, agent: &str) -> Result<Standing, Refusal> {
    let data = backend.call("agent_list", json!({}))?;
    let is = |agent: &Value, name: &str| agent.get(name).and_then(Value::as_bool) == Some(true);
    // A name belongs to one agent however it is written.
    let named: Vec<_> = items(&data, "agents")
        .filter(|known| {
            known
                .get("name")
                .and_then(Value::as_str)
                .is_some_and(|name| name.to_lowercase() == agent.to_lowercase())
        })
        .collect();
    let Some(live) = named.iter().find(|known| is(known, "live")) else {
        if named.is_empty() {
            return Ok(Standing::Missing);
        }
        return Err(unfit(
            agent,
            "is revoked",
            "Use another name with --agent OTHER; or give that name out again: stead agent add NAME --local.",
        ));
    };
    if is(live, "local") {
        return Ok(Standing::Local);
    }
    Err(unfit(
        agent,
        "works with a token, and a client's configuration is no place for one",
        "Use another name with --agent OTHER.",
    ))
}

fn unfit(agent: &str, why: &str, hint: &str) -> Refusal {
    Refusal::argument(
        "agent",
        format!("the agent {agent} {why}. Nothing was changed."),
        hint,
    )
    .with("given", agent)
}

fn unusable(doing: &str, path: &str, error: &io::Error) -> Refusal {
    Refusal::argument(
        "file",
        format!("cannot {doing} {path}: {error}."),
        "Check the path and its permissions, then run this again.",
    )
    .with("path", path)
}

/// What of our entry is another one.
fn differs(there: &Entry, wanted: &Entry) -> Option<String> {
    let mut fields = Vec::new();
    if there.command != wanted.command {
        fields.push("command");
    }
    if there.args != wanted.args {
        fields.push("args");
    }
    if wanted.typed && !there.typed {
        fields.push("type");
    }
    Some(match fields.as_slice() {
        // The field is there and says something else.
        [] => "`type` of the entry `stead` differs".to_owned(),
        fields => format!("`{}` of the entry `stead` differs", fields.join("`, `")),
    })
}

fn directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let dir = absolute("dir", given.unwrap_or(Path::new(".")))?;
    match fs::metadata(&dir) {
        Ok(found) if found.is_dir() => Ok(dir.into()),
        Ok(_) => Err(Failure::usage(
            "dir",
            format!("{dir} is no directory."),
            "Name the directory that the client is started in.",
        )),
        Err(error) => Err(Failure::file("dir", "find", &dir, &error)),
    }
}

/// This program, for a client that looks in no PATH.
fn program() -> Result<String, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::file("client", "find", "this program", &error))?;
    absolute("client", &program)
}

/// What the client passes on. It starts its servers with an environment of its own, so a home that
/// is not found without the environment is named.
fn arguments(agent: &str, home: &Path) -> Result<Vec<String>, Failure> {
    let mut args = vec!["mcp".to_owned(), "--agent".to_owned(), agent.to_owned()];
    if local::default_home_when_started().as_deref() != Some(home) {
        args.push("--home".to_owned());
        args.push(absolute("home", home)?);
    }
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Agents(Value);

    impl Backend for Agents {
        fn call(&self, method: &str, _: Value) -> Result<Value, Refusal> {
            assert_eq!(method, "agent_list");
            Ok(json!({ "agents": self.0 }))
        }
    }

    #[test]
    fn an_agent_is_used_made_or_refused() {
        let known = Agents(json!([
            {"name": "local", "live": true, "local": true},
            {"name": "ci", "live": true, "local": false},
            {"name": "gone", "live": false, "local": true},
            {"name": "again", "live": false, "local": true},
            {"name": "again", "live": true, "local": true},
        ]));
        let of = |name: &str| standing(&known, name);
        assert_eq!(of("Local").unwrap(), Standing::Local);
        assert_eq!(of("again").unwrap(), Standing::Local);
        assert_eq!(of("new").unwrap(), Standing::Missing);
        for (name, why) in [("ci", "a token"), ("gone", "revoked")] {
            let refusal = of(name).unwrap_err();
            assert!(refusal.message.contains(why), "{refusal:?}");
            assert!(refusal.hint.contains("--agent OTHER"));
        }
    }
}
