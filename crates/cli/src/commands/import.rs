//! Imports: a file in, its tasks to the node in bounded calls, an account of every line out.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read as _, Seek},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value, json};
use stead_doc::refusal::{Code, Refusal};

use crate::{
    args::{Import, ImportBeads},
    commands::Cx,
    failure::Failure,
    import::{
        Entry,
        beads::{People, Survey},
        lines::{FILE_BYTES, Lines},
    },
    output::{Style, show::text, table},
};

pub(super) fn import(cx: &mut Cx<'_>, args: &Import) -> Result<u8, Failure> {
    let Import::Beads(args) = args;
    let name = if args.file == "-" {
        "stdin"
    } else {
        &args.file
    };
    let failed = |error: io::Error| Failure::file("file", "read", name, &error);
    if args.file == "-" {
        return beads(
            cx,
            args,
            Cursor::new(whole(io::stdin().lock()).map_err(failed)?),
            &failed,
        );
    }
    let file = File::open(&args.file).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        beads(cx, args, BufReader::new(file), &failed)
    } else {
        // A pipe cannot be read twice.
        beads(cx, args, Cursor::new(whole(file).map_err(failed)?), &failed)
    }
}

/// What can be read only once, in memory; one byte more than a file may have is told there.
fn whole(source: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn beads(
    cx: &mut Cx<'_>,
    args: &ImportBeads,
    mut source: impl BufRead + Seek,
    failed: &dyn Fn(io::Error) -> Failure,
) -> Result<u8, Failure> {
    let people = people(cx)?;
    let mut survey = Survey::read(&mut source).map_err(failed)?;
    source.rewind().map_err(failed)?;
    let mut sending = Sending::new(args);
    let progress = progress(cx, survey.count());
    let mut lines = Lines::new(&mut source);
    let mut chunk = Chunk::default();
    while let Some(line) = lines.next().map_err(failed)? {
        if let Some(entry) = survey.entry(&line, &people) {
            if !chunk.has_room_for(&entry) {
                progress.inc(sending.send(cx, &mut survey, &mut chunk)?);
            }
            chunk.push(line.number, &entry);
        }
    }
    progress.inc(sending.send(cx, &mut survey, &mut chunk)?);
    progress.finish_and_clear();
    let data = sending.report(&survey);
    cx.out.answer(&data, rendered)?;
    remarks(cx, &data);
    Ok(0)
}

/// Who an issue can be assigned to. A credential that may not list them assigns to nobody.
fn people(cx: &Cx<'_>) -> Result<People, Failure> {
    let mut people = People::default();
    for (method, list) in [("member_list", "members"), ("agent_list", "agents")] {
        let data = match cx.backend.call(method, json!({})) {
            Ok(data) => data,
            Err(refusal) if refusal.code == Code::Forbidden => continue,
            Err(refusal) => return Err(refusal.into()),
        };
        for entry in table::items(&data, list) {
            let gone = ["revoked", "removed", "revokedAt", "removedAt"]
                .into_iter()
                .any(|name| {
                    entry
                        .get(name)
                        .is_some_and(|mark| *mark != Value::Null && *mark != Value::Bool(false))
                });
            if !gone && entry.get("live").and_then(Value::as_bool) != Some(false) {
                for name in ["name", "displayName", "email"] {
                    people.insert(entry.get(name).and_then(Value::as_str).unwrap_or_default());
                }
            }
        }
    }
    Ok(people)
}

fn progress(cx: &Cx<'_>, count: usize) -> ProgressBar {
    let target = if cx.out.is_watched() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("importing {bar:30} {pos}/{len}, {eta} left");
    ProgressBar::with_draw_target(Some(count as u64), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Tasks of one call, with the lines that they stand on.
#[derive(Default)]
struct Chunk {
    tasks: Vec<(u64, Value)>,
    bytes: usize,
}

impl Chunk {
    fn has_room_for(&self, entry: &Entry) -> bool {
        self.tasks.is_empty()
            || (self.tasks.len() < CALL_TASKS && self.bytes + size(entry) <= CALL_BYTES)
    }

    fn push(&mut self, line: u64, entry: &Entry) {
        self.bytes += size(entry);
        self.tasks.push((line, entry.to_json()));
    }
}

/// About the bytes of an entry as JSON: its texts, and something for each field.
fn size(entry: &Entry) -> usize {
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string().len(), str::len)
            + 32
    };
    entry.fields.values().map(text).sum::<usize>()
        + entry
            .comments
            .iter()
            .map(|comment| comment.body.len() + 128)
            .sum::<usize>()
        + entry.edges.len() * 64
}

/// What has been sent, and what came of it.
struct Sending<'a> {
    args: &'a ImportBeads,
    created: u64,
    updated: u64,
    unchanged: u64,
    kept_here: Vec<Value>,
}

