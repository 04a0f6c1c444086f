//! Backup and restore: every row of both files through read transactions, into one checked file.

use std::io::{BufReader, BufWriter, Read, Write};

use redb::{ReadTransaction, ReadableDatabase, ReadableTable, WriteTransaction};

use super::{
    Cache, Disk, FORMAT, HOT_FILE, INDEX, INDEX_1, LOCAL, LOG, META, Meta, PACKED_FILE, ROSTER,
    ROWS, STATE, Store, StoreError, TEXTS, hex, open_database,
    packed::{self, Packed},
};

const MAGIC: &[u8; 16] = b"stead backup 1\r\n";
/// Bytes of one row in a backup: a log record, the largest thing there is.
const ROW_BYTES: u32 = 16 << 20;

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BackupHead {
    /// The store's format.
    pub format: u32,
    /// The workspace, in hexadecimal.
    pub workspace: String,
    /// The device key, so that a lost machine can be replaced; the file is as secret as the home.
    pub device_key: String,
    /// When it was made, milliseconds since 1970.
    pub made_at: i64,
    /// Changes in it.
    pub changes: u64,
}

impl Store {
    /// Writes everything that is durable into `out`.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read or `out` not written.
    pub fn backup(&self, head: &BackupHead, out: impl Write) -> Result<u64, StoreError> {
        // Both snapshots between two packings: what leaves one file is then in the other.
        let (hot, packed) = {
            let packing = self.packing();
            let snapshots = (self.hot.begin_read()?, self.packed.read()?);
            drop(packing);
            snapshots
        };
        let encoder = zstd::Encoder::new(out, 3).map_err(StoreError::Io)?;
        let mut writer = Rows {
            out: BufWriter::new(encoder),
            hash: blake3::Hasher::new(),
            rows: 0,
        };
        writer.raw(MAGIC)?;
        writer.row(
            0,
            b"head",
            &serde_json::to_vec(head).map_err(|error| StoreError::Io(error.into()))?,
        )?;
        copy_hot(&hot, &mut writer)?;
        packed::copy_out(&packed, &mut |table, key, value| {
            writer.row(table, key, value)
        })?;
        let rows = writer.rows;
        let hash = *writer.hash.finalize().as_bytes();
        writer.row(u8::MAX, &rows.to_le_bytes(), &hash)?;
        let encoder = writer
            .out
            .into_inner()
            .map_err(|error| StoreError::Io(error.into_error()))?;
        encoder
            .finish()
            .and_then(|mut out| out.flush())
            .map_err(StoreError::Io)?;
        Ok(rows)
    }

    /// Makes a store of a backup, under a new generation, so that its device makes a new
    /// incarnation before it writes.
    ///
    /// # Errors
    ///
    /// Where the backup is damaged, cut or of a newer version: `place` then holds no store that
    /// opens.
    pub fn restore(
        disk: Box<dyn Disk>,
        input: impl Read,
        generation: [u8; 16],
        cache: Cache,
    ) -> Result<(Self, BackupHead), StoreError> {
        let damaged = || StoreError::Broken("the backup is damaged or cut");
        let decoder =
            zstd::Decoder::new(input).map_err(|_| StoreError::Broken("this file is no backup"))?;
        let mut reader = BufReader::new(decoder);
        let mut magic = [0; 16];
        reader
            .read_exact(&mut magic)
            .map_err(|_| StoreError::Broken("this file is no backup"))?;
        if magic != *MAGIC {
            return Err(StoreError::Broken("this file is no backup"));
        }
        let mut hash = blake3::Hasher::new();
        hash.update(&magic);
        let (_, _, head) = read_row(&mut reader, &mut hash)?.ok_or_else(damaged)?;
        let head: BackupHead = serde_json::from_slice(&head).map_err(|_| damaged())?;
        if head.format > FORMAT {
            return Err(StoreError::Newer(head.format));
        }
        let (hot, existed) = open_database(&*disk, HOT_FILE, cache.hot)?;
        if existed {
            return Err(StoreError::Broken("there is a store here already"));
        }
        let (packed_db, _) = open_database(&*disk, PACKED_FILE, cache.packed)?;
        Packed::init(&packed_db, &hex(&generation))?;
        let txn = super::begin(&hot)?;
        let packed_txn = packed_db.begin_write()?;
        let mut rows = 1u64;
        let mut meta: Option<Meta> = None;
        loop {
            let before = *hash.finalize().as_bytes();
            let (table, key, value) = read_row(&mut reader, &mut hash)?.ok_or_else(damaged)?;
            if table == u8::MAX {
                if value != before || key != rows.to_le_bytes() {
                    return Err(damaged());
                }
                break;
            }
            rows += 1;
            if table == T_META && key != b"store" {
                let key = std::str::from_utf8(&key).map_err(|_| damaged())?;
                txn.open_table(META)?.insert(key, value.as_slice())?;
            } else if table == T_META {
                let content = super::codec::open(&value, "store description")?;
                meta = Some(serde_json::from_slice(content).map_err(|_| damaged())?);
            } else if table < packed::FIRST_TABLE {
                put_hot(&txn, table, &key, &value)?;
            } else {
                packed::copy_in(&packed_txn, table, &key, &value)?;
            }
        }
        let meta = Meta {
            format: FORMAT,
            generation: hex(&generation),
            incarnation: String::new(),
            ..meta.ok_or_else(damaged)?
        };
        for table in [STATE, ROWS, TEXTS, INDEX, LOCAL] {
            txn.open_table(table)?;
        }
        txn.open_table(LOG)?;
        txn.open_table(ROSTER)?;
        super::write_meta(&txn, &meta)?;
        packed_txn.commit()?;
        txn.commit()?;
        if head.format < FORMAT {
            super::carry_over(&hot, &packed_db, meta.clone())?;
        }
        let store = Self::assemble(disk, hot, packed_db, meta)?;
        store.rebuild_texts()?;
        Ok((store, head))
    }
}

