//! `kill -9` at random moments while clients write: what was acknowledged is there.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::stead::{Called, Home, Random, RunningNode, call, text};

const CLIENTS: u64 = 8;

/// How often the node is killed: a few times here, 200 times in the gate.
fn kills() -> u64 {
    std::env::var("STEAD_KILLS").map_or(6, |text| text.parse().unwrap())
}

/// What clients know: every write that was acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Titles of tasks that were made, by id.
    made: BTreeMap<String, String>,
    /// Of each client's own task, the last count that was acknowledged and the last that was sent.
    counted: BTreeMap<u64, (u64, u64)>,
}

/// A client: it makes tasks and counts in the title of one of its own. A call whose answer was lost
/// is sent again under its key once there is a node again.
struct Client {
    number: u64,
    own: String,
    revision: String,
    count: u64,
    pending: Option<Value>,
    random: Random,
}

impl Client {
    fn new(node: &RunningNode, number: u64, seed: u64) -> Self {
        let made = node.data(
            "task_mutate",
            json!({"action": "create", "projectId": "web", "title": format!("count {number} 0")}),
        );
        Self {
            number,
            own: text(&made["task"], "id").to_owned(),
            revision: text(&made["task"], "revision").to_owned(),
            count: 0,
            pending: None,
            random: Random(seed ^ number.wrapping_mul(0x1234_5678_9abc_def1)),
        }
    }

    /// Writes until the node is gone.
    fn write(
        &mut self,
        node: std::net::SocketAddr,
        token: &str,
        known: &Mutex<Acknowledged>,
        done: &AtomicU64,
        acknowledged: &mpsc::Sender<()>,
    ) {
        loop {
            let arguments = match &self.pending {
                Some(arguments) => arguments.clone(),
                None => self.next(done.fetch_add(1, Ordering::Relaxed), known),
            };
            self.pending = Some(arguments.clone());
            match call(node, token, "task_mutate", &arguments) {
                Called::Ok(data) => {
                    self.took(&arguments, &data, known);
                    self.pending = None;
                    let _ = acknowledged.send(());
                }
                Called::Refused(error) => {
                    let code = text(&error, "code");
                    assert!(
                        ["UNAVAILABLE", "RETRY"].contains(&code),
                        "{arguments} is refused: {error}"
                    );
                    return;
                }
                Called::Lost => return,
            }
        }
    }

    fn next(&mut self, serial: u64, known: &Mutex<Acknowledged>) -> Value {
        let key = format!("{}-{serial}", self.number);
        if self.random.below(3) == 0 {
            return json!({"action": "create", "projectId": "web", "title": format!("made {key}"),
                "body": "word ".repeat(self.random.below(60) as usize), "idempotencyKey": key});
        }
        self.count += 1;
        let mut known = known.lock().unwrap();
        let entry = known.counted.entry(self.number).or_default();
        entry.1 = self.count;
        json!({"action": "update", "id": self.own, "revision": self.revision, "idempotencyKey": key,
            "title": format!("count {} {}", self.number, self.count)})
    }

    fn took(&mut self, arguments: &Value, data: &Value, known: &Mutex<Acknowledged>) {
        let task = &data["task"];
        let mut known = known.lock().unwrap();
        if arguments["action"] == "create" {
            let before = known.made.insert(
                text(task, "id").to_owned(),
                text(arguments, "title").to_owned(),
            );
            assert_eq!(before, None, "one id for two tasks");
        } else {
            self.revision = text(task, "revision").to_owned();
            known.counted.insert(self.number, (self.count, self.count));
        }
    }
}

/// Compares what is there with what was acknowledged.
fn check(export: &str, clients: &[Client], known: &Acknowledged) {
    let mut titles = BTreeMap::new();
    for line in export.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let values = object["fields"]["title"].as_array();
        if let Some(values) = values {
            assert_eq!(values.len(), 1, "a conflict with nobody: {object}");
            titles.insert(
                text(&object, "id").to_owned(),
                text(&values[0], "value").to_owned(),
            );
        }
    }
    for (id, title) in &known.made {
        assert_eq!(titles.get(id), Some(title), "an acknowledged task is gone");
    }
    for client in clients {
        let (acknowledged, sent) = known
            .counted
            .get(&client.number)
            .copied()
            .unwrap_or_default();
        let title = &titles[&client.own];
        let count: u64 = title.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(
            (acknowledged..=sent).contains(&count),
            "{title}: {acknowledged} was acknowledged, {sent} was sent"
        );
    }
}

/// Lets the clients write and kills the node at a random moment.
fn round(
    node: RunningNode,
    home: &Home,
    clients: &mut [Client],
    known: &Mutex<Acknowledged>,
    done: &AtomicU64,
    random: &mut Random,
) {
    let (address, token) = (node.address(), home.token());
    let (acknowledged, heard) = mpsc::channel();
    let wanted = random.below(120);
    let then = Duration::from_micros(random.below(4_000));
    let kill = node.killer();
    thread::scope(|scope| {
        for client in clients.iter_mut() {
            let (acknowledged, token) = (acknowledged.clone(), &token);
            scope.spawn(move || client.write(address, token, known, done, &acknowledged));
        }
        drop(acknowledged);
        for _ in 0..wanted {
            if heard.recv_timeout(Duration::from_secs(60)).is_err() {
                panic!("the node acknowledges nothing:\n{}", node.log());
            }
        }
        // A moment that depends on nothing that the node does.
        thread::park_timeout(then);
        kill();
    });
    node.kill();
}

