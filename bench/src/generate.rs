//! The one seeded generator of data: every benchmark measures the board that comes out of here.
//!
//! It reads no clock and no entropy. Task `n` and update `n` are functions of the seed and `n`, so a board of any size
//! streams without being held, and a smaller board is the beginning of a larger one. The proportions are those of a
//! real board kept by agents, except where a constant below says otherwise.

use crate::words::{Rng, Words};

/// Makes tasks and updates from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    seed: u64,
    words: Words,
}

impl Generator {
    /// A generator with the compiled-in vocabulary.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_words(seed, Words::builtin())
    }

    /// A generator that words its text like the board `words` was learnt from. Everything but text stays the same.
    pub(crate) fn with_words(seed: u64, words: Words) -> Self {
        Self { seed, words }
    }

    /// The first `count` tasks, oldest first: what a task refers to came before it.
    pub(crate) fn tasks(&self, count: u32) -> impl ExactSizeIterator<Item = Task> {
        (0..count).map(|number| self.task(number))
    }

    /// Task `number`, without making those before it.
    pub(crate) fn task(&self, number: u32) -> Task {
        let outline = self.outline(number);
        let mut rng = self.rng(Purpose::Text, number);
        let title = self.title(&mut rng);
        let body = self.body(number, 0);
        let parent = self.parent(number);
        let depends_on = self.depends_on(number, &outline, parent);
        let abandon_reason =
            (outline.status == Status::Abandoned).then(|| self.words.prose(&mut rng, REASON_BYTES));
        let block_reason =
            (outline.status == Status::Blocked).then(|| self.words.prose(&mut rng, REASON_BYTES));
        Task {
            number,
            key: format!("t-{:016x}-{number}", self.seed),
            title,
            body,
            kind: outline.kind,
            status: outline.status,
            priority: outline.priority,
            assignee: outline.assignee.map(|place| ASSIGNEES[usize::from(place)]),
            tags: tag_names(outline.tags),
            parent,
            depends_on,
            abandon_reason,
            block_reason,
        }
    }

    /// `count` updates to a board of the first `tasks` tasks, by one writer.
    ///
    /// Applied in order to that board, each is allowed (no unmet dependency, no forced step) and changes something.
    /// Two writers give unrelated updates with keys of their own; applied together, they meet each other's changes as
    /// real writers do, and what the board then refuses is for the benchmark to expect.
    pub(crate) fn updates(&self, writer: u32, tasks: u32, count: u32) -> Updates<'_> {
        assert!(tasks > 0, "an update needs a task");
        let now = (0..tasks)
            .map(|number| Now::of(&self.outline(number)))
            .collect();
        Updates {
            generator: self,
            writer,
            now,
            made: 0,
            count,
        }
    }

    fn outline(&self, number: u32) -> Outline {
        let mut rng = self.rng(Purpose::Outline, number);
        let kind = rng.weighted(KINDS);
        let status = rng.weighted(STATUSES);
        let priority = rng.weighted(PRIORITIES);
        let assignee = rng
            .chance(ASSIGNED_PER_MILLE)
            .then(|| draw_assignee(&mut rng));
        let mut tags = 0;
        for _ in 0..rng.weighted(TAG_COUNTS) {
            tags |= 1 << draw_tag(&mut rng);
        }
        Outline {
            kind,
            status,
            priority,
            assignee,
            tags,
        }
    }

    /// An epic shortly before, for about half of the tasks.
    fn parent(&self, number: u32) -> Option<u32> {
        let mut rng = self.rng(Purpose::Parent, number);
        if !rng.chance(PARENT_PER_MILLE) {
            return None;
        }
        let mut skip = rng.below(EPICS_OPEN);
        earlier(number, 1).find(|&candidate| {
            let epic = self.outline(candidate).kind == Kind::Epic;
            let found = epic && skip == 0;
            skip = skip.saturating_sub(u32::from(epic));
            found
        })
    }

    /// Tasks shortly before. Never epics: with children below epics only, and epics below nothing but epics, no walk
    /// along "must be done first" comes back to where it began, whether or not an epic waits for its children.
    fn depends_on(&self, number: u32, outline: &Outline, parent: Option<u32>) -> Vec<u32> {
        let mut rng = self.rng(Purpose::Dependencies, number);
        let mut found: Vec<u32> = Vec::new();
        for _ in 0..rng.weighted(DEPENDENCY_COUNTS) {
            // Nearer is likelier: the distance is the smaller of two draws.
            let (one, other) = (rng.below(DEPENDENCY_REACH), rng.below(DEPENDENCY_REACH));
            let distance = 1 + one.min(other);
            let fits = |&candidate: &u32| {
                let other = self.outline(candidate);
                other.kind != Kind::Epic
                    && (!outline.status.is_under_way() || other.status == Status::Done)
                    && Some(candidate) != parent
            };
            let candidate = earlier(number, distance)
                .filter(fits)
                .find(|c| !found.contains(c));
            found.extend(candidate);
        }
        found
    }

    fn title(&self, rng: &mut Rng) -> String {
        let bytes = rng.quantile(TITLE_BYTES);
        self.words.title(rng, bytes)
    }

    /// The body after `edits` edits: each adds a section, and only the latest few are kept.
    fn body(&self, number: u32, edits: u8) -> String {
        let mut rng = self.rng(Purpose::Body, number);
        let bytes = rng.quantile(BODY_BYTES);
        let mut body = self.words.prose(&mut rng, bytes);
        for edit in edits.saturating_sub(SECTIONS_MAX)..edits {
            let mut rng = Rng::new(
                self.seed,
                Purpose::Section as u64 + u64::from(edit),
                number.into(),
            );
            let bytes = rng.quantile(COMMENT_BYTES);
            if !body.is_empty() {
                body.push_str("\n\n");
            }
            body.push_str(&format!("Update {}: ", u32::from(edit) + 1));
            body.push_str(&self.words.prose(&mut rng, bytes));
        }
        body
    }

    fn rng(&self, purpose: Purpose, number: u32) -> Rng {
        Rng::new(self.seed, purpose as u64, number.into())
    }
}

