//! What the store keeps in memory: documents, actors, names, projects, and an index of the part of
//! the log that is not packed yet. Bounded by the number of actors and by [`HOT_MAX`]; no object
//! and no history is held.

use std::collections::{BTreeMap, BTreeSet};

use stead_doc::{
    board::DocumentState,
    change::Change,
    document::{DocumentName, Genesis},
    id::{ActorId, ActorTag, ChangeHash, DocumentId, ObjectId},
    view::ProjectEntry,
};

use super::{
    Damage,
    codec::{Reader, put_bytes, put_int, put_uint},
    rows::Numbers,
};

/// Changes kept unpacked before packing starts: what a start reads to index them stays a few
/// megabytes.
pub(crate) const HOT_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) documents: Vec<Document>,
    document_numbers: BTreeMap<DocumentId, u32>,
    pub(crate) actors: Vec<Actor>,
    actor_numbers: BTreeMap<ActorId, u32>,
    names: Vec<String>,
    name_numbers: BTreeMap<String, u32>,
    /// Names, documents and actors that the next commit has to write.
    pub(crate) dirty: BTreeSet<Dirty>,
    pub(crate) projects: BTreeMap<ObjectId, ProjectEntry>,
    pub(crate) hot: Hot,
    /// The arrival number that the next change gets.
    pub(crate) next_arrival: u64,
}

/// Tasks by status of each document, and the projects.
pub(crate) type Counted = (Vec<BTreeMap<String, u64>>, BTreeMap<ObjectId, ProjectEntry>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dirty {
    Document(u32),
    Actor(u32),
    Name(u32),
}

/// Where a document stands.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) name: DocumentName,
    pub(crate) id: DocumentId,
    pub(crate) genesis: ChangeHash,
    pub(crate) heads: BTreeSet<ChangeHash>,
    pub(crate) max_op: u64,
    /// The newest stamp that this node gave, so that its clock never goes back over a restart.
    pub(crate) hlc: u64,
    /// Tasks by status, archived ones apart.
    pub(crate) counts: BTreeMap<String, u64>,
}

/// Where an actor stands in its document: its row of the frontier.
#[derive(Debug, Clone)]
pub(crate) struct Actor {
    pub(crate) id: ActorId,
    pub(crate) document: u32,
    pub(crate) device: [u8; 32],
    pub(crate) incarnation: [u8; 16],
    pub(crate) seq: u64,
    pub(crate) hash: [u8; 32],
    pub(crate) signature: [u8; 64],
    /// The roster entry, counted from 0, that the signature names as the head.
    pub(crate) roster: u32,
    /// Why nothing more of the actor is admitted.
    pub(crate) frozen: Option<String>,
}

/// The part of the log that is not packed yet, without the bytes.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    pub(crate) entries: BTreeMap<u64, HotEntry>,
    pub(crate) by_actor: BTreeMap<(u32, u64), u64>,
    pub(crate) by_hash: BTreeMap<ChangeHash, u64>,
    pub(crate) by_object: BTreeMap<ObjectId, Vec<u64>>,
    pub(crate) by_key: BTreeMap<[u8; 16], u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HotEntry {
    pub(crate) actor: u32,
    pub(crate) seq: u64,
    pub(crate) start_op: u64,
    pub(crate) max_op: u64,
    pub(crate) hash: ChangeHash,
    pub(crate) deps: Vec<ChangeHash>,
    pub(crate) objects: Vec<ObjectId>,
    /// The objects whose text it changed.
    pub(crate) texts: Vec<ObjectId>,
    pub(crate) key: Option<[u8; 16]>,
}

impl State {
    pub(crate) fn document_number(&self, id: DocumentId) -> Option<u32> {
        self.document_numbers.get(&id).copied()
    }

    pub(crate) fn document(&self, number: u32) -> Option<&Document> {
        self.documents.get(number as usize)
    }

    /// The number of a document, made with its genesis where it is new.
    pub(crate) fn open_document(&mut self, workspace: [u8; 16], name: &DocumentName) -> u32 {
        let id = name.id(workspace);
        if let Some(number) = self.document_number(id) {
            return number;
        }
        let genesis = Genesis::of(id).hash;
        let document = Document {
            name: name.clone(),
            id,
            genesis,
            heads: BTreeSet::from([genesis]),
            max_op: Genesis::MAX_OP,
            hlc: 0,
            counts: BTreeMap::new(),
        };
        let number = self.documents.len() as u32;
        self.document_numbers.insert(id, number);
        self.documents.push(document);
        self.dirty.insert(Dirty::Document(number));
        number
    }

