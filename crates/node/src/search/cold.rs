//! The index on disk: posting blocks and what their document numbers stand for.
//!
//! A document number names one version of one object's text. A changed text gets a new, greater number and the old one is marked
//! dead, so postings are only appended. Dead versions still count in the document frequencies until the index is rebuilt.

use super::bm25::{LENGTH_CODE_MAX, length_code, length_of};
use super::postings::{
    Block, Blocks, Bytes, Cursor, add_all, append, block_key, decode, end_key, parse_key,
    terms_from,
};
use super::query::{Query, QueryTerm};
use super::terms::IndexedText;
use super::{Damaged, ObjectKey, TextError};
use redb::{
    ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, TableError,
    WriteTransaction,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Posting blocks, by term, zero byte and first document number (big endian).
pub(crate) const POSTINGS: TableDefinition<'static, &'static [u8], &'static [u8]> =
    TableDefinition::new("text_postings");
/// [`DOCS_PER_CHUNK`] documents a row, by number: object key and length code each.
pub(crate) const DOCS: TableDefinition<'static, u32, &'static [u8]> =
    TableDefinition::new("text_documents");
/// The live document number of an object.
pub(crate) const DOC_OF: TableDefinition<'static, &'static [u8; 12], u32> =
    TableDefinition::new("text_document_of");
/// One row: counts and format.
pub(crate) const TEXT_META: TableDefinition<'static, &'static str, &'static [u8]> =
    TableDefinition::new("text_meta");

/// What a merge left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Merged {
    /// Objects that can be found.
    pub(crate) live: u32,
    /// So many postings are of superseded texts that feeding every text to [`Merger::rebuild`] pays.
    pub(crate) needs_rebuild: bool,
}

/// Brings the texts of the given objects up to date; `None` (or a text without terms) takes an object out. Of several entries for
/// one object the last counts. After an error the transaction must be aborted.
pub(crate) fn merge(
    txn: &WriteTransaction,
    changed: &[(ObjectKey, Option<IndexedText>)],
) -> Result<Merged, TextError> {
    let mut merger = Merger::open(txn)?;
    for (key, text) in changed {
        merger.set(*key, text.as_ref())?;
    }
    merger.finish()
}

/// Writes texts into the index, grouped by term so that each block is rewritten once for [`PENDING_POSTINGS_MAX`] postings.
pub(crate) struct Merger<'txn> {
    postings: Table<'txn, &'static [u8], &'static [u8]>,
    docs: Table<'txn, u32, &'static [u8]>,
    doc_of: Table<'txn, &'static [u8; 12], u32>,
    text_meta: Table<'txn, &'static str, &'static [u8]>,
    meta: Meta,
    pending: BTreeMap<Arc<str>, Vec<(u32, u8)>>,
    pending_postings: usize,
    /// [`PENDING_POSTINGS_MAX`], except in tests.
    pub(super) pending_max: usize,
    /// `None`: taken out.
    numbers: BTreeMap<ObjectKey, Option<u32>>,
    /// The entries of the documents from `flushed` on.
    tail: Vec<u8>,
    flushed: u32,
    dead: Vec<u32>,
}

impl<'txn> Merger<'txn> {
    /// Adds to the index that is there, or to an empty one.
    pub(crate) fn open(txn: &'txn WriteTransaction) -> Result<Self, TextError> {
        let text_meta = txn.open_table(TEXT_META)?;
        let meta = match text_meta.get(META_KEY)? {
            Some(bytes) => Meta::read(bytes.value())?,
            None => Meta::default(),
        };
        Ok(Self {
            postings: txn.open_table(POSTINGS)?,
            docs: txn.open_table(DOCS)?,
            doc_of: txn.open_table(DOC_OF)?,
            text_meta,
            flushed: meta.next,
            meta,
            pending: BTreeMap::new(),
            pending_postings: 0,
            pending_max: PENDING_POSTINGS_MAX,
            numbers: BTreeMap::new(),
            tail: Vec::new(),
            dead: Vec::new(),
        })
    }

    /// Starts from nothing: whatever the tables hold, in whatever format, is gone.
    pub(crate) fn rebuild(txn: &'txn WriteTransaction) -> Result<Self, TextError> {
        txn.delete_table(POSTINGS)?;
        txn.delete_table(DOCS)?;
        txn.delete_table(DOC_OF)?;
        txn.delete_table(TEXT_META)?;
        Self::open(txn)
    }

