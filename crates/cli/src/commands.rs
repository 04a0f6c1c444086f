//! The commands: arguments into method calls, answers into output.

mod batch;
mod import;
mod node;
mod people;
mod prime;
mod read;
mod setup;
mod sprint;
mod store;
mod write;

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use serde_json::{Map, Value, json};
use stead_doc::{
    arguments,
    refusal::{Code, Refusal},
};

use crate::{
    args::{Cli, Command, Completions, Global, Mutation},
    bridge,
    client::{self, Backend, Identity},
    failure::Failure,
    local,
    output::{Out, Style, page},
    text::Texts,
};

/// Runs a command; the exit code.
pub(crate) fn run(cli: Cli, out: &mut Out) -> Result<u8, Failure> {
    let Cli {
        global,
        by,
        command,
    } = cli;
    match command {
        Command::Completions(args) => completions(&args, out),
        Command::Up(args) => node::up(&home(&global)?, &args, out),
        Command::Init(args) => node::init(&home(&global)?, &args, out),
        Command::Restore(args) => node::restore(&home(&global)?, &args, out),
        Command::Node(args) => {
            node::node(&home(&global)?, &Identity::new(global.agent), &args, out)
        }
        Command::Mcp(args) => bridge::run(bridge::Options {
            home: bridge::absolute_home(&home(&global)?),
            identity: Identity::new(global.agent).or_agent(local::FIRST_AGENT),
            toolsets: args.toolsets,
            read_only: args.read_only,
        }),
        // It says for whom to set up, where others say as whom to act.
        Command::Setup(args) => setup::setup(&home(&global)?, global.agent.as_deref(), &args, out),
        command => {
            let home = home(&global)?;
            let identity = Identity::new(global.agent);
            let backend = client::connect(&home, &identity)?;
            let mut cx = Cx::new(backend.as_ref(), out, by);
            // With a token the name says nothing.
            cx.agent = identity.agent.filter(|_| identity.token.is_none());
            dispatch(&mut cx, command)
        }
    }
}

fn dispatch(cx: &mut Cx<'_>, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Create(args) => write::create(cx, &args),
        Command::List(args) => read::list(cx, &args),
        Command::Ready(filters) => read::ready(cx, &filters),
        Command::Search(args) => read::search(cx, &args),
        Command::Show(args) => read::show(cx, &args),
        Command::Update(args) => write::update(cx, &args),
        Command::Move(args) => write::move_to(cx, &args),
        Command::Claim(args) => write::claim(cx, &args),
        Command::Release(args) => write::release(cx, &args),
        Command::Close(args) => write::close(cx, &args),
        Command::Comment(args) => write::comment(cx, &args),
        Command::Block(args) => write::block(cx, &args),
        Command::Unblock(args) => write::unblock(cx, &args),
        Command::Dep(args) => write::dep(cx, &args),
        Command::Sprint(args) => sprint::sprint(cx, &args),
        Command::History(args) => read::history(cx, &args),
        Command::Conflicts(args) => read::conflicts(cx, &args),
        Command::Resolve(args) => write::resolve(cx, &args),
        Command::Archive(args) => write::archive(cx, &args),
        Command::Batch(args) => batch::batch(cx, &args),
        Command::Project(args) => people::project(cx, &args),
        Command::Member(args) => people::member(cx, &args),
        Command::Agent(args) => people::agent(cx, &args),
        Command::Prime(args) => prime::prime(cx, &args),
        Command::Import(args) => import::import(cx, &args),
        Command::Export(args) => store::export(cx, &args),
        Command::Backup(args) => store::backup(cx, &args),
        Command::Doctor(args) => store::doctor(cx, &args),
        Command::Compact => store::compact(cx),
        Command::Completions(_)
        | Command::Up(_)
        | Command::Init(_)
        | Command::Restore(_)
        | Command::Mcp(_)
        | Command::Setup(_)
        | Command::Node(_) => Ok(0),
    }
}

