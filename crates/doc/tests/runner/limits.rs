//! Every bound, one below, at, and one above it.

use automerge::legacy::{Key, OpId as ForeignOp, OpType};
use serde_json::{Value as Json, json};
use stead_doc::{
    board,
    change::{AuthorError, Change, DecodeError, Op},
    id::{ActorId, ChangeHash, OpId},
    limits,
    refusal::{Code, Refusal},
    scalar::Scalar,
};

use super::{
    hostile::Target,
    replica::{Replica, person},
};

// ---------------------------------------------------------------------------------------------
// of a change: what is authored decodes, and what is not would not

fn author(target: &Target, ops: Vec<Op>) -> Result<Change, AuthorError> {
    let mut draft = target.draft();
    draft.ops = ops;
    let change = Change::author(target.document, draft)?;
    assert_eq!(target.decode(&change.bytes).as_ref(), Ok(&change));
    Ok(change)
}

#[test]
fn bytes_of_a_change() {
    let target = Target::new();
    let of = |filling: usize| {
        let body = "b".repeat(limits::TEXT_BYTES);
        author(
            &target,
            vec![
                target.put("body", body),
                target.put("notes", "n".repeat(filling)),
            ],
        )
    };
    let room = limits::CHANGE_BYTES - limits::TEXT_BYTES - 1_000;
    let overhead = of(room).unwrap().bytes.len() - room;
    let exact = limits::CHANGE_BYTES - overhead;
    assert_eq!(of(exact - 1).unwrap().bytes.len(), limits::CHANGE_BYTES - 1);
    assert_eq!(of(exact).unwrap().bytes.len(), limits::CHANGE_BYTES);
    assert_eq!(
        of(exact + 1),
        Err(AuthorError::Bytes(limits::CHANGE_BYTES + 1))
    );
    let bytes = target.foreign(|change| {
        change.operations[0].action = OpType::Put("n".repeat(limits::CHANGE_BYTES).into());
    });
    assert_eq!(target.decode(&bytes), Err(DecodeError::TooLarge));
}

#[test]
fn operations_of_a_change() {
    let target = Target::new();
    // All on one key, or their names alone would be more bytes than there may be.
    let of = |count: usize| author(&target, vec![target.put("title", "x"); count]);
    assert_eq!(of(0), Err(AuthorError::Empty));
    assert_eq!(of(1).unwrap().ops.len(), 1);
    assert!(of(limits::CHANGE_OPS - 1).is_ok());
    assert!(of(limits::CHANGE_OPS).is_ok());
    assert_eq!(
        of(limits::CHANGE_OPS + 1),
        Err(AuthorError::Ops(limits::CHANGE_OPS + 1))
    );
    let bytes = target.foreign(|change| {
        let op = change.operations[0].clone();
        change.operations = vec![op; limits::CHANGE_OPS + 1];
    });
    assert_eq!(
        target.decode(&bytes),
        Err(DecodeError::TooMany("operations"))
    );
}

#[test]
fn predecessors_of_a_change() {
    let target = Target::new();
    let actor = target.preds("title")[0].actor;
    let preds = |count: usize| (1..=count as u64).map(move |counter| OpId { counter, actor });
    let of = |count: usize| {
        let op = Op {
            preds: preds(count).collect(),
            ..target.put("title", "x")
        };
        author(&target, vec![op])
    };
    assert!(of(limits::CHANGE_PREDS - 1).is_ok());
    assert!(of(limits::CHANGE_PREDS).is_ok());
    assert_eq!(
        of(limits::CHANGE_PREDS + 1),
        Err(AuthorError::Preds(limits::CHANGE_PREDS + 1))
    );
    let bytes = target.foreign(|change| {
        let preds = preds(limits::CHANGE_PREDS + 1);
        change.operations[0].pred = preds
            .map(|pred| ForeignOp(pred.counter, automerge::ActorId::from(&pred.actor.0)))
            .collect::<Vec<_>>()
            .into();
    });
    assert_eq!(
        target.decode(&bytes),
        Err(DecodeError::TooMany("predecessors"))
    );
}