/// A task to be created. Other tasks are named by number; the benchmark knows which ids they got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) number: u32,
    /// Its idempotency key, shared with no other task and no update under the same seed.
    pub(crate) key: String,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) kind: Kind,
    pub(crate) status: Status,
    pub(crate) priority: Priority,
    pub(crate) assignee: Option<&'static str>,
    pub(crate) tags: Vec<&'static str>,
    pub(crate) parent: Option<u32>,
    pub(crate) depends_on: Vec<u32>,
    /// There if and only if it is abandoned.
    pub(crate) abandon_reason: Option<String>,
    /// There if and only if it is blocked.
    pub(crate) block_reason: Option<String>,
}

/// One change to one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) number: u32,
    /// Its idempotency key, shared with no task and no other update under the same seed.
    pub(crate) key: String,
    pub(crate) task: u32,
    pub(crate) by: &'static str,
    pub(crate) change: Change,
}

/// What an update changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Assignee(Option<&'static str>),
    /// The whole new body: the old one with a section more.
    Body(String),
    Comment(String),
    Priority(Priority),
    Status {
        to: Status,
        /// There if and only if the task becomes blocked or abandoned.
        reason: Option<String>,
    },
    Tag {
        tag: &'static str,
        /// Put on, or else taken off.
        on: bool,
    },
    Title(String),
}

/// The updates of one writer. Holds a few bytes for each task, and no text.
#[derive(Clone, Debug)]
pub(crate) struct Updates<'a> {
    generator: &'a Generator,
    writer: u32,
    now: Vec<Now>,
    made: u32,
    count: u32,
}

