//! Damage is named and refused, never opened as empty.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};

use crate::stead::{Home, Random, Running, bytes_of, text};

/// A home with some work in it.
fn worked_in() -> Home {
    let home = Home::with_project("web");
    let file: String = (0..60)
        .map(|n| {
            format!(
                "{{\"id\":\"i{n}\",\"title\":\"issue {n}\",\"description\":\"{}\"}}\n",
                "text ".repeat(40)
            )
        })
        .collect();
    let file = home.file("issues.jsonl", file);
    home.data(&["import", "beads", &file, "-p", "web"]);
    home
}

/// Damages the files of a store in one way, and sees it refused with a reason that says this, the
/// damaged file left as it was, and the others as good as before.
fn refused(damage: impl Fn(&Path), says: &[&str]) {
    let home = worked_in();
    let truth = home.export();
    let store = home.store();
    let whole = bytes_of(&store);
    damage(&store);
    let before = bytes_of(&store);
    for args in [
        &["list"][..],
        &["doctor"],
        &["create", "x", "-p", "web"],
        &["node", "run"],
        &["up"],
        &["export", "-o", "out"],
    ] {
        let error = home.json(args).failed(3, args);
        assert_eq!(error["code"], "UNAVAILABLE", "{args:?}: {error}");
        let message = text(&error, "message");
        assert!(
            says.iter().any(|words| message.contains(words)),
            "{args:?}: {message}"
        );
        assert!(error.to_string().contains("restore"), "{args:?}: {error}");
    }
    assert!(!home.beside("out").exists());
    let after = bytes_of(&store);
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before), "files came or went");
    for (name, bytes) in whole {
        // What is a database opens, and redb notes in it that it was open.
        if before.get(&name) != Some(&bytes) {
            let opens = before
                .get(&name)
                .is_some_and(|now| now.len() == bytes.len() && now[..9] == bytes[..9]);
            assert!(
                opens || after.get(&name) == before.get(&name),
                "{name} was changed by an open that was refused"
            );
            fs::write(store.join(&name), bytes).unwrap();
        }
    }
    assert_eq!(home.export(), truth, "more was damaged");
    assert_eq!(home.data(&["doctor"])["ok"], true);
}

fn cut(path: &Path, keep: impl Fn(u64) -> u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(keep(length)).unwrap();
}

#[test]
fn a_truncated_workspace_file_is_refused() {
    for part in [2, 10] {
        refused(
            |store| cut(&store.join("workspace.redb"), |length| length / part),
            &["database failed", "damaged", "workspace.redb"],
        );
    }
    refused(
        |store| cut(&store.join("workspace.redb"), |_| 100),
        &["database failed", "damaged", "workspace.redb"],
    );
}

#[test]
fn a_truncated_packed_file_is_refused() {
    refused(
        |store| cut(&store.join("packed.redb"), |length| length / 2),
        &["database failed", "damaged", "packed.redb"],
    );
    refused(
        |store| cut(&store.join("packed.redb"), |_| 1),
        &["database failed", "damaged", "packed.redb"],
    );
}

#[test]
fn an_empty_file_is_refused() {
    for name in ["workspace.redb", "packed.redb"] {
        refused(|store| cut(&store.join(name), |_| 0), &["gone or empty"]);
    }
}

#[test]
fn a_missing_file_is_refused_and_not_made_anew() {
    for name in ["workspace.redb", "packed.redb"] {
        refused(
            |store| fs::remove_file(store.join(name)).unwrap(),
            &["gone or empty"],
        );
    }
}

#[test]
fn both_files_missing_is_no_empty_store() {
    let gone = |store: &Path| {
        for name in ["workspace.redb", "packed.redb"] {
            fs::remove_file(store.join(name)).unwrap();
        }
    };
    refused(gone, &["there is no store here"]);
}

#[test]
fn a_header_of_garbage_is_refused() {
    for name in ["workspace.redb", "packed.redb"] {
        for length in [64, 320, 4096] {
            refused(
                |store| {
                    let mut bytes = fs::read(store.join(name)).unwrap();
                    let mut random = Random(length as u64);
                    for byte in &mut bytes[..length] {
                        *byte = random.next() as u8;
                    }
                    fs::write(store.join(name), bytes).unwrap();
                },
                &["database failed", "damaged", name],
            );
        }
    }
}

#[test]
fn a_file_that_is_something_else_is_refused() {
    for name in ["workspace.redb", "packed.redb"] {
        refused(
            |store| fs::write(store.join(name), "SQLite format 3\0 or so".repeat(1000)).unwrap(),
            &["database failed", "damaged", name],
        );
    }
}

#[test]
fn the_packed_file_of_another_home_is_refused() {
    let other = worked_in();
    let theirs = fs::read(other.store().join("packed.redb")).unwrap();
    refused(
        |store| fs::write(store.join("packed.redb"), &theirs).unwrap(),
        &["of different stores"],
    );
}