/// Both bounds at once, which are counted apart: half of each was once too much.
#[test]
fn operations_and_predecessors_of_a_change() {
    let target = Target::new();
    let actor = target.preds("title")[0].actor;
    let op = Op {
        preds: vec![OpId { counter: 1, actor }, OpId { counter: 2, actor }],
        ..target.put("title", "x")
    };
    let change = author(&target, vec![op; limits::CHANGE_OPS]).unwrap();
    let preds: usize = change.ops.iter().map(|op| op.preds.len()).sum();
    assert_eq!(preds, limits::CHANGE_PREDS);
}

#[test]
fn heads_of_a_change() {
    let target = Target::new();
    let hash = |n: usize| {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&(n as u64).to_be_bytes());
        ChangeHash(hash)
    };
    let of = |count: usize| {
        let mut draft = target.draft();
        draft.deps = (0..count).map(hash).collect();
        let change = Change::author(target.document, draft)?;
        assert_eq!(target.decode(&change.bytes).as_ref(), Ok(&change));
        Ok(change)
    };
    assert!(of(limits::CHANGE_DEPS - 1).is_ok());
    assert!(of(limits::CHANGE_DEPS).is_ok());
    assert_eq!(
        of(limits::CHANGE_DEPS + 1),
        Err(AuthorError::Deps(limits::CHANGE_DEPS + 1))
    );
    let bytes = target.foreign(|change| {
        let hashes = (0..=limits::CHANGE_DEPS).map(hash);
        change.deps = hashes.map(|hash| automerge::ChangeHash(hash.0)).collect();
    });
    assert_eq!(target.decode(&bytes), Err(DecodeError::TooMany("heads")));
}

#[test]
fn actors_of_a_change() {
    let target = Target::new();
    let pred = |n: usize| {
        let mut actor = [9; 16];
        actor[..8].copy_from_slice(&(n as u64).to_be_bytes());
        OpId {
            counter: 600,
            actor: ActorId(actor),
        }
    };
    // The genesis actor, which made the bucket, is one of them.
    let of = |count: usize| {
        let op = Op {
            preds: (1..count).map(pred).collect(),
            ..target.put("title", "x")
        };
        author(&target, vec![op])
    };
    assert!(of(limits::CHANGE_ACTORS - 1).is_ok());
    assert!(of(limits::CHANGE_ACTORS).is_ok());
    assert_eq!(
        of(limits::CHANGE_ACTORS + 1),
        Err(AuthorError::Actors(limits::CHANGE_ACTORS + 1))
    );
    let bytes = target.foreign(|change| {
        let preds = (1..=limits::CHANGE_ACTORS).map(pred);
        change.operations[0].pred = preds
            .map(|pred| ForeignOp(pred.counter, automerge::ActorId::from(&pred.actor.0)))
            .collect::<Vec<_>>()
            .into();
    });
    assert_eq!(target.decode(&bytes), Err(DecodeError::TooMany("actors")));
}

#[test]
fn op_counters() {
    let target = Target::new();
    let of = |start_op: u64| {
        let mut draft = target.draft();
        draft.start_op = start_op;
        draft.ops = vec![target.put("title", "x"), target.put("body", "x")];
        Change::author(target.document, draft)
    };
    let foreign = |start_op: u64| {
        target.foreign(|change| {
            change.operations.push(change.operations[0].clone());
            change.start_op = start_op.try_into().unwrap();
        })
    };
    for start_op in [limits::OP_COUNTER - 4, limits::OP_COUNTER - 3] {
        let change = of(start_op).unwrap();
        assert!(change.max_op() < limits::OP_COUNTER);
        assert!(target.decode(&change.bytes).is_ok());
        assert!(target.decode(&foreign(start_op)).is_ok());
    }
    for start_op in [
        limits::OP_COUNTER - 2,
        limits::OP_COUNTER - 1,
        limits::OP_COUNTER,
    ] {
        assert_eq!(of(start_op), Err(AuthorError::Counter));
        assert_eq!(target.decode(&foreign(start_op)), Err(DecodeError::Counter));
    }
}