impl Iterator for Updates<'_> {
    type Item = Update;

    fn next(&mut self) -> Option<Update> {
        if self.made == self.count {
            return None;
        }
        let number = self.made;
        self.made += 1;
        let seed = self.generator.seed;
        let mut rng = Rng::new(
            seed,
            Purpose::Update as u64,
            u64::from(self.writer) << 32 | u64::from(number),
        );
        let task = self.draw_task(&mut rng);
        let by = ASSIGNEES[usize::from(draw_assignee(&mut rng))];
        let change = self.draw_change(&mut rng, task);
        let key = format!("u-{seed:016x}-{}-{number}", self.writer);
        Some(Update {
            number,
            key,
            task,
            by,
            change,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.count - self.made) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Updates<'_> {}

impl Updates<'_> {
    /// One task in [`HOT_ONE_IN`] is being worked on and draws most of the updates.
    fn draw_task(&self, rng: &mut Rng) -> u32 {
        let tasks = self.now.len() as u32;
        if rng.chance(HOT_PER_MILLE) {
            // Spread over the board: hot are the last of each group, and the last task of all.
            let group = rng.below(tasks.div_ceil(HOT_ONE_IN));
            (group * HOT_ONE_IN + HOT_ONE_IN - 1).min(tasks - 1)
        } else {
            rng.below(tasks)
        }
    }

    fn draw_change(&mut self, rng: &mut Rng, task: u32) -> Change {
        let words = &self.generator.words;
        match rng.weighted(CHANGES) {
            What::Assignee => {
                let now = &mut self.now[task as usize].assignee;
                *now = match *now {
                    Some(_) if rng.chance(UNASSIGN_PER_MILLE) => None,
                    before => {
                        let after = draw_assignee(rng);
                        let taken = before == Some(after);
                        Some((after + u8::from(taken)) % ASSIGNEES.len() as u8)
                    }
                };
                Change::Assignee(now.map(|place| ASSIGNEES[usize::from(place)]))
            }
            What::Body => {
                let now = &mut self.now[task as usize];
                // Past the end of the count it starts over, with another body than the one before.
                now.edits = now.edits % (u8::MAX - 1) + 1;
                Change::Body(self.generator.body(task, now.edits))
            }
            What::Comment => Change::Comment({
                let bytes = rng.quantile(COMMENT_BYTES);
                words.prose(rng, bytes)
            }),
            What::Priority => {
                let now = &mut self.now[task as usize].priority;
                let before = *now;
                while *now == before {
                    *now = rng.weighted(NEW_PRIORITIES);
                }
                Change::Priority(*now)
            }
            What::Status => {
                let to = self.next_status(rng, task);
                self.now[task as usize].status = to;
                let why = matches!(to, Status::Blocked | Status::Abandoned);
                let reason = why.then(|| words.prose(rng, REASON_BYTES));
                Change::Status { to, reason }
            }
            What::Tag => {
                let now = &mut self.now[task as usize].tags;
                let bit = draw_tag(rng);
                *now ^= 1 << bit;
                Change::Tag {
                    tag: TAGS[usize::from(bit)],
                    on: *now & 1 << bit != 0,
                }
            }
            What::Title => Change::Title(self.generator.title(rng)),
        }
    }

    fn next_status(&self, rng: &mut Rng, task: u32) -> Status {
        let before = self.now[task as usize].status;
        let to = rng.weighted(before.next());
        if to.is_under_way() && !before.is_under_way() && !self.may_start(task) {
            // Not everything it depends on is done: somebody says so instead of starting it.
            return if before == Status::Blocked {
                Status::Ready
            } else {
                Status::Blocked
            };
        }
        to
    }

    fn may_start(&self, task: u32) -> bool {
        let generator = self.generator;
        let depends_on =
            generator.depends_on(task, &generator.outline(task), generator.parent(task));
        depends_on
            .iter()
            .all(|&other| self.now[other as usize].status == Status::Done)
    }
}

/// The type of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Bug,
    Chore,
    Epic,
    Feature,
    Task,
}

impl Kind {
    /// As the board spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Bug => "bug",
            Self::Chore => "chore",
            Self::Epic => "epic",
            Self::Feature => "feature",
            Self::Task => "task",
        }
    }
}

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Abandoned,
    Backlog,
    Blocked,
    Done,
    InProgress,
    Ready,
    Review,
}

impl Status {
    /// As the board spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::Backlog => "backlog",
            Self::Blocked => "blocked",
            Self::Done => "done",
            Self::InProgress => "in_progress",
            Self::Ready => "ready",
            Self::Review => "review",
        }
    }

    /// Started, so whatever it depends on was done.
    fn is_under_way(self) -> bool {
        matches!(self, Self::InProgress | Self::Review | Self::Done)
    }

    /// Where a task goes from here.
    fn next(self) -> &'static [(Self, u32)] {
        match self {
            Self::Abandoned => &[(Self::Backlog, 1)],
            Self::Backlog => &[(Self::Ready, 9), (Self::Abandoned, 1)],
            Self::Blocked => &[(Self::Ready, 1), (Self::InProgress, 1)],
            Self::Done => &[(Self::Ready, 1)],
            Self::InProgress => &[
                (Self::Review, 12),
                (Self::Done, 4),
                (Self::Blocked, 3),
                (Self::Ready, 1),
            ],
            Self::Ready => &[
                (Self::InProgress, 18),
                (Self::Blocked, 1),
                (Self::Backlog, 1),
            ],
            Self::Review => &[(Self::Done, 3), (Self::InProgress, 1)],
        }
    }
}