impl<'a> Sending<'a> {
    fn new(args: &'a ImportBeads) -> Self {
        Self {
            args,
            created: 0,
            updated: 0,
            unchanged: 0,
            kept_here: Vec::new(),
        }
    }

    /// Sends a chunk and empties it; how many tasks it had.
    fn send(
        &mut self,
        cx: &Cx<'_>,
        survey: &mut Survey,
        chunk: &mut Chunk,
    ) -> Result<u64, Failure> {
        let tasks = std::mem::take(chunk).tasks;
        let count = tasks.len() as u64;
        if tasks.is_empty() {
            return Ok(0);
        }
        match self.call(cx, survey, &tasks) {
            Ok(()) => {}
            Err(refusal) if ends_all(&refusal) => return Err(self.interrupted(refusal).into()),
            // One of them is refused: find it, so that the others come in.
            Err(_) => {
                for task in &tasks {
                    match self.call(cx, survey, std::slice::from_ref(task)) {
                        Ok(()) => {}
                        Err(refusal) if ends_all(&refusal) => {
                            return Err(self.interrupted(refusal).into());
                        }
                        Err(refusal) => {
                            let name = text(&task.1, "name");
                            survey
                                .skipped
                                .push(task.0, Some(&name), format!("refused: {refusal}"));
                        }
                    }
                }
            }
        }
        Ok(count)
    }

    fn call(
        &mut self,
        cx: &Cx<'_>,
        survey: &mut Survey,
        tasks: &[(u64, Value)],
    ) -> Result<(), Refusal> {
        let mut map = Map::new();
        map.insert("projectId".into(), self.args.project.as_str().into());
        map.insert(
            "tasks".into(),
            tasks.iter().map(|(_, task)| task.clone()).collect(),
        );
        map.insert("dryRun".into(), self.args.dry_run.into());
        let data = cx.backend.call("import_tasks", Value::Object(map))?;
        for (index, result) in table::items(&data, "results").enumerate() {
            match result.get("outcome").and_then(Value::as_str) {
                Some("created") => self.created += 1,
                Some("updated") => self.updated += 1,
                Some("unchanged") => self.unchanged += 1,
                _ => {
                    let task = tasks.get(index);
                    let name = task.map(|(_, task)| text(task, "name"));
                    let error = result.get("error").unwrap_or(result);
                    let why = format!(
                        "refused: {} {}",
                        text(error, "code"),
                        text(error, "message")
                    );
                    survey
                        .skipped
                        .push(task.map_or(0, |(line, _)| *line), name.as_deref(), why);
                }
            }
            let kept = result.get("keptHere").and_then(Value::as_array);
            if let Some(fields) = kept.filter(|fields| !fields.is_empty()) {
                self.kept_here
                    .push(json!({ "id": result.get("id"), "fields": fields }));
            }
        }
        // The answers about comments come in the order of the tasks and of the comments in each.
        let sent = tasks.iter().flat_map(|(line, task)| {
            table::items(task, "comments").map(move |comment| (*line, comment))
        });
        for (result, (line, comment)) in table::items(&data, "comments").zip(sent) {
            if text(result, "outcome") == "refused" {
                let error = result.get("error").unwrap_or(result);
                let why = format!(
                    "a comment was refused: {} {}",
                    text(error, "code"),
                    text(error, "message")
                );
                survey
                    .problems
                    .push(line, Some(&text(comment, "name")), why);
            }
        }
        Ok(())
    }