    pub(crate) fn actor_by_id(&self, id: ActorId) -> Option<&Actor> {
        self.actors.get(self.known_actor(id)? as usize)
    }

    pub(crate) fn known_actor(&self, id: ActorId) -> Option<u32> {
        self.actor_numbers.get(&id).copied()
    }

    /// The actors of a document that a tag stands for.
    pub(crate) fn actors_by_tag(
        &self,
        document: u32,
        tag: ActorTag,
    ) -> impl Iterator<Item = &Actor> {
        self.actors
            .iter()
            .filter(move |actor| actor.document == document && actor.id.tag() == tag)
    }

    /// Where an actor would author next in a document.
    pub(crate) fn authoring(&self, document: &Document, actor: ActorId) -> DocumentState {
        let last = self.actor_by_id(actor).filter(|known| known.seq > 0);
        DocumentState {
            heads: document.heads.iter().copied().collect(),
            max_op: document.max_op,
            actor,
            last: last.map(|known| (known.seq, ChangeHash(known.hash))),
        }
    }

    /// Takes in a change that the open transaction writes.
    pub(crate) fn advance(&mut self, document: u32, actor: Actor, change: &Change) -> u64 {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        if let Some(document) = self.documents.get_mut(document as usize) {
            for dep in &change.deps {
                document.heads.remove(dep);
            }
            document.heads.insert(change.hash);
            document.max_op = document.max_op.max(change.max_op());
        }
        self.dirty.insert(Dirty::Document(document));
        let number = self.actor_number(actor.id);
        if let Some(slot) = self.actors.get_mut(number as usize) {
            *slot = actor;
        }
        self.dirty.insert(Dirty::Actor(number));
        self.hot.insert(arrival, HotEntry::of(number, change));
        arrival
    }

    /// Remembers that nothing more of an actor is admitted here, and why.
    pub(crate) fn freeze(&mut self, document: u32, actor: ActorId, why: String) {
        let number = self.actor_number(actor);
        if let Some(known) = self.actors.get_mut(number as usize) {
            if known.seq == 0 {
                known.document = document;
            }
            known.frozen = Some(why);
            self.dirty.insert(Dirty::Actor(number));
        }
    }

    /// What is counted of the rows in memory.
    pub(crate) fn counted(&self) -> Counted {
        let counts = self
            .documents
            .iter()
            .map(|document| document.counts.clone());
        (counts.collect(), self.projects.clone())
    }

    /// Puts back what was counted, where rows were not written after all.
    pub(crate) fn put_back(&mut self, (counts, projects): Counted) {
        for (document, counts) in self.documents.iter_mut().zip(counts) {
            document.counts = counts;
        }
        self.projects = projects;
    }

    /// Remembers the newest stamp that this node gave.
    pub(crate) fn stamp(&mut self, document: u32, hlc: u64) {
        if let Some(known) = self.documents.get_mut(document as usize) {
            known.hlc = known.hlc.max(hlc);
            self.dirty.insert(Dirty::Document(document));
        }
    }

    /// Puts back what a start read from disk.
    pub(crate) fn restore(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        let mut reader = Reader::new(key, "state key");
        let [kind] = reader.array()?;
        let number = u32::from_be_bytes(reader.array()?);
        let damage = Damage { what: "state row" };
        match kind {
            b'd' if number as usize == self.documents.len() => {
                let document = Document::decode(value)?;
                self.document_numbers.insert(document.id, number);
                self.documents.push(document);
            }
            b'a' if number as usize == self.actors.len() => {
                let actor = Actor::decode(value)?;
                self.actor_numbers.insert(actor.id, number);
                self.actors.push(actor);
            }
            b'n' if number as usize == self.names.len() => {
                let name = Reader::new(value, "name").text()?;
                self.name_numbers.insert(name.clone(), number);
                self.names.push(name);
            }
            _ => return Err(damage),
        }
        Ok(())
    }

    /// The rows that the open transaction has to write, and forgets that it has to.
    pub(crate) fn take_dirty(&mut self) -> Vec<([u8; 5], Vec<u8>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty
            .into_iter()
            .filter_map(|item| {
                let (kind, number, value) = match item {
                    Dirty::Document(number) => {
                        (b'd', number, self.documents.get(number as usize)?.encode())
                    }
                    Dirty::Actor(number) => {
                        (b'a', number, self.actors.get(number as usize)?.encode())
                    }
                    Dirty::Name(number) => {
                        let mut value = Vec::new();
                        put_bytes(&mut value, self.names.get(number as usize)?.as_bytes());
                        (b'n', number, value)
                    }
                };
                let [a, b, c, d] = number.to_be_bytes();
                Some(([kind, a, b, c, d], value))
            })
            .collect()
    }
}