/// The priority of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    Urgent,
    High,
    Medium,
    Low,
    Lowest,
}

impl Priority {
    /// As the board spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::Lowest => "lowest",
        }
    }
}

/// What a task is, without its text: cheap enough to ask of any task at any time.
#[derive(Debug)]
struct Outline {
    kind: Kind,
    status: Status,
    priority: Priority,
    assignee: Option<u8>,
    tags: u32,
}

/// What a task has become, as far as the next update must know.
#[derive(Clone, Debug)]
struct Now {
    status: Status,
    priority: Priority,
    assignee: Option<u8>,
    tags: u32,
    edits: u8,
}

impl Now {
    fn of(outline: &Outline) -> Self {
        let &Outline {
            kind: _,
            status,
            priority,
            assignee,
            tags,
        } = outline;
        Self {
            status,
            priority,
            assignee,
            tags,
            edits: 0,
        }
    }
}

/// Each has a stream of random numbers of its own, so that a new draw in one moves no other.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Outline = 1,
    Text = 2,
    Parent = 3,
    Dependencies = 4,
    Body = 5,
    Update = 6,
    /// And the number of the section above it: the last.
    Section = 7,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Assignee,
    Body,
    Comment,
    Priority,
    Status,
    Tag,
    Title,
}

/// The tasks at a distance and beyond, nearest first, as far as a search may go.
fn earlier(number: u32, distance: u32) -> impl Iterator<Item = u32> {
    let from = (number + 1).saturating_sub(distance);
    (from.saturating_sub(SEARCH_MAX)..from).rev()
}

/// The lower of two draws: a few people and agents do most of the work.
fn draw_assignee(rng: &mut Rng) -> u8 {
    let count = ASSIGNEES.len() as u32;
    rng.below(count).min(rng.below(count)) as u8
}

/// The lower of two draws: a few tags are everywhere.
fn draw_tag(rng: &mut Rng) -> u8 {
    let count = TAGS.len() as u32;
    rng.below(count).min(rng.below(count)) as u8
}

fn tag_names(tags: u32) -> Vec<&'static str> {
    TAGS.iter()
        .enumerate()
        .filter(|(bit, _)| tags & 1 << bit != 0)
        .map(|(_, tag)| *tag)
        .collect()
}

const KINDS: &[(Kind, u32)] = &[
    (Kind::Task, 690),
    (Kind::Epic, 237),
    (Kind::Bug, 48),
    (Kind::Feature, 20),
    (Kind::Chore, 5),
];

/// The real board knows open and closed only; its open ones are split here over what a board in use shows.
const STATUSES: &[(Status, u32)] = &[
    (Status::Done, 540),
    (Status::Ready, 240),
    (Status::Backlog, 130),
    (Status::Abandoned, 30),
    (Status::InProgress, 25),
    (Status::Blocked, 20),
    (Status::Review, 15),
];

const PRIORITIES: &[(Priority, u32)] = &[
    (Priority::Medium, 879),
    (Priority::High, 82),
    (Priority::Low, 30),
    (Priority::Lowest, 7),
    (Priority::Urgent, 2),
];

/// A change of priority goes to another one, so what most tasks have already cannot be most of the draws.
const NEW_PRIORITIES: &[(Priority, u32)] = &[
    (Priority::High, 40),
    (Priority::Medium, 30),
    (Priority::Low, 15),
    (Priority::Urgent, 10),
    (Priority::Lowest, 5),
];

/// The change mix. What agents do most is to say where they are.
const CHANGES: &[(What, u32)] = &[
    (What::Status, 40),
    (What::Comment, 18),
    (What::Assignee, 15),
    (What::Tag, 10),
    (What::Priority, 8),
    (What::Body, 5),
    (What::Title, 4),
];