/// What a command works with.
pub(crate) struct Cx<'a> {
    /// Who answers.
    pub(crate) backend: &'a dyn Backend,
    /// Where answers go.
    pub(crate) out: &'a mut Out,
    /// Reads long texts.
    pub(crate) texts: Texts,
    /// The agent that was named, where its name is all that it acts by.
    pub(crate) agent: Option<String>,
    by: Option<String>,
}

impl<'a> Cx<'a> {
    /// With the label that was given before the command.
    pub(crate) fn new(backend: &'a dyn Backend, out: &'a mut Out, by: Option<String>) -> Self {
        Self {
            backend,
            out,
            texts: Texts::default(),
            agent: None,
            by,
        }
    }

    /// Calls a method and prints its answer.
    pub(crate) fn show(
        &mut self,
        method: &str,
        arguments: Map<String, Value>,
        rendered: impl FnOnce(&Value, Style) -> String,
    ) -> Result<Value, Failure> {
        let data = self.backend.call(method, Value::Object(arguments))?;
        self.out.answer(&data, rendered)?;
        Ok(data)
    }

    /// The label to note beside the credential.
    pub(crate) fn label(&self, given: Option<&String>) -> Option<String> {
        given.or(self.by.as_ref()).cloned()
    }

    /// Does one action of `task_mutate` and prints what was written.
    pub(crate) fn mutate(&mut self, action: Action<'_>) -> Result<Value, Failure> {
        let data = self.send(action)?;
        self.out.answer(&data, page::written)?;
        Ok(data)
    }

    /// Does one action of `task_mutate`.
    pub(crate) fn send(&mut self, action: Action<'_>) -> Result<Value, Failure> {
        let Action {
            name,
            mut map,
            revision,
            mutation,
        } = action;
        map.insert("action".into(), name.into());
        put(&mut map, "by", self.label(mutation.by.as_ref()));
        put(&mut map, "idempotencyKey", mutation.idempotency_key.clone());
        let mut used = None;
        match revision {
            Based::Nothing => {}
            Based::Given(revision) => put(&mut map, "revision", revision.cloned()),
            Based::Current {
                given: Some(revision),
                ..
            } => {
                put(&mut map, "revision", Some(revision.clone()));
            }
            Based::Current { given: None, id } => {
                let revision = self.revision_of(id)?;
                map.insert("revision".into(), revision.as_str().into());
                used = Some(revision);
            }
        }
        let mut data = self.backend.call("task_mutate", Value::Object(map))?;
        if let Some(revision) = used {
            self.out.note(&format!("used revision {revision}"));
            if let Some(data) = data.as_object_mut() {
                data.insert("usedRevision".into(), revision.into());
            }
        }
        Ok(data)
    }

    /// The revision of an object as it is now.
    fn revision_of(&self, id: &str) -> Result<String, Failure> {
        full_id("id", id)?;
        let data = self
            .backend
            .call("task_get", json!({ "id": id, "view": "summary" }))?;
        let revision = ["task", "sprint"]
            .into_iter()
            .find_map(|name| data.get(name)?.get("revision")?.as_str());
        revision.map(str::to_owned).ok_or_else(|| {
            Failure::Refused(Refusal::new(
                Code::UnknownId,
                format!("{id} was not found here."),
                "Copy the id from a result.",
            ))
        })
    }
}

/// One action of `task_mutate` in the making.
pub(crate) struct Action<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its arguments so far.
    pub(crate) map: Map<String, Value>,
    /// What it is based on.
    pub(crate) revision: Based<'a>,
    /// What every write has.
    pub(crate) mutation: &'a Mutation,
}

/// The revision that a write is based on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Based<'a> {
    /// It needs none.
    Nothing,
    /// It is checked when given.
    Given(Option<&'a String>),
    /// It is needed: the current one of this object where none is given.
    Current {
        /// The object.
        id: &'a str,
        /// What was given.
        given: Option<&'a String>,
    },
}

/// An argument, where it is given.
pub(crate) fn put(map: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(name.to_owned(), value.into());
    }
}

/// Several values, where there are any.
pub(crate) fn put_list(map: &mut Map<String, Value>, name: &str, values: &[String]) {
    if !values.is_empty() {
        map.insert(name.to_owned(), json!(values));
    }
}

