//! The view in two layers: what changed since the last folding lies hot, over the packed rest.
//!
//! An entry of the hot tables hides the packed one of the same key; an empty value there hides it
//! altogether. Nobody but a folding takes an entry out of the hot tables, and only one that it has
//! put, with just that value, durably into the packed layer before. So at any moment:
//!
//! **A hot snapshot H over a packed layer P is the view as of H, if P holds every folding whose
//! removal H has seen, and none that was begun from a newer hot snapshot than H.** What was removed
//! is in P by the first, and what P holds of entries that H has too, H hides by an equal or newer
//! value. The second is why a reader takes the packed layer first: a folding that was durable by
//! then began earlier still. See [`super::Store::view`] for readers and [`super::Batch::open`] for
//! the writer.

use std::{borrow::Cow, cmp::Ordering, ops::Bound, ops::ControlFlow, sync::Arc};

use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable, Table, TableDefinition};
use stead_doc::id::ObjectId;

use super::{
    Damage, INDEX, LOG, ROWS, StoreError, TEXTS, index,
    packed::{Base, Blocks},
    rows,
};

/// A part of the view: each has a hot table and packed blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Rows,
    Texts,
    /// Keys alone.
    Index,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Rows, Self::Texts, Self::Index];

    /// Its hot table.
    pub(crate) fn hot(self) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
        match self {
            Self::Rows => ROWS,
            Self::Texts => TEXTS,
            Self::Index => INDEX,
        }
    }

    /// Its packed blocks.
    pub(crate) fn packed(self) -> Blocks {
        match self {
            Self::Rows => Blocks::Rows,
            Self::Texts => Blocks::Texts,
            Self::Index => Blocks::Index,
        }
    }

    /// What the packed layer keeps of a hot value.
    pub(crate) fn plain(self, value: &[u8]) -> Result<Vec<u8>, Damage> {
        match self {
            Self::Rows => rows::open_row(value),
            Self::Texts => rows::open_text(value),
            Self::Index => Ok(Vec::new()),
        }
    }
}

/// In the hot tables: there is nothing under this key, whatever is packed.
pub(crate) const GONE: &[u8] = &[];
/// In the hot index: there is this key.
pub(crate) const THERE: &[u8] = &[1];

/// A value where it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<'a> {
    Hot(&'a [u8]),
    Packed(&'a [u8]),
}

impl<'a> Found<'a> {
    pub(crate) fn plain(self, part: Part) -> Result<Cow<'a, [u8]>, Damage> {
        match self {
            Self::Hot(value) => Ok(Cow::Owned(part.plain(value)?)),
            Self::Packed(value) => Ok(Cow::Borrowed(value)),
        }
    }
}