    /// Says how far it came.
    fn interrupted(&self, refusal: Refusal) -> Refusal {
        let done = self.created + self.updated + self.unchanged;
        let mut refusal = refusal.with("imported", done);
        if done > 0 {
            refusal.hint.push_str(&format!(
                " {done} tasks were imported before; importing again is safe."
            ));
        }
        refusal
    }

    fn report(&self, survey: &Survey) -> Value {
        json!({
            "created": self.created,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "skipped": survey.skipped.to_json(),
            "problems": survey.problems.to_json(),
            "keptHere": self.kept_here,
            "dryRun": self.args.dry_run,
        })
    }
}

/// Whether the next call would be refused for the same reason.
fn ends_all(refusal: &Refusal) -> bool {
    let about_the_project =
        refusal.details.get("field").and_then(Value::as_str) == Some("projectId");
    about_the_project
        || matches!(
            refusal.code,
            Code::Forbidden
                | Code::HumanRequired
                | Code::Retry
                | Code::Unavailable
                | Code::UnknownProject
        )
}

fn rendered(data: &Value, style: Style) -> String {
    let length = |name: &str| {
        data.get(name)
            .and_then(Value::as_array)
            .map_or(0, Vec::len)
            .to_string()
    };
    let row = vec![
        text(data, "created"),
        text(data, "updated"),
        text(data, "unchanged"),
        length("skipped"),
        length("problems"),
    ];
    let mut out = table::table(
        &["CREATED", "UPDATED", "UNCHANGED", "SKIPPED", "REMARKS"],
        &[row],
        style,
    );
    if data.get("dryRun").and_then(Value::as_bool) == Some(true) {
        out.push_str("This is what would happen; nothing was written.\n");
    }
    out
}

/// What people should look at, on stderr.
fn remarks(cx: &mut Cx<'_>, data: &Value) {
    for (name, title) in [
        ("skipped", "Skipped"),
        ("problems", "Imported with a remark"),
    ] {
        let list: Vec<_> = table::items(data, name).collect();
        if list.is_empty() {
            continue;
        }
        cx.out.note(&format!("{title}:"));
        for remark in list.iter().take(SHOWN) {
            let line = text(remark, "line");
            let place = if line.is_empty() {
                String::new()
            } else {
                format!("line {line}: ")
            };
            let id = text(remark, "id");
            let id = if id.is_empty() { id } else { format!("{id}: ") };
            cx.out
                .note(&format!("  {place}{id}{}", text(remark, "what")));
        }
        if list.len() > SHOWN {
            cx.out.note(&format!(
                "  and {} more; --json lists them",
                list.len() - SHOWN
            ));
        }
    }
    let kept = table::items(data, "keptHere").count();
    if kept > 0 {
        cx.out.note(&format!(
            "{kept} tasks were changed here and keep what was changed; --json names the fields"
        ));
    }
}

/// Tasks of one call.
const CALL_TASKS: usize = 100;

/// Bytes of one call, unless a single task has more.
const CALL_BYTES: usize = 4 << 20;

