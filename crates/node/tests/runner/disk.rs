//! A disk that forgets, tears and fails: what is durable, what is only written, and a plan of
//! faults, under real redb.
//!
//! It keeps redb's three assumptions about media: bytes are written whole, a sync that says so is
//! durable, and a write touches nothing but its own range.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;
use stead_node::store::Disk;

use super::world::Rng;

/// A disk. Clones are the same disk; [`SimDisk::copy`] is another one.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimDisk(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, SimFile>,
    small: BTreeMap<String, Vec<u8>>,
    /// Writes, changes of length and syncs so far.
    ops: u64,
    plan: Option<(u64, Fault)>,
    /// The process or the power is gone: nothing answers any more.
    dead: bool,
    /// Backends made before a fault was cleared stay failed, as redb wants it.
    epoch: u64,
    /// Bytes that all files together may have.
    capacity: Option<u64>,
    reads_fail: bool,
}

#[derive(Debug, Default, Clone)]
struct SimFile {
    durable: Vec<u8>,
    live: Vec<u8>,
    unsynced: Vec<Op>,
}

#[derive(Debug, Clone)]
enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

/// What happens at the planned operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Everything stops before it, and nothing answers afterwards.
    Crash,
    /// It fails with EIO; the next one works again.
    Error,
    /// A sync that fails although the data reached the disk; another operation that fails.
    SyncKept,
    /// There is no room from here on.
    Full,
}

/// What a power cut leaves of what was written and not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing is lost: the process ended, the machine did not.
    Process,
    /// Nothing of it.
    Nothing,
    /// A first part.
    Prefix,
    /// Any of it, in any order.
    Subset,
    /// Any of it, each perhaps in part.
    Torn,
    /// The front of the file alone, its growth lost.
    HeaderOnly,
}

impl Cut {
    pub(crate) const ALL: [Self; 6] = [
        Self::Process,
        Self::Nothing,
        Self::Prefix,
        Self::Subset,
        Self::Torn,
        Self::HeaderOnly,
    ];
}

impl SimDisk {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations so far.
    pub(crate) fn ops(&self) -> u64 {
        self.inner().ops
    }

    /// Plans a fault so many operations from now.
    pub(crate) fn fail_in(&self, ops: u64, fault: Fault) {
        let mut inner = self.inner();
        inner.plan = Some((inner.ops + ops, fault));
    }

    /// No fault and no full disk any more.
    pub(crate) fn heal(&self) {
        let mut inner = self.inner();
        inner.plan = None;
        inner.capacity = None;
        inner.reads_fail = false;
    }

    /// Whether the planned fault has happened.
    pub(crate) fn fault_came(&self) -> bool {
        let inner = self.inner();
        inner.plan.is_none() || inner.dead
    }

    /// Every read fails until the disk is healed.
    pub(crate) fn fail_reads(&self) {
        self.inner().reads_fail = true;
    }

    /// The disk as a process that starts now would find it, as a disk of its own.
    pub(crate) fn copy(&self) -> Self {
        self.after(Cut::Process, &mut Rng::new(0))
    }

    /// The disk after the power came back.
    pub(crate) fn after(&self, cut: Cut, rng: &mut Rng) -> Self {
        let inner = self.inner();
        let files = inner
            .files
            .iter()
            .map(|(name, file)| {
                let image = file.after(cut, rng);
                let file = SimFile {
                    durable: image.clone(),
                    live: image,
                    unsynced: Vec::new(),
                };
                (name.clone(), file)
            })
            .collect();
        Self(Arc::new(Mutex::new(Inner {
            files,
            small: inner.small.clone(),
            ..Inner::default()
        })))
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let inner = self.inner();
        match inner.files.get(name) {
            Some(file) => file.live.clone(),
            None => inner.small.get(name).cloned().unwrap_or_default(),
        }
    }

    /// Puts other bytes in a file's place.
    pub(crate) fn set_bytes(&self, name: &str, bytes: Vec<u8>) {
        let mut inner = self.inner();
        if name.ends_with(".redb") {
            let file = SimFile {
                durable: bytes.clone(),
                live: bytes,
                unsynced: Vec::new(),
            };
            inner.files.insert(name.to_owned(), file);
        } else {
            inner.small.insert(name.to_owned(), bytes);
        }
    }
}