/// More than the real board's one task in twelve, so that filters and tag conflicts have something to work on.
const TAG_COUNTS: &[(u32, u32)] = &[(0, 70), (1, 20), (2, 8), (4, 2)];

/// How many dependencies a task has, on average 0.54.
const DEPENDENCY_COUNTS: &[(u32, u32)] = &[(0, 486), (1, 505), (2, 8), (11, 1)];

/// Titles are longer than the real board's (median 24, many made by machines): people and agents write about 50.
const TITLE_BYTES: &[(u32, u32)] = &[(0, 12), (100, 28), (500, 52), (900, 78), (1000, 125)];

/// Bodies: a few are empty, half are under 420 bytes, the longest is the real board's longest.
const BODY_BYTES: &[(u32, u32)] = &[
    (0, 0),
    (27, 0),
    (50, 60),
    (250, 180),
    (500, 420),
    (750, 1000),
    (900, 1900),
    (950, 2800),
    (990, 4000),
    (1000, 7500),
];

const COMMENT_BYTES: &[(u32, u32)] = &[
    (0, 20),
    (250, 60),
    (500, 120),
    (750, 240),
    (950, 700),
    (1000, 2000),
];

const REASON_BYTES: usize = 80;

const ASSIGNED_PER_MILLE: u32 = 320;
const PARENT_PER_MILLE: u32 = 510;
const UNASSIGN_PER_MILLE: u32 = 200;

/// A parent is one of the latest so many epics.
const EPICS_OPEN: u32 = 8;

/// A dependency is at most about so many tasks back.
const DEPENDENCY_REACH: u32 = 200;

/// Bounds every walk back; four epics in a hundred tasks would still fill the open ones within it.
const SEARCH_MAX: u32 = 200;

/// Keeps a much edited body far below the largest the board accepts.
const SECTIONS_MAX: u8 = 8;

const HOT_ONE_IN: u32 = 10;
const HOT_PER_MILLE: u32 = 700;

/// Who works on the board. A benchmark makes these members or delegates before the tasks.
pub(crate) const ASSIGNEES: [&str; 20] = [
    "amber", "basalt", "cedar", "dune", "ember", "fjord", "garnet", "heron", "indigo", "juniper",
    "kestrel", "larch", "marble", "nettle", "opal", "pine", "quartz", "rowan", "slate", "thistle",
];