/// Remarks of a kind that people see.
const SHOWN: usize = 50;

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use crate::commands::testing::{Ran, ran};

    /// A file that is gone afterwards.
    struct Sample(PathBuf);

    impl Sample {
        fn new(name: &str, content: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("stead-cli-test-{}-{name}", std::process::id()));
            fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for Sample {
        fn drop(&mut self) {
            drop(fs::remove_file(&self.0));
        }
    }

    /// Imports so many issues; those with this title are refused.
    fn import(name: &str, content: &str, options: &[&str], refuse: &str, code: Code) -> Ran {
        let sample = Sample::new(name, content);
        let file = sample.0.to_str().unwrap();
        ran(
            &[&["import", "beads", file, "-p", "web"], options].concat(),
            |method, arguments| {
                if method != "import_tasks" {
                    return Ok(json!({"members": [{"id": "M", "name": "Ada"}], "agents": []}));
                }
                let tasks = arguments["tasks"].as_array().unwrap();
                assert!(tasks.len() <= CALL_TASKS);
                if tasks.iter().any(|task| task["fields"]["title"] == refuse) {
                    return Err(Refusal::new(code, "no.", "Mend it."));
                }
                let results: Vec<_> = tasks
                    .iter()
                    .map(|_| json!({"id": "T", "outcome": "created", "keptHere": []}))
                    .collect();
                Ok(json!({ "results": results }))
            },
        )
    }

    fn issues(count: usize) -> String {
        (0..count)
            .map(|n| format!("{{\"id\":\"i{n}\",\"title\":\"t{n}\",\"assignee\":\"ada\"}}\n"))
            .collect()
    }

    #[test]
    fn tasks_travel_in_bounded_calls() {
        let ran = import("chunks", &issues(250), &["--dry-run"], "", Code::TooLarge);
        let calls: Vec<_> = ran
            .calls
            .iter()
            .filter(|(method, _)| method == "import_tasks")
            .collect();
        let counts: Vec<_> = calls
            .iter()
            .map(|(_, call)| call["tasks"].as_array().unwrap().len())
            .collect();
        assert_eq!(counts, [100, 100, 50]);
        assert_eq!(calls[0].1["dryRun"], true);
        assert_eq!(calls[0].1["tasks"][0]["fields"]["assignee"], "ada");
        assert_eq!(
            ran.stdout,
            "CREATED  UPDATED  UNCHANGED  SKIPPED  REMARKS\n250      0        0          0        0\n\
             This is what would happen; nothing was written.\n"
        );
    }

    #[test]
    fn one_that_is_refused_does_not_keep_the_others_out() {
        let content = issues(30) + "nonsense\n";
        let ran = import("refused", &content, &["--json"], "t7", Code::TooLarge);
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(answer["data"]["created"], 29);
        let skipped = answer["data"]["skipped"].as_array().unwrap();
        assert_eq!(skipped.len(), 2);
        assert_eq!(
            (&skipped[1]["line"], &skipped[1]["id"]),
            (&json!(8), &json!("beads:i7"))
        );
        assert_eq!(ran.code, 0);
    }

    #[test]
    fn a_refused_comment_is_told() {
        let content = r#"{"id":"a","title":"t","comments":[{"text":"one"},{"text":"two"}]}"#;
        let sample = Sample::new("comments", content);
        let file = sample.0.to_str().unwrap();
        let ran = ran(
            &["import", "beads", file, "-p", "web", "--json"],
            |method, _| {
                if method != "import_tasks" {
                    return Err(Refusal::new(Code::Forbidden, "no.", "Ask."));
                }
                Ok(json!({
                    "results": [{"id": "T", "outcome": "created"}],
                    "comments": [{"outcome": "created"},
                        {"outcome": "refused", "error": {"code": "TOO_LARGE", "message": "it is long."}}],
                }))
            },
        );
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            answer["data"]["problems"],
            json!([{"line": 1, "id": "beads:a#comment-2", "what": "a comment was refused: TOO_LARGE it is long."}])
        );
    }

    #[test]
    fn what_would_refuse_all_ends_it() {
        let ran = import("unknown", &issues(150), &[], "t120", Code::UnknownProject);
        assert_eq!(ran.code, 1);
        assert!(
            ran.stderr.contains("100 tasks were imported before"),
            "{}",
            ran.stderr
        );
        let missing = ran_missing();
        assert_eq!(missing.code, 2);
    }

    fn ran_missing() -> Ran {
        ran(
            &["import", "beads", "/nonexistent.jsonl", "-p", "web"],
            |_, _| Ok(json!({})),
        )
    }
}