    /// See [`merge`].
    pub(crate) fn set(
        &mut self,
        key: ObjectKey,
        text: Option<&IndexedText>,
    ) -> Result<(), TextError> {
        let old = match self.numbers.get(&key) {
            Some(number) => *number,
            None => self.doc_of.get(&key.0)?.map(|number| number.value()),
        };
        let text = text.filter(|text| !text.is_empty());
        if text.is_some() && self.meta.next == DOCUMENT_NUMBERS_MAX {
            return Err(TextError::Full);
        }
        if let Some(old) = old {
            self.dead.push(old);
            self.numbers.insert(key, None);
            self.meta.live = self
                .meta
                .live
                .checked_sub(1)
                .ok_or(Damaged("text counts"))?;
        }
        if let Some(text) = text {
            let number = self.meta.next;
            self.meta.next += 1;
            self.meta.live += 1;
            self.numbers.insert(key, Some(number));
            let code = length_code(text.length());
            self.meta.length += u64::from(length_of(code));
            self.tail.extend_from_slice(&key.0);
            self.tail.push(code);
            for (term, frequency) in text.terms() {
                match self.pending.get_mut(term) {
                    Some(list) => list.push((number, *frequency)),
                    None => drop(
                        self.pending
                            .insert(Arc::clone(term), vec![(number, *frequency)]),
                    ),
                }
            }
            self.pending_postings += text.terms().len();
            if self.pending_postings >= self.pending_max {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> Result<Merged, TextError> {
        self.flush()?;
        let bytes = postcard::to_stdvec(&self.meta).map_err(|_| Damaged("text counts"))?;
        self.text_meta.insert(META_KEY, bytes.as_slice())?;
        let Meta { live, next, .. } = self.meta;
        let dead = next.checked_sub(live).ok_or(Damaged("text counts"))?;
        Ok(Merged {
            live,
            needs_rebuild: dead > DEAD_KEPT.max(live / 2),
        })
    }

    fn flush(&mut self) -> Result<(), TextError> {
        let mut block = Block::default();
        let mut rows = Vec::new();
        for (term, new) in std::mem::take(&mut self.pending) {
            let last = match self
                .postings
                .range(block_key(&term, 0).as_slice()..end_key(&term).as_slice())?
                .next_back()
            {
                Some(last) => {
                    let (key, value) = last?;
                    decode(
                        value.value(),
                        parse_key(key.value())?.1,
                        self.flushed,
                        &mut block,
                    )?;
                    Some(&block)
                }
                None => None,
            };
            rows.extend(
                append(last, &new)
                    .into_iter()
                    .map(|(first, bytes)| (block_key(&term, first), bytes)),
            );
        }
        for (key, bytes) in page_filling(&rows) {
            self.postings.insert(key.as_slice(), bytes.as_slice())?;
        }
        self.pending_postings = 0;
        self.flush_documents()?;
        let numbers: Vec<_> = std::mem::take(&mut self.numbers).into_iter().collect();
        for (key, number) in page_filling(&numbers) {
            match number {
                Some(number) => drop(self.doc_of.insert(&key.0, number)?),
                None => drop(self.doc_of.remove(&key.0)?),
            }
        }
        self.flush_dead()
    }

    fn flush_documents(&mut self) -> Result<(), TextError> {
        let tail = std::mem::take(&mut self.tail);
        let mut rest = tail.as_slice();
        while !rest.is_empty() {
            let (chunk, used) = (
                self.flushed / DOCS_PER_CHUNK,
                (self.flushed % DOCS_PER_CHUNK) as usize,
            );
            let mut row = self
                .docs
                .get(chunk)?
                .map(|row| row.value().to_vec())
                .unwrap_or_default();
            if row.len() != used * ENTRY {
                return Err(Damaged("text documents").into());
            }
            let (now, later) =
                rest.split_at(rest.len().min((DOCS_PER_CHUNK as usize - used) * ENTRY));
            row.extend_from_slice(now);
            self.docs.insert(chunk, row.as_slice())?;
            self.flushed += (now.len() / ENTRY) as u32;
            rest = later;
        }
        Ok(())
    }

    fn flush_dead(&mut self) -> Result<(), TextError> {
        let mut dead = std::mem::take(&mut self.dead);
        dead.sort_unstable();
        for numbers in dead.chunk_by(|a, b| a / DOCS_PER_CHUNK == b / DOCS_PER_CHUNK) {
            let chunk = numbers[0] / DOCS_PER_CHUNK;
            let mut row = self
                .docs
                .get(chunk)?
                .ok_or(Damaged("text documents"))?
                .value()
                .to_vec();
            for number in numbers {
                let end = ((number % DOCS_PER_CHUNK) as usize + 1) * ENTRY;
                let code = row
                    .get_mut(end - 1)
                    .filter(|code| **code != DEAD)
                    .ok_or(Damaged("text documents"))?;
                let length = u64::from(length_of(*code));
                self.meta.length = self
                    .meta
                    .length
                    .checked_sub(length)
                    .ok_or(Damaged("text counts"))?;
                *code = DEAD;
            }
            self.docs.insert(chunk, row.as_slice())?;
        }
        Ok(())
    }
}

/// Sorted rows in an order that fills pages. redb splits a full page in halves, so rows inserted in order leave every page half empty;
/// a second pass through the same pages fills them. Measured at 100,000 texts: 17.9 MB of pages in
/// place of 20.3.
fn page_filling<T>(sorted: &[T]) -> impl Iterator<Item = &T> {
    let pass = |first: bool| {
        sorted
            .iter()
            .enumerate()
            .filter(move |(at, _)| (at % PASS.1 < PASS.0) == first)
            .map(|(_, row)| row)
    };
    pass(true).chain(pass(false))
}

/// The open table of documents.
type Docs = ReadOnlyTable<u32, &'static [u8]>;

/// The index as of one read transaction.
pub(crate) struct Cold {
    /// `None`: nothing was ever merged.
    tables: Option<(Blocks, Docs)>,
    meta: Meta,
}

impl Cold {
    /// Opens the index; a store without one has an empty index.
    pub(crate) fn open(txn: &ReadTransaction) -> Result<Self, TextError> {
        let text_meta = match txn.open_table(TEXT_META) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Self::empty()),
            Err(error) => return Err(error.into()),
        };
        let Some(bytes) = text_meta.get(META_KEY)? else {
            return Ok(Self::empty());
        };
        let meta = Meta::read(bytes.value())?;
        Ok(Self {
            tables: Some((txn.open_table(POSTINGS)?, txn.open_table(DOCS)?)),
            meta,
        })
    }

    /// An index of nothing.
    pub(crate) fn empty() -> Self {
        Self {
            tables: None,
            meta: Meta::default(),
        }
    }

    /// Objects that can be found.
    pub(crate) fn live(&self) -> u32 {
        self.meta.live
    }

    /// Versions of texts that the document frequencies count.
    pub(super) fn counted(&self) -> u32 {
        self.meta.next
    }

    /// Sum of the live texts' quantised lengths.
    pub(super) fn length(&self) -> u64 {
        self.meta.length
    }

    /// Opens the postings of every term of a query.
    pub(super) fn plan(&self, query: &Query) -> Result<Plan<'_>, TextError> {
        let Some((blocks, docs)) = &self.tables else {
            return Ok(Plan {
                lists: Vec::new(),
                docs: None,
                prefix_cut: false,
            });
        };
        let mut prefix_cut = false;
        let lists = query.terms.iter().map(|term| match term {
            QueryTerm::Exact(term) => Ok(Cursor::open(blocks, term, self.meta.next)?
                .map_or(List::Nothing, |cursor| List::Blocks(Box::new(cursor)))),
            QueryTerm::Prefix { start, stems } => {
                let (mut terms, cut) = terms_from(blocks, start, PREFIX_TERMS_MAX)?;
                prefix_cut |= cut;
                terms.extend(stems.iter().cloned());
                let mut frequencies = Vec::new();
                for term in &terms {
                    add_all(blocks, term, self.meta.next, &mut frequencies)?;
                }
                let union = (0..)
                    .zip(frequencies)
                    .filter(|(_, frequency)| *frequency > 0)
                    .collect();
                Ok(List::Union {
                    postings: union,
                    at: 0,
                })
            }
        });
        let lists = lists.collect::<Result<_, TextError>>()?;
        Ok(Plan {
            lists,
            docs: Some(docs),
            prefix_cut,
        })
    }
}