#[test]
fn a_damaged_device_key_or_token_is_named() {
    let home = worked_in();
    let key = home.path().join("device.key");
    let whole = fs::read(&key).unwrap();
    for damage in [&b""[..], b"nonsense", &whole[..20], &[0xff; 64]] {
        fs::write(&key, damage).unwrap();
        let error = home.json(&["list"]).failed(3, &["list"]);
        assert!(text(&error, "message").contains("device.key"), "{error}");
    }
    fs::remove_file(&key).unwrap();
    let error = home.json(&["list"]).failed(3, &["list"]);
    assert!(text(&error, "message").contains("device.key"), "{error}");
    assert!(!key.exists());
    fs::write(&key, &whole).unwrap();
    home.data(&["list"]);
    fs::write(home.path().join("token"), "short").unwrap();
    let error = home.json(&["node", "run"]).failed(3, &["node", "run"]);
    assert!(text(&error, "message").contains("token"), "{error}");
}

#[test]
fn another_devices_key_is_refused_and_does_not_write() {
    let home = worked_in();
    let other = Home::with_project("web");
    let before = home.export();
    let key = home.path().join("device.key");
    let own = fs::read(&key).unwrap();
    fs::copy(other.path().join("device.key"), &key).unwrap();
    let args = ["create", "x", "-p", "web"];
    let answer = home.json(&args);
    assert_ne!(answer.code, 0, "{answer:?}");
    fs::write(&key, own).unwrap();
    assert_eq!(home.export(), before);
}

#[test]
fn a_damaged_lease_costs_an_incarnation_and_nothing_else() {
    let home = worked_in();
    let before = home.export();
    for damage in [
        &b""[..],
        b"{",
        b"\xff\xff",
        b"{\"generation\":\"00\",\"commit\":9999,\"clean\":true}",
    ] {
        fs::write(home.store().join("lease.json"), damage).unwrap();
        assert_eq!(home.export(), before);
        assert_eq!(home.data(&["doctor"])["ok"], true);
    }
    home.create("web", "And it writes", &[]);
    assert_eq!(home.data(&["doctor"])["ok"], true);
}

/// The answer to a question that damage may reach: the truth, or a refusal; never a crash.
fn truth_or_refusal(home: &Home, truth: &str, about: &str) {
    let export = home.run(&["export"]);
    assert!([0, 1, 3].contains(&export.code), "{about}: {export:?}");
    let doctor = home.run(&["doctor"]);
    assert!([0, 3].contains(&doctor.code), "{about}: {doctor:?}");
    if export.code == 0 && export.stdout != truth {
        assert_eq!(
            doctor.code, 3,
            "{about}: other values, and doctor finds nothing"
        );
    }
}

/// How many bytes are flipped in each file: some here, more where kills are many.
fn flips() -> u64 {
    std::env::var("STEAD_KILLS").map_or(20, |text| text.parse::<u64>().unwrap().max(20))
}

#[test]
fn a_flipped_byte_anywhere_is_found_or_does_no_harm() {
    let home = worked_in();
    let truth = home.export();
    let whole = bytes_of(&home.store());
    let mut random = Random(99);
    for name in ["workspace.redb", "packed.redb"] {
        let bytes = &whole[name];
        // Where something is: flips in unused pages show nothing.
        let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        for _ in 0..flips() {
            let at = used[random.below(used.len() as u64) as usize];
            let bit = 1 << random.below(8);
            for (name, bytes) in &whole {
                fs::write(home.store().join(name), bytes).unwrap();
            }
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            fs::write(home.store().join(name), damaged).unwrap();
            truth_or_refusal(&home, &truth, &format!("{name}, byte {at}, bit {bit}"));
        }
    }
}

#[test]
fn a_second_process_waits_for_the_store_and_then_says_who_has_it() {
    let home = worked_in();
    let node = home.node();
    // Without its record nobody finds the node, and the store is taken.
    fs::remove_file(home.path().join("node.json")).unwrap();
    let begun = std::time::Instant::now();
    let list = Running::spawn(home.command(&["--json", "list"]), b"");
    let second = Running::spawn(home.command(&["--json", "node", "run"]), b"");
    for one in [list, second] {
        let error = one.finish().answer().failed(3, &["list"]);
        assert_eq!(error["code"], "UNAVAILABLE");
        assert!(
            text(&error, "message").contains("another process has the store open"),
            "{error}"
        );
        assert!(text(&error, "hint").contains("stead node stop"), "{error}");
    }
    assert!(begun.elapsed().as_secs() >= 9, "it did not wait");
    node.data("status", json!({}));
}

#[test]
fn a_restore_from_a_file_that_is_not_there_leaves_nothing_behind() {
    let home = worked_in();
    let other = home.beside("other");
    let args = ["--home", other.to_str().unwrap(), "restore", "/nonexistent"];
    assert_eq!(home.json(&args).code, 3);
    assert!(
        !other.exists()
            || !other
                .join("workspaces")
                .read_dir()
                .is_ok_and(|mut dir| dir.next().is_some())
    );
}