impl Numbers for State {
    fn actor_number(&mut self, actor: ActorId) -> u32 {
        if let Some(number) = self.actor_numbers.get(&actor) {
            return *number;
        }
        let number = self.actors.len() as u32;
        self.actor_numbers.insert(actor, number);
        self.actors.push(Actor {
            id: actor,
            document: 0,
            device: [0; 32],
            incarnation: [0; 16],
            seq: 0,
            hash: [0; 32],
            signature: [0; 64],
            roster: 0,
            frozen: None,
        });
        self.dirty.insert(Dirty::Actor(number));
        number
    }

    fn actor(&self, number: u32) -> Option<ActorId> {
        self.actors.get(number as usize).map(|actor| actor.id)
    }

    fn name_number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.name_numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.name_numbers.insert(name.to_owned(), number);
        self.dirty.insert(Dirty::Name(number));
        number
    }

    fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }
}

impl Document {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.name.kind.as_bytes());
        put_bytes(&mut out, self.name.key.as_bytes());
        put_uint(&mut out, u64::from(self.name.epoch));
        out.extend(self.id.0);
        out.extend(self.genesis.0);
        put_uint(&mut out, self.max_op);
        put_uint(&mut out, self.hlc);
        put_uint(&mut out, self.heads.len() as u64);
        for head in &self.heads {
            out.extend(head.0);
        }
        put_uint(&mut out, self.counts.len() as u64);
        for (status, count) in &self.counts {
            put_bytes(&mut out, status.as_bytes());
            put_uint(&mut out, *count);
        }
        out
    }

    fn decode(value: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(value, "document row");
        let name = DocumentName {
            kind: reader.text()?,
            key: reader.text()?,
            epoch: reader.small()?,
        };
        let id = DocumentId(reader.array()?);
        let genesis = ChangeHash(reader.array()?);
        let max_op = reader.uint()?;
        let hlc = reader.uint()?;
        let mut heads = BTreeSet::new();
        for _ in 0..reader.count()? {
            heads.insert(ChangeHash(reader.array()?));
        }
        let mut counts = BTreeMap::new();
        for _ in 0..reader.count()? {
            counts.insert(reader.text()?, reader.uint()?);
        }
        Ok(Self {
            name,
            id,
            genesis,
            heads,
            max_op,
            hlc,
            counts,
        })
    }
}

impl Actor {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(200);
        out.extend(self.id.0);
        put_uint(&mut out, u64::from(self.document));
        out.extend(self.device);
        out.extend(self.incarnation);
        put_uint(&mut out, self.seq);
        out.extend(self.hash);
        out.extend(self.signature);
        put_uint(&mut out, u64::from(self.roster));
        put_bytes(
            &mut out,
            self.frozen.as_deref().unwrap_or_default().as_bytes(),
        );
        out
    }

    fn decode(value: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(value, "actor row");
        Ok(Self {
            id: ActorId(reader.array()?),
            document: reader.small()?,
            device: reader.array()?,
            incarnation: reader.array()?,
            seq: reader.uint()?,
            hash: reader.array()?,
            signature: reader.array()?,
            roster: reader.small()?,
            frozen: Some(reader.text()?).filter(|why| !why.is_empty()),
        })
    }
}

impl Hot {
    pub(crate) fn insert(&mut self, arrival: u64, entry: HotEntry) {
        self.by_actor.insert((entry.actor, entry.seq), arrival);
        self.by_hash.insert(entry.hash, arrival);
        for object in &entry.objects {
            self.by_object.entry(*object).or_default().push(arrival);
        }
        if let Some(key) = entry.key {
            self.by_key.entry(key).or_insert(arrival);
        }
        self.entries.insert(arrival, entry);
    }

    /// Forgets what has been packed.
    pub(crate) fn remove(&mut self, arrival: u64) {
        let Some(entry) = self.entries.remove(&arrival) else {
            return;
        };
        self.by_actor.remove(&(entry.actor, entry.seq));
        self.by_hash.remove(&entry.hash);
        for object in &entry.objects {
            if let Some(list) = self.by_object.get_mut(object) {
                list.retain(|other| *other != arrival);
                if list.is_empty() {
                    self.by_object.remove(object);
                }
            }
        }
        if let Some(key) = entry.key
            && self.by_key.get(&key) == Some(&arrival)
        {
            self.by_key.remove(&key);
        }
    }

