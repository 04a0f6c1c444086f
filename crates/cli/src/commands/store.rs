//! The store as a whole: out, saved, checked.

use std::{
    fs::{self, DirBuilder, File},
    io::Read as _,
    path::PathBuf,
    time::SystemTime,
};

use serde_json::{Map, Value};

use crate::{
    args::{Backup, Doctor, Export, Format},
    commands::{Cx, absolute, put, put_flag},
    failure::Failure,
    output::{
        Style, page,
        show::{first_text, text},
        table::items,
    },
};

pub(super) fn export(cx: &mut Cx<'_>, args: &Export) -> Result<u8, Failure> {
    let mut map = Map::new();
    map.insert("format".into(), args.format.as_str().into());
    put(&mut map, "projectId", args.project.clone());
    if let Some(path) = &args.output {
        let path = absolute("output", path)?;
        map.insert("path".into(), path.as_str().into());
        cx.show("export", map, |data, style| saved(data, &path, style))?;
        return Ok(0);
    }
    if cx.out.is_json() || args.format == Format::Automerge {
        let why = if cx.out.is_json() {
            "stdout is taken by the JSON answer."
        } else {
            "this format is not for a terminal."
        };
        return Err(Failure::usage("output", why, "Name a file with --output."));
    }
    let scratch = Scratch::new()?;
    let path = scratch.0.join("export");
    map.insert("path".into(), absolute("output", &path)?.into());
    cx.backend.call("export", Value::Object(map))?;
    let shown = path.display().to_string();
    let read = |error| Failure::file("output", "read", &shown, &error);
    let mut file = File::open(&path).map_err(read)?;
    let mut chunk = vec![0; 64 << 10];
    loop {
        match file.read(&mut chunk).map_err(read)? {
            0 => break,
            count => cx.out.bytes(chunk.get(..count).unwrap_or_default())?,
        }
    }
    cx.out.text("")?;
    Ok(0)
}

pub(super) fn backup(cx: &mut Cx<'_>, args: &Backup) -> Result<u8, Failure> {
    let path = absolute("file", &args.file)?;
    let map = Map::from_iter([("path".to_owned(), path.as_str().into())]);
    cx.show("backup", map, |data, style| saved(data, &path, style))?;
    cx.out
        .note("Restore it with: stead --home NEW-HOME restore FILE");
    Ok(0)
}

fn saved(data: &Value, path: &str, style: Style) -> String {
    let shown = text(&serde_json::json!({ "path": path }), "path");
    let mut rest = data.clone();
    if let Some(rest) = rest.as_object_mut() {
        rest.remove("path");
    }
    format!("{}\n{}", style.bold(&shown), page::fields(&rest, style))
}

pub(super) fn doctor(cx: &mut Cx<'_>, args: &Doctor) -> Result<u8, Failure> {
    let mut map = Map::new();
    put_flag(&mut map, "rebuild", args.rebuild);
    let data = cx.show("doctor", map, diagnosis)?;
    let sound = data.get("ok").and_then(Value::as_bool) != Some(false)
        && items(&data, "problems").next().is_none();
    Ok(if sound { 0 } else { 3 })
}

fn diagnosis(data: &Value, style: Style) -> String {
    let mut out = String::new();
    for problem in items(data, "problems") {
        out.push_str(&format!(
            "{}  {}\n",
            style.red(&first_text(problem, &["what", "message"])),
            text(problem, "where")
        ));
        let hint = text(problem, "hint");
        if !hint.is_empty() {
            out.push_str(&format!("  {hint}\n"));
        }
    }
    if out.is_empty() {
        out.push_str("No problems found.\n");
    }
    if let Some(counts) = data.get("counts") {
        out.push_str(&page::fields(counts, style));
    }
    out
}

pub(super) fn compact(cx: &mut Cx<'_>) -> Result<u8, Failure> {
    cx.show("compact", Map::new(), |data, style| {
        match page::fields(data, style) {
            lines if lines.is_empty() => "compacted".into(),
            lines => lines,
        }
    })?;
    Ok(0)
}

/// A directory of our own for an export on its way to stdout, gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("stead-export-{}-{}", std::process::id(), now.as_nanos());
        let path = std::env::temp_dir().join(name);
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        // Fails where the name is taken, so nobody can put a directory of theirs in its place.
        builder.create(&path).map_err(|error| {
            Failure::file("output", "make", &path.display().to_string(), &error)
        })?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left lies in a directory that the system clears.
        drop(fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::commands::testing::ran;

    #[test]
    fn an_export_reaches_stdout_through_a_file_of_its_own() {
        let to_stdout = ran(&["export", "--format", "beads"], |_, arguments| {
            std::fs::write(arguments["path"].as_str().unwrap(), "{\"id\":1}\n").unwrap();
            Ok(json!({}))
        });
        assert_eq!(
            (to_stdout.code, to_stdout.stdout.as_str()),
            (0, "{\"id\":1}\n")
        );
        let path = to_stdout.call("export")["path"].as_str().unwrap();
        assert!(!std::path::Path::new(path).exists());
        for refused in [["export", "--json"], ["export", "--format=automerge"]] {
            assert_eq!(ran(&refused, |_, _| Ok(json!({}))).code, 2);
        }
        let to_file = ran(&["export", "-o", "x.json", "-p", "web"], |_, _| {
            Ok(json!({"tasks": 3}))
        });
        let call = to_file.call("export");
        assert!(call["path"].as_str().unwrap().ends_with("x.json"));
        assert_eq!(call["projectId"], "web");
    }

    #[test]
    fn a_sick_store_exits_with_three() {
        let sick = ran(&["doctor"], |_, _| {
            Ok(
                json!({"ok": false, "problems": [{"what": "view differs", "where": "task T", "hint": "Rebuild."}], "counts": {"tasks": 2}}),
            )
        });
        assert_eq!(sick.code, 3);
        assert_eq!(
            sick.stdout,
            "view differs  task T\n  Rebuild.\n    tasks  2\n"
        );
        let sound = ran(&["doctor", "--rebuild"], |_, _| {
            Ok(json!({"ok": true, "problems": []}))
        });
        assert_eq!(
            (sound.code, sound.stdout.as_str()),
            (0, "No problems found.\n")
        );
        assert_eq!(*sound.call("doctor"), json!({"rebuild": true}));
    }
}