#[test]
fn every_acknowledged_write_is_there_after_every_kill() {
    let seed = std::env::var("STEAD_SEED").map_or(0x5eed, |text| text.parse().unwrap());
    let mut random = Random(seed);
    let home = Home::with_project("web");
    let mut node = home.node();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|number| Client::new(&node, number, seed))
        .collect();
    let known = Mutex::new(Acknowledged::default());
    let done = AtomicU64::new(0);
    let exported = home.beside("export.json");
    for kill in 0..kills() {
        round(node, &home, &mut clients, &known, &done, &mut random);
        node = home.node();
        // What is lost stays lost, so with many kills not each needs a look at everything.
        if kill >= 20 && kill % 10 != 0 {
            continue;
        }
        node.data("export", json!({ "path": exported }));
        check(
            &std::fs::read_to_string(&exported).unwrap(),
            &clients,
            &known.lock().unwrap(),
        );
    }
    // What was in doubt is sent again and settled; nothing is there twice.
    for client in &mut clients {
        if let Some(arguments) = client.pending.take() {
            match node.call("task_mutate", arguments.clone()) {
                Called::Ok(data) => client.took(&arguments, &data, &known),
                other => panic!("{arguments}: {other:?}"),
            }
        }
    }
    let known = known.into_inner().unwrap();
    assert!(!known.made.is_empty());
    assert!(node.stop().success());
    check(&home.export(), &clients, &known);
    let all = home.all(&["list", "--status", "any"]);
    assert_eq!(
        all.len(),
        known.made.len() + clients.len(),
        "something is there twice"
    );
    let doctor = home.data(&["doctor"]);
    assert_eq!(doctor["ok"], true, "{doctor}");
}

#[test]
fn a_kill_while_the_log_is_being_packed_loses_nothing() {
    let home = Home::with_project("web");
    let issues: String = (0..4_300)
        .map(|n| {
            format!(
                "{{\"id\":\"g{n}\",\"title\":\"generated {n}\",\"description\":\"{}\"}}\n",
                "body ".repeat(n % 40)
            )
        })
        .collect();
    let file = home.file("many.jsonl", issues);
    let mut random = Random(77);
    let mut met = 0;
    for attempt in 0..4 {
        let node = home.node();
        let (address, token) = (node.address(), home.token());
        let state = |path: &std::path::Path| {
            let metadata = std::fs::metadata(path).unwrap();
            (metadata.len(), metadata.modified().unwrap())
        };
        let before = state(&home.store().join("packed.redb"));
        let kill = node.killer();
        let over = Arc::new(AtomicBool::new(false));
        // Kills as soon as the packed file grows or changes, and a moment more.
        let watcher = {
            let (over, path) = (over.clone(), home.store().join("packed.redb"));
            let moment = Duration::from_micros(random.below(30_000));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if state(&path) != before {
                        thread::park_timeout(moment);
                        kill();
                        return true;
                    }
                    thread::yield_now();
                }
                false
            })
        };
        let args = ["--json", "import", "beads", &file, "-p", "web"];
        let imported = home.run(&args);
        if attempt > 0 && imported.code == 0 {
            // All is imported by now: new writes fill the log.
            let mut serial = 0;
            while !watcher.is_finished() && serial < 6_000 {
                serial += 1;
                let arguments = json!({"action": "create", "projectId": "web", "title": "more"});
                if call(address, &token, "task_mutate", &arguments) == Called::Lost {
                    break;
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        met += usize::from(watcher.join().unwrap());
        node.kill();
        assert!([0, 1, 3].contains(&imported.code), "{imported:?}");
        if met >= 1 {
            break;
        }
    }
    assert!(met >= 1, "packing never began");
    let node = home.node();
    let report = home.data(&["import", "beads", &file, "-p", "web"]);
    let sum = ["created", "updated", "unchanged"].map(|name| report[name].as_u64().unwrap());
    assert_eq!(sum.iter().sum::<u64>(), 4_300, "{report}");
    assert_eq!(
        (sum[1], report["skipped"].as_array().unwrap().len()),
        (0, 0)
    );
    assert!(node.stop().success());
    let doctor = home.data(&["doctor"]);
    assert_eq!(doctor["ok"], true, "{doctor}");
    let titled = home.data(&["search", "generated", "4299", "-p", "web"]);
    assert_eq!(titled["tasks"][0]["title"], "generated 4299");
}

#[cfg(unix)]
#[test]
fn a_command_that_is_killed_leaves_a_store_that_opens() {
    let home = Home::with_project("web");
    let mut random = Random(3);
    let mut acknowledged = Vec::new();
    for n in 0..kills() * 2 {
        let title = format!("t{n}");
        let key = format!("k{n}");
        let args = [
            "--json",
            "create",
            &title,
            "-p",
            "web",
            "--idempotency-key",
            &key,
        ];
        let mut child = home.command(&args).spawn().unwrap();
        thread::park_timeout(Duration::from_micros(random.below(60_000)));
        drop(child.kill());
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            acknowledged.push(title);
        }
    }
    let rows = home.all(&["list", "-p", "web"]);
    let titles: Vec<_> = rows.iter().map(|row| text(row, "title")).collect();
    for title in &acknowledged {
        assert_eq!(
            titles.iter().filter(|other| *other == title).count(),
            1,
            "{title}"
        );
    }
    assert_eq!(home.data(&["doctor"])["ok"], true);
}