#[test]
fn bytes_of_a_message() {
    let target = Target::new();
    let of = |bytes: usize| {
        let mut draft = target.draft();
        let empty = draft.message.to_text().len();
        draft.message.command.push_str(&"m".repeat(bytes - empty));
        assert_eq!(draft.message.to_text().len(), bytes);
        let change = Change::author(target.document, draft)?;
        assert!(target.decode(&change.bytes).is_ok());
        Ok(change)
    };
    assert!(of(limits::MESSAGE_BYTES - 1).is_ok());
    assert!(of(limits::MESSAGE_BYTES).is_ok());
    assert_eq!(
        of(limits::MESSAGE_BYTES + 1),
        Err(AuthorError::Message(limits::MESSAGE_BYTES + 1))
    );
    let foreign = |bytes: usize| target.foreign(|change| change.message = Some("m".repeat(bytes)));
    assert!(target.decode(&foreign(limits::MESSAGE_BYTES)).is_ok());
    assert_eq!(
        target.decode(&foreign(limits::MESSAGE_BYTES + 1)),
        Err(DecodeError::Message)
    );
}

#[test]
fn bytes_of_a_field_name() {
    let target = Target::new();
    let of = |bytes: usize| author(&target, vec![target.put(&"f".repeat(bytes), "x")]);
    let foreign = |bytes: usize| {
        target.foreign(|change| {
            let key = format!("{}/{}", target.task, "f".repeat(bytes));
            change.operations[0].key = Key::Map(key.as_str().into());
        })
    };
    assert_eq!(of(0), Err(AuthorError::Field(0)));
    assert!(of(1).is_ok());
    assert!(of(limits::FIELD_BYTES - 1).is_ok());
    assert!(of(limits::FIELD_BYTES).is_ok());
    assert_eq!(
        of(limits::FIELD_BYTES + 1),
        Err(AuthorError::Field(limits::FIELD_BYTES + 1))
    );
    assert!(target.decode(&foreign(limits::FIELD_BYTES)).is_ok());
    assert_eq!(
        target.decode(&foreign(limits::FIELD_BYTES + 1)),
        Err(DecodeError::Field)
    );
}

#[test]
fn bytes_of_a_value() {
    let target = Target::new();
    let text = |bytes: usize| Scalar::Str("v".repeat(bytes));
    let raw = |bytes: usize| Scalar::Bytes(vec![7; bytes]);
    for value in [text as fn(usize) -> Scalar, raw] {
        let of = |bytes: usize| author(&target, vec![target.put("body", value(bytes))]);
        assert!(of(limits::TEXT_BYTES - 1).is_ok());
        assert!(of(limits::TEXT_BYTES).is_ok());
        assert_eq!(
            of(limits::TEXT_BYTES + 1),
            Err(AuthorError::Value(limits::TEXT_BYTES + 1))
        );
        let bytes = target.foreign(|change| {
            change.operations[0].action = OpType::Put(value(limits::TEXT_BYTES + 1).to_automerge());
        });
        assert_eq!(target.decode(&bytes), Err(DecodeError::Value));
    }
}

// ---------------------------------------------------------------------------------------------
// of arguments: TOO_LARGE with what was given and what is allowed

fn bound(max: usize, of: impl Fn(usize) -> Result<Json, Refusal>) {
    for allowed in [max - 1, max] {
        if let Err(refusal) = of(allowed) {
            panic!("{allowed} of {max}: {refusal}");
        }
    }
    let refusal = of(max + 1).unwrap_err();
    assert_eq!(refusal.code, Code::TooLarge, "{refusal}");
    assert_eq!(refusal.details["max"], max);
    assert_eq!(refusal.details["given"], max + 1);
    assert!(refusal.message.contains(&max.to_string()), "{refusal}");
}

fn create(fields: Json) -> Result<Json, Refusal> {
    let mut replica = Replica::one();
    let mut call = json!({"action": "create", "projectId": "stead", "title": "t"});
    call.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    replica.run(call)
}

fn characters(count: usize) -> String {
    // Four bytes each: the bytes must fit too.
    "\u{10348}".repeat(count)
}