/// A yes, where it is one.
pub(crate) fn put_flag(map: &mut Map<String, Value>, name: &str, yes: bool) {
    if yes {
        map.insert(name.to_owned(), true.into());
    }
}

/// What names something or nothing: `none` and the empty text clear the field.
pub(crate) fn nullable(text: &str) -> Value {
    match text.trim() {
        "" | "none" => Value::Null,
        text => text.into(),
    }
}

/// Writes name what they write in full.
pub(crate) fn full_id(field: &str, id: &str) -> Result<(), Failure> {
    match arguments::id(field, &id.into()) {
        Ok(_) => Ok(()),
        Err(mut refusal) => {
            refusal.hint = "Writes take the whole id; copy it from a result.".into();
            Err(Failure::Refused(refusal))
        }
    }
}

/// A path that means the same to a node with another working directory.
pub(crate) fn absolute(field: &str, path: &Path) -> Result<String, Failure> {
    let shown = path.display().to_string();
    let absolute =
        std::path::absolute(path).map_err(|error| Failure::file(field, "find", &shown, &error))?;
    absolute
        .into_os_string()
        .into_string()
        .map_err(|_| Failure::usage(field, format!("{shown} is not UTF-8."), "Use another name."))
}

pub(crate) fn home(global: &Global) -> Result<PathBuf, Failure> {
    let home = match &global.home {
        Some(home) if !home.as_os_str().is_empty() => Some(home.clone()),
        _ => local::default_home(),
    };
    let home = home.ok_or_else(|| {
        Failure::usage(
            "home",
            "the environment names no home directory.",
            "Name one with --home or STEAD_HOME.",
        )
    })?;
    absolute("home", &home).map(PathBuf::from)
}

fn completions(args: &Completions, out: &mut Out) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stead", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    out.answer(
        &json!({ "shell": args.shell.to_string(), "script": script }),
        |_, _| script.clone(),
    )?;
    Ok(0)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::RefCell;

    use clap::Parser as _;

    use super::*;
    use crate::output::testing::captured;

    /// A core that notes what it is asked and answers from a function.
    pub(crate) struct Fake<F> {
        answer: F,
        calls: RefCell<Vec<(String, Value)>>,
    }

    impl<F: Fn(&str, &Value) -> Result<Value, Refusal>> Backend for Fake<F> {
        fn call(&self, method: &str, arguments: Value) -> Result<Value, Refusal> {
            let answer = (self.answer)(method, &arguments);
            self.calls.borrow_mut().push((method.to_owned(), arguments));
            answer
        }
    }

    /// What a command line led to.
    #[derive(Debug)]
    pub(crate) struct Ran {
        pub(crate) code: u8,
        pub(crate) stdout: String,
        pub(crate) stderr: String,
        pub(crate) calls: Vec<(String, Value)>,
    }

    impl Ran {
        /// The arguments of the only call of a method.
        pub(crate) fn call(&self, method: &str) -> &Value {
            let mut found = self.calls.iter().filter(|(name, _)| name == method);
            let call = found
                .next()
                .unwrap_or_else(|| panic!("no {method} in {self:?}"));
            assert!(found.next().is_none(), "more than one {method}");
            &call.1
        }
    }

    /// Runs a command line, its words separated by `|` or spaces, against answers.
    pub(crate) fn ran(
        line: &[&str],
        answer: impl Fn(&str, &Value) -> Result<Value, Refusal>,
    ) -> Ran {
        let fake = Fake {
            answer,
            calls: RefCell::default(),
        };
        let words = std::iter::once(&"stead").chain(line);
        let cli = Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let (mut out, stdout, stderr) = captured(cli.global.json);
        let ended = dispatch(&mut Cx::new(&fake, &mut out, cli.by), cli.command);
        let code = ended.unwrap_or_else(|failure| out.failure(&failure));
        Ran {
            code,
            stdout: stdout.text(),
            stderr: stderr.text(),
            calls: fake.calls.into_inner(),
        }
    }

    /// A well-formed id.
    pub(crate) fn id(name: &str) -> String {
        stead_doc::id::ObjectId::derived(stead_doc::id::DocumentId([7; 16]), name).to_string()
    }
}