/// As many as a `u32` has bits.
const TAGS: [&str; 32] = [
    "backend",
    "bug-bash",
    "cli",
    "docs",
    "sync",
    "tests",
    "ui",
    "security",
    "performance",
    "storage",
    "good-first",
    "needs-design",
    "flaky",
    "release",
    "api",
    "refactor",
    "windows",
    "macos",
    "linux",
    "import",
    "export",
    "search",
    "mcp",
    "network",
    "crypto",
    "schema",
    "accessibility",
    "ci",
    "telemetry",
    "packaging",
    "research",
    "wontfix",
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const MANY: u32 = 10_000;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (one, same, other) = (Generator::new(7), Generator::new(7), Generator::new(8));
        let all = |generator: &Generator| {
            (
                generator.tasks(300).collect::<Vec<_>>(),
                generator.updates(0, 300, 900).collect::<Vec<_>>(),
            )
        };
        assert_eq!(all(&one), all(&same));
        assert_ne!(all(&one).0, all(&other).0);
        assert_ne!(all(&one).1, all(&other).1);
    }

    /// Figures are compared between commits: when this fails, the data changed, and older figures no longer compare.
    /// Say so in the change log and pin the new value.
    #[test]
    fn the_data_is_what_it_was() {
        let generator = Generator::new(1);
        let mut digest = Fnv::default();
        for task in generator.tasks(500) {
            digest.add(&task.key);
            digest.add(&task.title);
            digest.add(&task.body);
            digest.add(task.kind.as_str());
            digest.add(task.status.as_str());
            digest.add(task.priority.as_str());
            digest.add(task.assignee.unwrap_or_default());
            digest.add(&task.tags.join(","));
            digest.add(&format!("{:?} {:?}", task.parent, task.depends_on));
        }
        for update in generator.updates(3, 500, 1500) {
            digest.add(&update.key);
            digest.add(&format!("{} {}", update.task, update.by));
            match update.change {
                Change::Assignee(to) => digest.add(to.unwrap_or_default()),
                Change::Body(text) | Change::Comment(text) | Change::Title(text) => {
                    digest.add(&text)
                }
                Change::Priority(to) => digest.add(to.as_str()),
                Change::Status { to, reason } => {
                    digest.add(to.as_str());
                    digest.add(&reason.unwrap_or_default());
                }
                Change::Tag { tag, on } => digest.add(&format!("{tag} {on}")),
            }
        }
        assert_eq!(format!("{:016x}", digest.0), "aee539edfc9df25e");
    }

    #[test]
    fn a_small_board_is_the_beginning_of_a_large_one() {
        let generator = Generator::new(5);
        let tasks: Vec<Task> = generator.tasks(200).collect();
        assert_eq!(tasks[..50], generator.tasks(50).collect::<Vec<_>>());
        assert_eq!(tasks[199], generator.task(199));
        let updates: Vec<Update> = generator.updates(2, 200, 500).collect();
        assert_eq!(
            updates[..100],
            generator.updates(2, 200, 100).collect::<Vec<_>>()
        );
        assert_eq!(generator.updates(2, 200, 500).len(), 500);
    }

    #[test]
    fn proportions_are_those_of_the_board() {
        let generator = Generator::new(11);
        let tasks: Vec<Task> = generator.tasks(MANY).collect();
        let per_mille = |keep: &dyn Fn(&Task) -> bool| {
            tasks.iter().filter(|task| keep(task)).count() * 1000 / tasks.len()
        };
        assert!((860..900).contains(&per_mille(&|task| task.priority == Priority::Medium)));
        assert!((520..560).contains(&per_mille(&|task| task.status == Status::Done)));
        assert!((220..255).contains(&per_mille(&|task| task.kind == Kind::Epic)));
        assert!((480..530).contains(&per_mille(&|task| task.parent.is_some())));
        assert!((300..340).contains(&per_mille(&|task| task.assignee.is_some())));
        assert!((270..330).contains(&per_mille(&|task| !task.tags.is_empty())));
        let edges: usize = tasks.iter().map(|task| task.depends_on.len()).sum();
        assert!(
            (480..600).contains(&(edges * 1000 / tasks.len())),
            "{edges}"
        );

        let lengths = |of: &dyn Fn(&Task) -> usize| {
            let mut lengths: Vec<usize> = tasks.iter().map(of).collect();
            lengths.sort_unstable();
            lengths
        };
        let titles = lengths(&|task| task.title.len());
        assert!(
            (44..=54).contains(&titles[titles.len() / 2]),
            "{}",
            titles[titles.len() / 2]
        );
        assert!(titles[0] > 0 && titles[titles.len() - 1] <= 125);
        let bodies = lengths(&|task| task.body.len());
        assert!(
            (380..=460).contains(&bodies[bodies.len() / 2]),
            "{}",
            bodies[bodies.len() / 2]
        );
        let longest = bodies[bodies.len() - 1];
        assert!((6500..=7500).contains(&longest), "{longest}");
    }

    #[test]
    fn edges_lead_to_earlier_tasks_and_what_is_under_way_waits_for_nothing() {
        let generator = Generator::new(13);
        let tasks: Vec<Task> = generator.tasks(MANY).collect();
        for task in &tasks {
            if let Some(parent) = task.parent {
                assert!(parent < task.number);
                assert_eq!(tasks[parent as usize].kind, Kind::Epic);
            }
            let distinct: BTreeSet<u32> = task.depends_on.iter().copied().collect();
            assert_eq!(distinct.len(), task.depends_on.len());
            for &other in &task.depends_on {
                assert!(other < task.number);
                let other = &tasks[other as usize];
                assert_ne!(other.kind, Kind::Epic);
                assert!(!task.status.is_under_way() || other.status == Status::Done);
            }
            assert_eq!(
                task.abandon_reason.is_some(),
                task.status == Status::Abandoned
            );
            assert_eq!(task.block_reason.is_some(), task.status == Status::Blocked);
        }
    }

    /// Kahn's algorithm over both readings at once: a task waits for what it depends on, an epic for its children.
    #[test]
    fn no_task_waits_for_itself() {
        let tasks: Vec<Task> = Generator::new(17).tasks(MANY).collect();
        let mut waits_for = vec![0_u32; tasks.len()];
        let mut waited_for_by: Vec<Vec<u32>> = vec![Vec::new(); tasks.len()];
        let mut edge = |waiter: u32, first: u32| {
            waits_for[waiter as usize] += 1;
            waited_for_by[first as usize].push(waiter);
        };
        for task in &tasks {
            task.depends_on
                .iter()
                .for_each(|&first| edge(task.number, first));
            task.parent
                .iter()
                .for_each(|&parent| edge(parent, task.number));
        }
        let mut free: Vec<u32> = (0..MANY)
            .filter(|&number| waits_for[number as usize] == 0)
            .collect();
        let mut done = 0;
        while let Some(number) = free.pop() {
            done += 1;
            for &waiter in &waited_for_by[number as usize] {
                waits_for[waiter as usize] -= 1;
                if waits_for[waiter as usize] == 0 {
                    free.push(waiter);
                }
            }
        }
        assert_eq!(done, tasks.len());
    }

    #[test]
    fn keys_are_unique_and_short_enough() {
        let generator = Generator::new(u64::MAX);
        let mut keys = BTreeSet::new();
        let writers = (0..3).flat_map(|writer| generator.updates(writer, 500, 3000));
        for key in generator
            .tasks(500)
            .map(|task| task.key)
            .chain(writers.map(|update| update.key))
        {
            assert!(key.len() <= 128);
            assert!(keys.insert(key.clone()), "{key} twice");
        }
        assert_eq!(keys.len(), 9500);
    }

    #[test]
    fn each_update_is_allowed_and_changes_something() {
        let generator = Generator::new(19);
        let mut tasks: Vec<Task> = generator.tasks(1000).collect();
        let mut mix: BTreeMap<&str, u32> = BTreeMap::new();
        let mut touched = vec![0_u32; tasks.len()];
        for update in generator.updates(0, 1000, MANY) {
            let place = update.task as usize;
            touched[place] += 1;
            let unmet = tasks[place]
                .depends_on
                .iter()
                .any(|&other| tasks[other as usize].status != Status::Done);
            let task = &mut tasks[place];
            let what = match update.change {
                Change::Assignee(to) => {
                    assert_ne!(task.assignee, to);
                    task.assignee = to;
                    "assignee"
                }
                Change::Body(body) => {
                    assert_ne!(task.body, body);
                    assert!(body.len() < 30_000);
                    task.body = body;
                    "body"
                }
                Change::Comment(text) => {
                    assert!(!text.is_empty());
                    "comment"
                }
                Change::Priority(to) => {
                    assert_ne!(task.priority, to);
                    task.priority = to;
                    "priority"
                }
                Change::Status { to, reason } => {
                    assert_ne!(task.status, to);
                    let starts = to.is_under_way() && !task.status.is_under_way();
                    assert!(!starts || !unmet, "{} starts too early", task.number);
                    assert_eq!(
                        reason.is_some_and(|reason| !reason.is_empty()),
                        matches!(to, Status::Blocked | Status::Abandoned)
                    );
                    task.status = to;
                    "status"
                }
                Change::Tag { tag, on } => {
                    assert_ne!(task.tags.contains(&tag), on);
                    if on {
                        task.tags.push(tag);
                    } else {
                        task.tags.retain(|kept| *kept != tag);
                    }
                    "tag"
                }
                Change::Title(title) => {
                    assert_ne!(task.title, title);
                    task.title = title;
                    "title"
                }
            };
            *mix.entry(what).or_default() += 1;
        }
        for (what, percent) in [
            ("status", 40),
            ("comment", 18),
            ("assignee", 15),
            ("tag", 10),
            ("priority", 8),
            ("body", 5),
            ("title", 4),
        ] {
            let expected = MANY * percent / 100;
            let slack = MANY / 50;
            assert!(
                mix[what].abs_diff(expected) < slack,
                "{what}: {}",
                mix[what]
            );
        }
        let hot: u32 = touched.iter().skip(9).step_by(10).sum();
        assert!((6500..8000).contains(&hot), "{hot}");
    }

    #[derive(Debug)]
    struct Fnv(u64);

    impl Default for Fnv {
        fn default() -> Self {
            Self(0xcbf2_9ce4_8422_2325)
        }
    }

    impl Fnv {
        fn add(&mut self, text: &str) {
            for byte in text.bytes().chain([0xff]) {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
}