#[test]
fn characters_of_a_title() {
    bound(limits::TITLE_CHARS, |n| {
        create(json!({"title": characters(n)}))
    });
}

#[test]
fn characters_of_a_long_text() {
    for field in ["body", "notes", "result"] {
        bound(limits::TEXT_CHARS, |n| {
            create(json!({field: "x".repeat(n)}))
        });
    }
    // The most characters are the most bytes.
    bound(limits::TEXT_CHARS, |n| {
        create(json!({"body": characters(n)}))
    });
}

#[test]
fn characters_of_a_short_text() {
    bound(limits::SHORT_CHARS, |n| {
        create(json!({"branch": characters(n)}))
    });
    bound(limits::SHORT_CHARS, |n| {
        create(json!({"criteria": [characters(n)]}))
    });
    bound(limits::SHORT_CHARS, |n| {
        create(json!({"status": "blocked", "reason": characters(n)}))
    });
}

#[test]
fn characters_of_a_tag_a_label_and_a_key() {
    bound(limits::TAG_CHARS, |n| {
        create(json!({"tags": [characters(n)]}))
    });
    bound(limits::TAG_CHARS, |n| create(json!({"by": characters(n)})));
    bound(limits::KEY_CHARS, |n| {
        create(json!({"idempotencyKey": characters(n)}))
    });
}

#[test]
fn entries_of_sets_and_maps() {
    let words = |n: usize| (0..n).map(|n| format!("w{n}")).collect::<Vec<_>>();
    let map = |n: usize| {
        words(n)
            .into_iter()
            .map(|word| (word, json!(1)))
            .collect::<Json>()
    };
    bound(limits::SET_ENTRIES, |n| create(json!({"tags": words(n)})));
    bound(limits::SET_ENTRIES, |n| {
        create(json!({"criteria": words(n)}))
    });
    bound(limits::SET_ENTRIES, |n| {
        create(json!({"externalRefs": words(n)}))
    });
    bound(limits::SET_ENTRIES, |n| create(json!({"state": map(n)})));
    bound(limits::SET_ENTRIES, |n| create(json!({"custom": map(n)})));
}

#[test]
fn a_full_set_or_map_can_still_be_changed() {
    let mut replica = Replica::one();
    let task = replica.task("t");
    let words = |from: usize, to: usize| (from..to).map(|n| format!("w{n:03}")).collect::<Vec<_>>();
    let state: Json = words(0, limits::SET_ENTRIES)
        .into_iter()
        .map(|word| (word, json!(1)))
        .collect();
    let tags = words(0, limits::SET_ENTRIES);
    replica.on_done(
        &task,
        json!({"action": "update", "statePatch": state, "tags": tags}),
    );
    let shown = replica.on_done(
        &task,
        json!({
            "action": "update", "statePatch": {"w000": 2, "w001": null, "new": 3},
            "addTags": ["new"], "removeTags": ["w001"],
        }),
    );
    assert_eq!(
        shown["state"].as_object().unwrap().len(),
        limits::SET_ENTRIES
    );
    assert_eq!(shown["state"]["w000"], 2);
    assert_eq!(shown["tags"].as_array().unwrap().len(), limits::SET_ENTRIES);
    let patch = json!({"action": "update", "statePatch": {"newer": 1}});
    assert_eq!(replica.on(&task, patch).unwrap_err().code, Code::TooLarge);
    let more = json!({"action": "update", "addTags": ["newer"]});
    assert_eq!(replica.on(&task, more).unwrap_err().code, Code::TooLarge);
}

#[test]
fn links_of_a_task() {
    let mut replica = Replica::one();
    let hub = replica.task("hub");
    let ends: Vec<String> = (0..=limits::SET_ENTRIES)
        .map(|n| replica.task(&format!("t{n}")))
        .collect();
    let link = |target: &str| json!({"action": "link", "type": "relates_to", "targetId": target});
    let (last, ends) = ends.split_last().unwrap();
    for end in ends {
        replica.on_done(&hub, link(end));
    }
    let refusal = replica.on(&hub, link(last)).unwrap_err();
    assert_eq!(refusal.code, Code::TooLarge);
    // One that is there may be said again.
    replica.on_done(&hub, link(&ends[0]));
    replica.on_done(
        &hub,
        json!({"action": "unlink", "type": "relates_to", "targetId": ends[0]}),
    );
    replica.on_done(&hub, link(last));
}