/// The tables that a view reads: a snapshot's or the open write's.
pub(crate) trait Tables {
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// The rows whose key begins with an object: one for each document that has it.
    fn first_row(&self, object: ObjectId) -> Result<Option<(Vec<u8>, Vec<u8>)>, StoreError>;
    fn text(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    fn log(&self, arrival: u64) -> Result<Option<Vec<u8>>, StoreError>;
    /// The entries of a part from `start` on and before `end`, in order or from the end.
    fn walk(
        &self,
        part: Part,
        start: &[u8],
        end: Option<&[u8]>,
        reverse: bool,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError>;

    /// Index keys from `after`, or else from the first, that begin with `prefix`, in order or from
    /// the end.
    fn scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        reverse: bool,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let end = end_of(prefix);
        self.walk(
            Part::Index,
            after.unwrap_or(prefix),
            Some(&end),
            reverse,
            &mut |key, _| {
                if after == Some(key) {
                    return Ok(ControlFlow::Continue(()));
                }
                Ok(each(key))
            },
        )
    }

    /// Every row's key and value, in key order.
    fn all_rows(
        &self,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.walk(Part::Rows, &[], None, false, &mut |key, found| {
            each(key, found)?;
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// The hot tables over the packed layer.
pub(crate) struct Layers<T, L> {
    pub(super) rows: T,
    pub(super) texts: T,
    pub(super) index: T,
    pub(super) log: L,
    pub(super) base: Arc<Base>,
}

/// The tables of a read transaction.
pub(crate) type Snapshot =
    Layers<ReadOnlyTable<&'static [u8], &'static [u8]>, ReadOnlyTable<u64, &'static [u8]>>;
/// The tables of the open write.
pub(crate) type Writing<'t> =
    Layers<Table<'t, &'static [u8], &'static [u8]>, Table<'t, u64, &'static [u8]>>;

impl Snapshot {
    pub(crate) fn open(database: &redb::Database, base: Arc<Base>) -> Result<Self, StoreError> {
        let read = database.begin_read()?;
        Ok(Self {
            rows: read.open_table(ROWS)?,
            texts: read.open_table(TEXTS)?,
            index: read.open_table(INDEX)?,
            log: read.open_table(LOG)?,
            base,
        })
    }
}

impl<T, L> Layers<T, L> {
    pub(super) fn part(&self, part: Part) -> &T {
        match part {
            Part::Rows => &self.rows,
            Part::Texts => &self.texts,
            Part::Index => &self.index,
        }
    }

    pub(super) fn part_mut(&mut self, part: Part) -> &mut T {
        match part {
            Part::Rows => &mut self.rows,
            Part::Texts => &mut self.texts,
            Part::Index => &mut self.index,
        }
    }
}

impl<T, L> Layers<T, L>
where
    T: ReadableTable<&'static [u8], &'static [u8]>,
{
    fn get(&self, part: Part, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.part(part).get(key)? {
            Some(value) if value.value() == GONE => Ok(None),
            Some(value) => Ok(Some(part.plain(value.value())?)),
            None => self.base.get(part.packed(), key),
        }
    }
}

impl<T, L> Tables for Layers<T, L>
where
    T: ReadableTable<&'static [u8], &'static [u8]>,
    L: ReadableTable<u64, &'static [u8]>,
{
    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(Part::Rows, key)
    }

    fn first_row(&self, object: ObjectId) -> Result<Option<(Vec<u8>, Vec<u8>)>, StoreError> {
        let low = index::row_key(0, object);
        let beyond = index::row_key(u32::MAX, object);
        let mut first = None;
        self.walk(Part::Rows, &low, Some(&beyond), false, &mut |key, found| {
            first = Some((key.to_vec(), found.plain(Part::Rows)?.into_owned()));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    fn text(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(Part::Texts, key)
    }

    fn log(&self, arrival: u64) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.log.get(arrival)?.map(|value| value.value().to_vec()))
    }

    fn walk(
        &self,
        part: Part,
        start: &[u8],
        end: Option<&[u8]>,
        reverse: bool,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let range = (
            Bound::Included(start),
            end.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let mut hot = self.part(part).range::<&[u8]>(range)?;
        let mut next = || if reverse { hot.next_back() } else { hot.next() }.transpose();
        let mut above = next()?;
        let mut below = self.base.cursor(part.packed(), start, end, reverse)?;
        loop {
            let order = match (&above, below.entry()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((hot, _)), Some((packed, _))) if reverse => packed.cmp(hot.value()),
                (Some((hot, _)), Some((packed, _))) => hot.value().cmp(packed),
            };
            let flow = match (&above, below.entry()) {
                (Some((key, value)), _) if order != Ordering::Greater => match value.value() {
                    GONE => ControlFlow::Continue(()),
                    value => each(key.value(), Found::Hot(value))?,
                },
                (_, Some((key, value))) => each(key, Found::Packed(value))?,
                _ => return Ok(()),
            };
            if flow.is_break() {
                return Ok(());
            }
            if order != Ordering::Greater {
                above = next()?;
            }
            if order != Ordering::Less {
                below.advance()?;
            }
        }
    }
}

/// The first key that no longer begins with `prefix`.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![u8::MAX; prefix.len() + 16]
}

#[cfg(test)]
mod tests;