/// Is called with an object, its length code and the terms' frequencies in the query's order.
pub(super) type Visit<'f> = dyn FnMut(ObjectKey, u8, &[u8]) -> ControlFlow<()> + 'f;

/// The opened postings of one query.
pub(super) struct Plan<'c> {
    /// In the query's order; none at all for an empty index.
    lists: Vec<List<'c>>,
    docs: Option<&'c Docs>,
    /// A prefix has more terms than are looked at.
    pub(super) prefix_cut: bool,
}

impl Plan<'_> {
    /// In how many versions of texts the given term of the query occurs.
    pub(super) fn frequency(&self, term: usize) -> u64 {
        self.lists.get(term).map_or(0, List::postings)
    }

    /// Calls `found` with each live document that has all terms, by ascending number, until it breaks.
    pub(super) fn run(mut self, found: &mut Visit<'_>) -> Result<(), TextError> {
        let Some(docs) = self.docs else { return Ok(()) };
        let mut documents = Documents { docs, chunk: None };
        let mut order: Vec<usize> = (0..self.lists.len()).collect();
        order.sort_by_key(|term| self.lists[*term].postings());
        let Some((&rarest, others)) = order.split_first() else {
            return Ok(());
        };
        let mut frequencies = vec![0; order.len()];
        let mut target = 0;
        'documents: while let Some((document, frequency)) = self.lists[rarest].advance(target)? {
            frequencies[rarest] = frequency;
            target = document + 1;
            for &other in others {
                let Some((next, frequency)) = self.lists[other].advance(document)? else {
                    return Ok(());
                };
                if next != document {
                    target = next;
                    continue 'documents;
                }
                frequencies[other] = frequency;
            }
            if let Some((key, code)) = documents.get(document)?
                && found(key, code, &frequencies).is_break()
            {
                return Ok(());
            }
        }
        Ok(())
    }
}