#[test]
fn entries_of_updates() {
    let mut replica = Replica::one();
    let task = replica.task("t");
    let call = |n: usize| json!({"action": "move", "status": "done", "updates": vec![json!({"id": task}); n]});
    let split = |n: usize| {
        board::split_updates(call(n).as_object().unwrap()).map(|calls| json!(calls.unwrap().len()))
    };
    bound(limits::UPDATES, split);
    assert_eq!(split(0).unwrap_err().code, Code::InvalidArgument);
}

/// The place of an entry goes behind the key, and the longest key must still have room for it.
#[test]
fn the_longest_key_of_updates() {
    let mut replica = Replica::one();
    let tasks: Vec<String> = (0..limits::UPDATES)
        .map(|n| replica.task(&format!("t{n}")))
        .collect();
    let updates: Vec<Json> = tasks
        .iter()
        .map(|id| json!({"id": id, "revision": replica.revision(id)}))
        .collect();
    let call = |chars: usize| {
        json!({
            "action": "move", "status": "review", "updates": updates,
            "idempotencyKey": characters(chars),
        })
    };
    let refusal = replica
        .run_updates(&person("ada"), call(limits::KEY_CHARS + 1))
        .unwrap_err();
    assert_eq!(refusal.code, Code::TooLarge);
    let replies = replica
        .run_updates(&person("ada"), call(limits::KEY_CHARS))
        .unwrap();
    for reply in replies {
        assert_eq!(reply.unwrap()["task"]["status"], "review");
    }
}

/// Rules read these in the row, where long texts are not.
#[test]
fn what_is_as_long_as_it_may_be_is_still_read() {
    let mut replica = Replica::one();
    let task = replica.task("t");
    let longest = characters(limits::SHORT_CHARS);
    // Quotes are twice as long in JSON, and other control characters than line breaks six times.
    for reason in [
        longest.clone(),
        "\"\\".repeat(limits::SHORT_CHARS / 2),
        "\u{1}".repeat(limits::SHORT_CHARS),
    ] {
        let moved = replica.on_done(
            &task,
            json!({"action": "move", "status": "review", "reason": reason}),
        );
        assert_eq!(moved["status"], "review");
        assert_eq!(moved["statusReason"], reason);
        let blocked = replica.on_done(&task, json!({"action": "block", "reason": reason}));
        assert_eq!(blocked["status"], "blocked");
        assert_eq!(blocked["blocker"]["reason"], reason);
        assert_eq!(
            replica.on_done(&task, json!({"action": "unblock"}))["status"],
            "review"
        );
        assert_eq!(blocked["invalid"], json!([]));
    }
    let around = json!({"device": "d", "path": ""}).to_string().len();
    let worktree = json!({"device": "d", "path": "p".repeat(limits::SHORT_CHARS - around)});
    assert_eq!(worktree.to_string().len(), limits::SHORT_CHARS);
    let shown = replica.on_done(
        &task,
        json!({
            "action": "update", "title": characters(limits::TITLE_CHARS), "branch": longest,
            "criteria": [{"text": longest, "done": true}], "worktree": worktree,
            "externalRefs": [{"ref": "r", "why": "w".repeat(1_900)}],
        }),
    );
    assert_eq!(shown["criteria"][0]["text"], longest);
    assert_eq!(shown["branch"], longest);
    assert_eq!(shown["worktree"], worktree);
    assert_eq!(shown["externalRefs"][0]["why"], "w".repeat(1_900));
    let abandoned = replica.on_done(
        &task,
        json!({"action": "move", "status": "abandoned", "abandonReason": longest}),
    );
    assert_eq!(abandoned["abandonReason"], longest);
    assert_eq!(abandoned["status"], "abandoned");
    assert_eq!(
        replica
            .run(json!({"action": "claim", "id": task}))
            .unwrap_err()
            .code,
        Code::InvalidArgument
    );
}