    /// The change of an actor that holds an op counter.
    pub(crate) fn holding(&self, actor: u32, counter: u64) -> Option<(u64, &HotEntry)> {
        // Counters of one actor grow with its seq, so the change is found by halving.
        let (mut low, mut high) = {
            let mut range = self.by_actor.range((actor, 0)..=(actor, u64::MAX));
            let first = range.next()?.0.1;
            let last = range.next_back().map_or(first, |(key, _)| key.1);
            (first, last)
        };
        while low <= high {
            let middle = low + (high - low) / 2;
            let arrival = *self.by_actor.get(&(actor, middle))?;
            let entry = self.entries.get(&arrival)?;
            if counter < entry.start_op {
                high = middle.checked_sub(1)?;
            } else if counter > entry.max_op {
                low = middle + 1;
            } else {
                return Some((arrival, entry));
            }
        }
        None
    }
}

impl HotEntry {
    pub(crate) fn of(actor: u32, change: &Change) -> Self {
        Self {
            actor,
            seq: change.seq,
            start_op: change.start_op,
            max_op: change.max_op(),
            hash: change.hash,
            deps: change.deps.clone(),
            objects: change.touched().into_iter().collect(),
            texts: {
                let of_text = |op: &&stead_doc::change::Op| {
                    super::packed::TEXT_FIELDS
                        .iter()
                        .any(|(field, _)| *field == op.field)
                };
                let texts: BTreeSet<_> = change
                    .ops
                    .iter()
                    .filter(of_text)
                    .map(|op| op.object)
                    .collect();
                texts.into_iter().collect()
            },
            key: change
                .message
                .key
                .as_deref()
                .map(|key| key_hash(&change.message.credential, key)),
        }
    }
}

impl HotEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        put_uint(out, u64::from(self.actor));
        put_uint(out, self.seq);
        put_uint(out, self.start_op);
        put_uint(out, self.max_op);
        out.extend(self.hash.0);
        put_uint(out, self.deps.len() as u64);
        for dep in &self.deps {
            out.extend(dep.0);
        }
        for objects in [&self.objects, &self.texts] {
            put_uint(out, objects.len() as u64);
            for object in objects {
                put_uint(out, object.to_bits());
            }
        }
        out.push(u8::from(self.key.is_some()));
        out.extend(self.key.iter().flatten());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let actor = reader.small()?;
        let (seq, start_op, max_op) = (reader.uint()?, reader.uint()?, reader.uint()?);
        let hash = ChangeHash(reader.array()?);
        let mut deps = Vec::new();
        for _ in 0..reader.count()? {
            deps.push(ChangeHash(reader.array()?));
        }
        let mut lists = [Vec::new(), Vec::new()];
        for list in &mut lists {
            for _ in 0..reader.count()? {
                let bits = reader.uint()?;
                list.push(ObjectId::from_bits(bits).ok_or_else(|| reader.damage())?);
            }
        }
        let [objects, texts] = lists;
        let [has_key] = reader.array()?;
        let key = if has_key == 0 {
            None
        } else {
            Some(reader.array()?)
        };
        Ok(Self {
            actor,
            seq,
            start_op,
            max_op,
            hash,
            deps,
            objects,
            texts,
            key,
        })
    }
}

/// By what an idempotency key of a credential is looked up.
pub(crate) fn key_hash(credential: &str, key: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"stead key 1");
    hasher.update(&(credential.len() as u64).to_le_bytes());
    hasher.update(credential.as_bytes());
    hasher.update(key.as_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(hasher.finalize().as_bytes().get(..16).unwrap_or(&[0; 16]));
    hash
}

/// A log record as it is stored while it is unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogRecord {
    /// What the index in memory holds of it, so that a start reads it and decodes no change.
    pub(crate) entry: HotEntry,
    pub(crate) seen: i64,
    pub(crate) roster: u32,
    pub(crate) signature: [u8; 64],
    pub(crate) bytes: Vec<u8>,
}

impl LogRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 240);
        self.entry.encode(&mut out);
        put_int(&mut out, self.seen);
        put_uint(&mut out, u64::from(self.roster));
        out.extend(self.signature);
        out.extend(&self.bytes);
        super::codec::seal(&out)
    }

    pub(crate) fn decode(record: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(super::codec::open(record, "log record")?, "log record");
        Ok(Self {
            entry: HotEntry::decode(&mut reader)?,
            seen: reader.int()?,
            roster: reader.small()?,
            signature: reader.array()?,
            bytes: reader.rest().to_vec(),
        })
    }
}
