//! The texts that search reads: packed ones on disk, the others in memory.

use stead_doc::id::ObjectId;

use crate::{
    search::{self, Field, IndexedText, ObjectKey},
    store::{Store, StoreError, index, layers::Tables, view::StoreView},
};

impl Store {
    pub(crate) fn hot_texts(&self) -> std::sync::MutexGuard<'_, Option<search::HotIndex>> {
        self.texts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The text of an object as search knows it; nothing where it has none.
    pub(crate) fn indexed_text<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        document: u32,
        object: ObjectId,
    ) -> Result<Option<IndexedText>, StoreError> {
        let Some(stored) = view.stored_in(document, object)? else {
            return Ok(None);
        };
        if stored.row.kind() != Some("task") {
            return Ok(None);
        }
        let at = view.located(object, document, stored)?;
        let mut texts = Vec::new();
        for (field, weight) in TEXT_FIELDS {
            let value = stead_doc::conflict::load_winner(view, &at, field)
                .map_err(|error| StoreError::Io(std::io::Error::other(error)))?;
            if let Some(text) = value.as_ref().and_then(|value| value.as_str()) {
                texts.push((weight, text.to_owned()));
            }
        }
        let indexed = IndexedText::new(texts.iter().map(|(field, text)| (*field, text.as_str())));
        if indexed.is_cut() {
            tracing::debug!(%object, "the end of this text is beyond what search indexes");
        }
        Ok(Some(indexed))
    }

    /// Feeds every text to a new text index.
    ///
    /// # Errors
    ///
    /// Where a file fails.
    pub fn rebuild_texts(&self) -> Result<(), StoreError> {
        let view = self.view(0)?;
        let mut keys = Vec::new();
        view.tables.all_rows(&mut |key, _| {
            keys.extend(index::read_row_key(key));
            Ok(())
        })?;
        let txn = self.packed.begin()?;
        let mut merger = search::Merger::rebuild(&txn)?;
        for (object, document) in keys {
            let text = self.indexed_text(&view, document, object)?;
            merger.set(ObjectKey(index::row_key(document, object)), text.as_ref())?;
        }
        merger.finish()?;
        txn.commit()?;
        Ok(())
    }

    /// The texts of objects as search will know them, once the open write is durable; nothing where
    /// no search has needed them yet.
    pub(crate) fn index_hot_texts<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        objects: &std::collections::BTreeSet<(u32, ObjectId)>,
    ) -> Result<Option<Vec<(ObjectKey, Option<IndexedText>)>>, StoreError> {
        if objects.is_empty() {
            return Ok(Some(Vec::new()));
        }
        if self.hot_texts().is_none() {
            return Ok(None);
        }
        objects
            .iter()
            .map(|(document, object)| {
                let text = self.indexed_text(view, *document, *object)?;
                Ok((ObjectKey(index::row_key(*document, *object)), text))
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    pub(crate) fn keep_hot_texts(&self, texts: Option<Vec<(ObjectKey, Option<IndexedText>)>>) {
        let mut hot = self.hot_texts();
        let Some(texts) = texts else {
            // A search that built the index while this was written may have read what was before.
            *hot = None;
            return;
        };
        let full = hot.as_mut().is_some_and(|hot| {
            texts
                .into_iter()
                .any(|(key, text)| hot.set(key, text).is_err())
        });
        if full {
            // Built again from the log by the next search.
            *hot = None;
        }
    }

    /// Runs a search with the index of unpacked texts, built by the first one that needs it.
    pub(crate) fn with_texts<R>(
        &self,
        run: impl FnOnce(&search::Cold, &search::HotIndex) -> Result<R, search::TextError>,
    ) -> Result<R, StoreError> {
        let mut hot = self.hot_texts();
        if hot.is_none() {
            // Not the view of whoever searches, which may be older than a write that was answered
            // since: the index outlives this search, and would never learn of that write.
            let view = self.view(0)?;
            let objects: std::collections::BTreeSet<(u32, ObjectId)> = {
                let state = self.state_read();
                state
                    .hot
                    .entries
                    .values()
                    .flat_map(|entry| {
                        let document = state
                            .actors
                            .get(entry.actor as usize)
                            .map(|actor| actor.document);
                        entry
                            .texts
                            .iter()
                            .filter_map(move |object| Some((document?, *object)))
                    })
                    .collect()
            };
            let mut texts = search::HotIndex::new();
            for (document, object) in objects {
                let text = self.indexed_text(&view, document, object)?;
                texts
                    .set(ObjectKey(index::row_key(document, object)), text)
                    .map_err(|error| StoreError::Texts(error.to_string()))?;
            }
            *hot = Some(texts);
        }
        let Some(hot) = hot.as_ref() else {
            return Err(StoreError::Broken("no text index"));
        };
        let cold = search::Cold::open(&self.packed.read()?)?;
        Ok(run(&cold, hot)?)
    }
}

/// The fields that search reads.
pub(crate) const TEXT_FIELDS: [(&str, Field); 3] = [
    ("title", Field::Title),
    ("body", Field::Body),
    ("notes", Field::Notes),
];