enum List<'c> {
    Nothing,
    Blocks(Box<Cursor<'c>>),
    /// What several terms have, ascending.
    Union {
        postings: Vec<(u32, u8)>,
        at: usize,
    },
}

impl List<'_> {
    fn postings(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Blocks(cursor) => cursor.postings(),
            Self::Union { postings, .. } => postings.len() as u64,
        }
    }

    fn advance(&mut self, target: u32) -> Result<Option<(u32, u8)>, TextError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Blocks(cursor) => cursor.advance(target),
            Self::Union { postings, at } => {
                if postings
                    .get(*at)
                    .is_some_and(|(document, _)| *document < target)
                {
                    *at += postings[*at..].partition_point(|(document, _)| *document < target);
                }
                Ok(postings.get(*at).copied())
            }
        }
    }
}

/// Looks documents up by ascending number, a chunk at a time.
struct Documents<'c> {
    docs: &'c Docs,
    chunk: Option<(u32, Bytes)>,
}

impl Documents<'_> {
    /// `None`: superseded or taken out.
    fn get(&mut self, document: u32) -> Result<Option<(ObjectKey, u8)>, TextError> {
        let (number, place) = (
            document / DOCS_PER_CHUNK,
            (document % DOCS_PER_CHUNK) as usize * ENTRY,
        );
        if self
            .chunk
            .as_ref()
            .is_none_or(|(chunk, _)| *chunk != number)
        {
            self.chunk = Some((
                number,
                self.docs.get(number)?.ok_or(Damaged("text documents"))?,
            ));
        }
        let entry = self
            .chunk
            .as_ref()
            .and_then(|(_, row)| row.value().get(place..)?.first_chunk::<ENTRY>().copied());
        match entry.ok_or(Damaged("text documents"))? {
            [.., DEAD] => Ok(None),
            [key @ .., code] if code <= LENGTH_CODE_MAX => Ok(Some((ObjectKey(key), code))),
            _ => Err(Damaged("text documents").into()),
        }
    }
}

/// Counts of the whole index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    /// Of the tables and of the terms: a change of either needs a rebuild.
    format: u16,
    /// Live documents; `next - live` are dead.
    live: u32,
    /// The next document number.
    next: u32,
    /// Sum of the live documents' quantised lengths.
    length: u64,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            format: FORMAT,
            live: 0,
            next: 0,
            length: 0,
        }
    }
}

impl Meta {
    fn read(bytes: &[u8]) -> Result<Self, TextError> {
        // The format comes first, so that it can be read whatever follows it.
        let (format, _) =
            postcard::take_from_bytes::<u16>(bytes).map_err(|_| Damaged("text counts"))?;
        if format != FORMAT {
            return Err(TextError::OtherFormat { found: format });
        }
        let meta: Self = postcard::from_bytes(bytes).map_err(|_| Damaged("text counts"))?;
        if meta.live > meta.next || meta.next > DOCUMENT_NUMBERS_MAX {
            return Err(Damaged("text counts").into());
        }
        Ok(meta)
    }
}

/// Raised when the tables or the way terms are cut change.
const FORMAT: u16 = 1;
const META_KEY: &str = "meta";
/// An object key and a length code.
const ENTRY: usize = 13;
/// In place of a length code.
const DEAD: u8 = u8::MAX;
/// Two rows fill one of redb's 4 kB pages; rows for single documents would need four times the look-ups.
pub(crate) const DOCS_PER_CHUNK: u32 = 150;
/// Fewer dead texts cost less than a rebuild does.
pub(crate) const DEAD_KEPT: u32 = 10_000;
/// 160 times the board this is built for; bounds the one array that is indexed by document number.
pub(crate) const DOCUMENT_NUMBERS_MAX: u32 = 1 << 24;
/// 48 MB, plus the terms: what a merge holds in memory before it writes. A board of 100,000 texts is written in one pass.
pub(crate) const PENDING_POSTINGS_MAX: usize = 6_000_000;
/// So many of so many rows are inserted first: pages at a half become pages at five sixths, with room for rows of uneven length.
const PASS: (usize, usize) = (3, 5);
/// Some 3 microseconds each; a prefix that starts more words is too short to be of use.
pub(crate) const PREFIX_TERMS_MAX: usize = 512;