#[test]
fn a_whole_backup_is_restored_with_an_equal_export() {
    let home = worked_in();
    let node = home.node();
    let task = home.all(&["list"])[0].clone();
    home.data(&["comment", text(&task, "id"), "Said before"]);
    let agent = home.data(&["agent", "add", "claude", "--local"]);
    let backup = home.beside("kept.stead");
    let saved = home.data(&["backup", backup.to_str().unwrap()]);
    assert_eq!(saved["path"], backup.to_str().unwrap());
    let truth = home.export();
    // Over the node's shoulder more is written, which the backup does not hold.
    home.create("web", "After", &[]);
    drop(node);

    let other = home.beside("restored");
    let other = other.to_str().unwrap();
    let restored = home.data(&["--home", other, "restore", backup.to_str().unwrap()]);
    assert_eq!(restored["changes"], saved["changes"]);
    assert_eq!(home.text(&["--home", other, "export"]), truth);
    assert_eq!(home.data(&["--home", other, "doctor"])["ok"], true);
    assert_eq!(
        home.data(&["--home", other, "agent", "list"])["agents"][0],
        agent["agent"]
    );
    let found = home.data(&["--home", other, "search", "issue", "59"]);
    assert_eq!(found["tasks"][0]["title"], "issue 59");

    // It writes under another incarnation: never the same actor and seq for two changes.
    let before = actors(&truth);
    let made = home.data(&[
        "--home",
        other,
        "create",
        "In the restored one",
        "-p",
        "web",
    ]);
    let new = home.data(&["create", "In the old one", "-p", "web"]);
    let tag = |value: &Value| {
        let revision = text(&value["task"], "revision");
        revision
            .split_once('.')
            .unwrap()
            .1
            .get(..6)
            .unwrap()
            .to_owned()
    };
    assert_ne!(tag(&made), tag(&new));
    let after = actors(&home.text(&["--home", other, "export"]));
    assert_eq!(after.difference(&before).count(), 1, "{before:?} {after:?}");
    assert_eq!(home.data(&["--home", other, "doctor"])["ok"], true);
    // A workspace is not restored over another.
    let error = home
        .json(&["restore", backup.to_str().unwrap()])
        .failed(3, &["restore"]);
    assert!(
        text(&error, "message").contains("holds a workspace already"),
        "{error}"
    );
}

/// The actors that wrote what an export shows.
fn actors(export: &str) -> std::collections::BTreeSet<String> {
    let mut found = std::collections::BTreeSet::new();
    for line in export.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        for values in object["fields"].as_object().unwrap().values() {
            for value in values.as_array().unwrap() {
                // One incarnation has an actor in each document; the project's alone is looked at.
                if object["fields"]["kind"][0]["value"] == "task" {
                    found.insert(text(value, "op").split_once('@').unwrap().1.to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn a_cut_or_flipped_backup_is_refused_and_leaves_no_workspace() {
    let home = worked_in();
    let backup = home.beside("kept.stead");
    home.data(&["backup", backup.to_str().unwrap()]);
    let whole = fs::read(&backup).unwrap();
    let mut random = Random(8);
    let mut damaged: Vec<(String, Vec<u8>)> = vec![
        ("empty".into(), Vec::new()),
        ("text".into(), b"not a backup".to_vec()),
        ("one byte short".into(), whole[..whole.len() - 1].to_vec()),
        ("half".into(), whole[..whole.len() / 2].to_vec()),
    ];
    for _ in 0..12 {
        let at = random.below(whole.len() as u64) as usize;
        damaged.push((format!("cut at {at}"), whole[..at].to_vec()));
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << random.below(8);
        damaged.push((format!("flipped at {at}"), flipped));
    }
    let place = home.beside("restored");
    for (what, bytes) in damaged {
        let file = home.file("damaged.stead", &bytes);
        let ran = home.run(&[
            "--json",
            "--home",
            place.to_str().unwrap(),
            "restore",
            &file,
        ]);
        assert!(!ran.stderr.contains("panicked"), "{what}: {ran:?}");
        let answer = ran.answer();
        let error = answer.failed(3, &["restore", &what]);
        assert!(
            ["no backup", "damaged or cut", "damaged", "format"]
                .iter()
                .any(|words| text(&error, "message").contains(words)),
            "{what}: {error}"
        );
        let error = home
            .json(&["--home", place.to_str().unwrap(), "list"])
            .failed(3, &["list"]);
        assert!(
            text(&error, "message").contains("holds no workspace"),
            "{what}: {error}"
        );
        let left: Vec<_> = fs::read_dir(place.join("workspaces"))
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
    // The place is still good for a whole one.
    let args = [
        "--home",
        place.to_str().unwrap(),
        "restore",
        backup.to_str().unwrap(),
    ];
    home.data(&args);
}

#[test]
fn a_backup_does_not_overwrite_a_file() {
    let home = worked_in();
    let file = home.file("precious", "mine");
    let answer = home.json(&["backup", &file]);
    assert_ne!(answer.code, 0, "{answer:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}