const T_META: u8 = 1;

fn copy_hot(read: &ReadTransaction, writer: &mut Rows<impl Write>) -> Result<(), StoreError> {
    for row in read.open_table(META)?.iter()? {
        let (key, value) = row?;
        writer.row(T_META, key.value().as_bytes(), value.value())?;
    }
    for (number, table) in [(2, STATE), (3, ROWS), (4, TEXTS), (5, LOCAL), (9, INDEX)] {
        for row in read.open_table(table)?.iter()? {
            let (key, value) = row?;
            writer.row(number, key.value(), value.value())?;
        }
    }
    for row in read.open_table(ROSTER)?.iter()? {
        let (key, value) = row?;
        writer.row(6, &key.value().to_be_bytes(), value.value())?;
    }
    for row in read.open_table(LOG)?.iter()? {
        let (key, value) = row?;
        writer.row(7, &key.value().to_be_bytes(), value.value())?;
    }
    Ok(())
}

fn put_hot(txn: &WriteTransaction, table: u8, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    let damaged = || StoreError::Broken("the backup is damaged or cut");
    match table {
        2 => txn.open_table(STATE)?.insert(key, value).map(|_| ())?,
        3 => txn.open_table(ROWS)?.insert(key, value).map(|_| ())?,
        4 => txn.open_table(TEXTS)?.insert(key, value).map(|_| ())?,
        5 => txn.open_table(LOCAL)?.insert(key, value).map(|_| ())?,
        6 => {
            let seq = u32::from_be_bytes(key.try_into().map_err(|_| damaged())?);
            txn.open_table(ROSTER)?.insert(seq, value).map(|_| ())?;
        }
        7 => {
            let arrival = u64::from_be_bytes(key.try_into().map_err(|_| damaged())?);
            txn.open_table(LOG)?.insert(arrival, value).map(|_| ())?;
        }
        8 => txn.open_table(INDEX_1)?.insert(key, ()).map(|_| ())?,
        9 => txn.open_table(INDEX)?.insert(key, value).map(|_| ())?,
        _ => return Err(damaged()),
    }
    Ok(())
}

struct Rows<W: Write> {
    out: BufWriter<W>,
    hash: blake3::Hasher,
    rows: u64,
}

impl<W: Write> Rows<W> {
    fn raw(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.hash.update(bytes);
        self.out.write_all(bytes).map_err(StoreError::Io)
    }

    fn row(&mut self, table: u8, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.raw(&[table])?;
        for part in [key, value] {
            self.raw(&(part.len() as u32).to_le_bytes())?;
            self.raw(part)?;
        }
        self.rows += 1;
        Ok(())
    }
}

type RowParts = (u8, Vec<u8>, Vec<u8>);

fn read_row(
    reader: &mut impl Read,
    hash: &mut blake3::Hasher,
) -> Result<Option<RowParts>, StoreError> {
    let damaged = |_| StoreError::Broken("the backup is damaged or cut");
    let mut table = [0];
    reader.read_exact(&mut table).map_err(damaged)?;
    hash.update(&table);
    let mut part = || -> Result<Vec<u8>, StoreError> {
        let mut length = [0; 4];
        reader.read_exact(&mut length).map_err(damaged)?;
        hash.update(&length);
        let length = u32::from_le_bytes(length);
        if length > ROW_BYTES {
            return Err(StoreError::Broken("the backup is damaged or cut"));
        }
        let mut bytes = vec![0; length as usize];
        reader.read_exact(&mut bytes).map_err(damaged)?;
        hash.update(&bytes);
        Ok(bytes)
    };
    let (key, value) = (part()?, part()?);
    let [table] = table;
    Ok(Some((table, key, value)))
}
