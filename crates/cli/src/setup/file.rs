//! A person's file on disk: read whole, and replaced whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use super::After;

/// A file as it was found.
#[derive(Debug, Clone)]
pub(crate) struct OnDisk {
    /// The file itself, behind any link.
    target: PathBuf,
    /// Its text; nothing where there is no file.
    before: Option<String>,
    /// Whether a link leads there.
    linked: bool,
}

impl OnDisk {
    /// Reads a file that may not be there.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let linked = match fs::symlink_metadata(path) {
            Ok(found) => found.is_symlink(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    target: path.to_owned(),
                    before: None,
                    linked: false,
                });
            }
            Err(error) => return Err(error),
        };
        let target = if linked {
            fs::canonicalize(path)?
        } else {
            path.to_owned()
        };
        let before = Some(text(&target)?);
        Ok(Self {
            target,
            before,
            linked,
        })
    }

    /// Where it is, where a link leads there.
    pub(crate) fn behind_link(&self) -> Option<&Path> {
        self.linked.then_some(self.target.as_path())
    }

    /// Whether there is such a file.
    pub(crate) fn exists(&self) -> bool {
        self.before.is_some()
    }

    /// Its text without the mark that some editors put first.
    pub(crate) fn text(&self) -> &str {
        let text = self.before.as_deref().unwrap_or_default();
        text.strip_prefix(MARK).unwrap_or(text)
    }

    /// Whether it would stay as it is.
    pub(crate) fn stays(&self, after: &After) -> bool {
        match (after, &self.before) {
            (After::Text(after), Some(_)) => after == self.text(),
            (After::Text(after), None) => after.is_empty(),
            (After::Gone, before) => before.is_none(),
        }
    }

    /// Makes it what it should be. Whoever reads it meanwhile sees the one or the other, whole.
    pub(crate) fn write(&self, after: &After) -> io::Result<()> {
        let now = Self::read(&self.target)?;
        if now.before != self.before {
            return Err(io::Error::other("it changed meanwhile, run this again"));
        }
        let text = match after {
            // Without its target a link leads nowhere; the person made it for something.
            After::Gone if self.linked => "",
            After::Gone => return fs::remove_file(&self.target),
            After::Text(text) => text.as_str(),
        };
        let marked = self
            .before
            .as_deref()
            .is_some_and(|before| before.starts_with(MARK));
        let mark = if marked { MARK } else { "" };
        let place = self.target.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(place)?;
        let name = self
            .target
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let scratch = Scratch(place.join(format!(".{name}.stead-{}", std::process::id())));
        let permissions = match fs::metadata(&self.target) {
            Ok(found) if found.permissions().readonly() => {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it is read-only",
                ));
            }
            Ok(found) => Some(found.permissions()),
            Err(_) => None,
        };
        let mut file = create(&scratch.0, permissions.is_some())?;
        if let Some(permissions) = permissions {
            file.set_permissions(permissions)?;
        }
        file.write_all(mark.as_bytes())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&scratch.0, &self.target)
    }
}

/// A file beside the one to replace; it goes when it was not put in its place.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It has its new name, or there is nothing left to tidy up with.
        drop(fs::remove_file(&self.0));
    }
}

fn text(path: &Path) -> io::Result<String> {
    // Opening a pipe would wait for somebody to write.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(io::Error::other(format!(
            "it is longer than {FILE_BYTES} bytes"
        )));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// A new file. What replaces another one is for its owner alone until it has that one's
/// permissions: clients keep keys in these files.
fn create(path: &Path, private: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if private {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = private;
    options.open(path)
}

/// What some editors put in front of UTF-8.
const MARK: &str = "\u{feff}";

/// Bytes of a file of settings or instructions; a longer one is something else.
const FILE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(path: &Path, text: &str) -> io::Result<()> {
        OnDisk::read(path)?.write(&After::Text(text.into()))
    }

    #[test]
    fn a_file_and_its_directory_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".cursor/mcp.json");
        assert!(!OnDisk::read(&path).unwrap().exists());
        written(&path, "{}").unwrap();
        let found = OnDisk::read(&path).unwrap();
        assert_eq!(found.text(), "{}");
        assert!(found.stays(&After::Text("{}".into())));
        found.write(&After::Gone).unwrap();
        assert!(!path.exists());
        // Nothing else is left beside it.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn the_mark_in_front_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "\u{feff}a").unwrap();
        assert_eq!(OnDisk::read(&path).unwrap().text(), "a");
        written(&path, "b").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "\u{feff}b");
    }

    #[test]
    fn what_changed_meanwhile_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "a").unwrap();
        let found = OnDisk::read(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(found.write(&After::Text("b".into())).is_err());
        assert!(found.write(&After::Gone).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn other_things_than_text_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert!(OnDisk::read(dir.path()).is_err());
        fs::write(&path, b"\xff").unwrap();
        assert!(OnDisk::read(&path).is_err());
        for (bytes, read) in [
            (FILE_BYTES - 1, true),
            (FILE_BYTES, true),
            (FILE_BYTES + 1, false),
        ] {
            File::create(&path).unwrap().set_len(bytes).unwrap();
            assert_eq!(OnDisk::read(&path).is_ok(), read, "{bytes}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn permissions_and_links_stay() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("x"), dir.path().join("link"));
        fs::write(&path, "a").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("x", &link).unwrap();
        written(&link, "b").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "b");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let found = OnDisk::read(&link).unwrap();
        assert!(
            found
                .behind_link()
                .is_some_and(|target| target.ends_with("x"))
        );
        found.write(&After::Gone).unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).unwrap();
        assert!(written(&path, "c").is_err());
        fs::remove_file(&path).unwrap();
        assert!(OnDisk::read(&link).is_err(), "a link to nothing");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
