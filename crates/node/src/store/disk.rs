//! Where the store's files are: real ones, or whatever a test puts in their place.

use std::{
    fmt::Debug,
    fs::{File, OpenOptions},
    io::{self, Read},
    ops::Bound,
    path::{Path, PathBuf},
};

use redb::{BackendError, StorageBackend, backends::FileBackend};

/// Gives the store its files. The simulator gives it files that fail, tear and forget.
pub trait Disk: Debug + Send + Sync {
    /// The backend of a file, made where it is missing; whether it was there before.
    ///
    /// # Errors
    ///
    /// Where the file cannot be opened or made.
    fn backend(&self, name: &str) -> io::Result<(Box<dyn StorageBackend>, bool)>;

    /// A small file's content; nothing where it is missing.
    ///
    /// # Errors
    ///
    /// Where it is there and cannot be read.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Replaces a small file, durably before it returns.
    ///
    /// # Errors
    ///
    /// Where it cannot be written; the old content is then still there.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()>;

    /// Bytes that a file takes.
    ///
    /// # Errors
    ///
    /// Where it is there and cannot be asked.
    fn size(&self, name: &str) -> io::Result<u64>;

    /// Reads the front of a file in one go, so that whoever then reads it here and there finds it in
    /// memory. A hint: where it fails, nothing is lost.
    fn read_ahead(&self, name: &str, bytes: u64) {
        let _ = (name, bytes);
    }
}

/// Files in a directory.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    /// The directory, made where it is missing, for its owner alone.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        make_private_dir(&path)?;
        Ok(Self(path))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Disk for Directory {
    fn backend(&self, name: &str) -> io::Result<(Box<dyn StorageBackend>, bool)> {
        let path = self.0.join(name);
        let existed = path.exists();
        let file = private(
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false),
        )
        .open(&path)?;
        if !existed {
            // redb syncs the file, not the directory: without this a new store can be gone after a
            // power cut although everything in it was acknowledged.
            sync_dir(&self.0)?;
        }
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok((Box::new(backend), existed))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.0.join(name)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        replace_file(&self.0.join(name), content)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        match std::fs::metadata(self.0.join(name)) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn read_ahead(&self, name: &str, bytes: u64) {
        let read = File::open(self.0.join(name))
            .and_then(|file| io::copy(&mut file.take(bytes), &mut io::sink()));
        if let Err(error) = read {
            tracing::debug!(%error, name, "not read ahead");
        }
    }
}

/// Writes a file beside the old one, syncs it, puts it in place and syncs the directory. Readable
/// by its owner alone.
///
/// # Errors
///
/// Where any step fails; the old file is then still in place.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    use io::Write;
    let beside = path.with_extension("new");
    let mut file =
        private(OpenOptions::new().write(true).create(true).truncate(true)).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Makes a directory and those above it, for its owner alone.
///
/// # Errors
///
/// Where it cannot be made.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Makes the names in a directory durable.
///
/// # Errors
///
/// Where the directory cannot be opened or synced.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    // Windows gives no handle on a directory to sync; NTFS journals names by itself.
    if cfg!(windows) {
        Ok(())
    } else {
        File::open(path)?.sync_all()
    }
}

/// A backend behind a pointer, locks included: a wrapper that forgot them would let two processes
/// write one store.
#[derive(Debug)]
pub(crate) struct Boxed(pub(crate) Box<dyn StorageBackend>);

impl StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}