impl SimFile {
    fn after(&self, cut: Cut, rng: &mut Rng) -> Vec<u8> {
        let mut image = self.durable.clone();
        let ops = &self.unsynced;
        match cut {
            Cut::Process => return self.live.clone(),
            Cut::Nothing => {}
            Cut::Prefix => {
                for op in ops.iter().take(rng.below(ops.len() + 1)) {
                    op.apply(&mut image);
                }
            }
            Cut::Subset | Cut::Torn => {
                let mut kept: Vec<&Op> = ops.iter().filter(|_| rng.below(2) == 0).collect();
                rng.shuffle(&mut kept);
                for op in kept {
                    match op {
                        Op::Write(at, data) if cut == Cut::Torn && rng.below(2) == 0 => {
                            // Sectors or bytes: both tear.
                            let unit = if rng.below(2) == 0 { 512 } else { 1 };
                            let length = rng.below(data.len() / unit + 1) * unit;
                            Op::Write(*at, data[..length].to_vec()).apply(&mut image);
                        }
                        op => op.apply(&mut image),
                    }
                }
            }
            Cut::HeaderOnly => {
                for op in ops {
                    if let Op::Write(0, _) = op {
                        op.apply(&mut image);
                    }
                }
            }
        }
        image
    }
}

impl Op {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write(at, data) => {
                let end = *at as usize + data.len();
                if image.len() < end {
                    image.resize(end, 0);
                }
                image[*at as usize..end].copy_from_slice(data);
            }
            Self::SetLen(length) => image.resize(*length as usize, 0),
        }
    }
}

fn failed(what: &str) -> io::Error {
    io::Error::other(format!("simulated: {what}"))
}

impl Inner {
    /// Counts an operation; the fault that is planned for it.
    fn step(&mut self) -> io::Result<Option<Fault>> {
        if self.dead {
            return Err(failed("the machine is off"));
        }
        self.ops += 1;
        match self.plan {
            Some((at, fault)) if self.ops >= at => {
                self.plan = None;
                match fault {
                    Fault::Crash => {
                        self.dead = true;
                        Err(failed("crash"))
                    }
                    Fault::Full => {
                        let used = self.files.values().map(|file| file.live.len() as u64).sum();
                        self.capacity = Some(used);
                        Ok(None)
                    }
                    fault => Ok(Some(fault)),
                }
            }
            _ => Ok(None),
        }
    }
}

#[derive(Debug)]
struct Backend {
    disk: SimDisk,
    name: String,
    epoch: u64,
}

impl Backend {
    fn inner(&self) -> io::Result<MutexGuard<'_, Inner>> {
        let inner = self.disk.inner();
        if inner.dead || inner.epoch != self.epoch {
            return Err(failed("the machine is off"));
        }
        Ok(inner)
    }

    fn change(&self, op: Op) -> io::Result<()> {
        let mut inner = self.inner()?;
        if inner.step()?.is_some() {
            return Err(failed("EIO"));
        }
        let capacity = inner.capacity;
        let used: u64 = inner
            .files
            .values()
            .map(|file| file.live.len() as u64)
            .sum();
        let file = inner.files.entry(self.name.clone()).or_default();
        if let (Op::SetLen(length), Some(capacity)) = (&op, capacity)
            && used - file.live.len() as u64 + length > capacity
        {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        op.apply(&mut file.live);
        file.unsynced.push(op);
        Ok(())
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        let inner = self.inner()?;
        Ok(inner
            .files
            .get(&self.name)
            .map_or(0, |file| file.live.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let inner = self.inner()?;
        if inner.reads_fail {
            return Err(failed("EIO on a read"));
        }
        let live = &inner.files[&self.name].live;
        let start = offset as usize;
        let found = live
            .get(start..start + out.len())
            .ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Op::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.inner()?;
        let fault = inner.step()?;
        if fault == Some(Fault::Error) {
            return Err(failed("a sync that did not happen"));
        }
        let file = inner.files.entry(self.name.clone()).or_default();
        for op in std::mem::take(&mut file.unsynced) {
            op.apply(&mut file.durable);
        }
        match fault {
            Some(_) => Err(failed("a sync that happened and failed")),
            None => Ok(()),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Op::Write(offset, data.to_vec()))
    }
}

impl Disk for SimDisk {
    fn backend(&self, name: &str) -> io::Result<(Box<dyn StorageBackend>, bool)> {
        let mut inner = self.inner();
        if inner.dead {
            return Err(failed("the machine is off"));
        }
        let existed = inner.files.contains_key(name);
        inner.files.entry(name.to_owned()).or_default();
        let backend = Backend {
            disk: self.clone(),
            name: name.to_owned(),
            epoch: inner.epoch,
        };
        Ok((Box::new(backend), existed))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let inner = self.inner();
        if inner.dead {
            return Err(failed("the machine is off"));
        }
        Ok(inner.small.get(name).cloned())
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.step()?.is_some() {
            return Err(failed("EIO"));
        }
        inner.small.insert(name.to_owned(), content.to_vec());
        Ok(())
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        let inner = self.inner();
        if inner.dead {
            return Err(failed("the machine is off"));
        }
        Ok(match inner.files.get(name) {
            Some(file) => file.live.len() as u64,
            None => inner
                .small
                .get(name)
                .map_or(0, |content| content.len() as u64),
        })
    }
}
