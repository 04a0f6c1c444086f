//! Every bound on what a change may hold, in one place.

/// Bytes of one change as it travels. A frame is at most 1 MiB; 24 KiB are left for its header,
/// the signature and the roster head beside the change.
pub const CHANGE_BYTES: usize = (1 << 20) - (24 << 10);

/// Operations of one change. Provisioning a tree of 1,000 tasks at about 12 fields each is 12,000.
pub const CHANGE_OPS: usize = 50_000;

/// Predecessors of all operations of one change: a field with many values written apart has that
/// many, and a command touches few such fields.
pub const CHANGE_PREDS: usize = 100_000;

/// Heads that one change may name. A document has as many heads as replicas wrote apart.
pub const CHANGE_DEPS: usize = 1_000;

/// Other actors that one change may name: those of its predecessors.
pub const CHANGE_ACTORS: usize = 4_096;

/// Op counters stay below this. Automerge holds them in 32 bits and panics beyond; half of that
/// leaves room for honest changes on top of the greatest that is admitted.
pub const OP_COUNTER: u64 = 1 << 31;

/// Seconds before and after 1970 that a change may give as its time. Automerge keeps times as
/// differences and overflows where two are far apart; this is 34,000 years.
pub const CHANGE_SECS: i64 = 1 << 40;

/// Bytes of a change's message.
pub const MESSAGE_BYTES: usize = 16 << 10;

/// Bytes of a field's name, the entry of a set or map included.
pub const FIELD_BYTES: usize = 400;

/// Characters of a title.
pub const TITLE_CHARS: usize = 500;

/// Characters of a long text.
pub const TEXT_CHARS: usize = 200_000;

/// Bytes of a long text, so that one change with it still fits one frame.
pub const TEXT_BYTES: usize = 800_000;

/// Characters of any other single text: a reason, a name, a branch.
pub const SHORT_CHARS: usize = 2_000;

/// Characters of a tag.
pub const TAG_CHARS: usize = 64;

/// Tags, criteria, edges or state keys of one object: each.
pub const SET_ENTRIES: usize = 500;

/// Characters of an idempotency key.
pub const KEY_CHARS: usize = 128;

/// Entries of one `updates[]` call.
pub const UPDATES: usize = 100;

/// Ids of one `task_get` call.
pub const GET_IDS: usize = 50;

/// Rows of one page of a search.
pub const PAGE_ROWS: usize = 200;

/// Operations that the search for a merge base reads before it gives up.
pub const MERGE_BASE_WALK: usize = 1_000;
