//! A home: the directory that holds device key, token, and the workspace's store.
//!
//! ```text
//! home/device.key                 the device's secret key, hexadecimal
//! home/token                      the owner's token for this machine's node
//! home/node.json                  where a running node listens
//! home/making.lock                locked while a workspace is being made
//! home/workspaces/<id>/           workspace.redb, packed.redb, lease.json
//! ```

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use stead_doc::refusal::{Code, Refusal};
use stead_sync::{DeviceKey, Founding, MemberId, RecoveryKey, Roster};

use crate::{
    edge::World,
    store::{Cache, Directory, Store, StoreError, hex, make_private_dir, replace_file, unhex},
};

/// A home on disk.
#[derive(Debug, Clone)]
pub struct Home(PathBuf);

/// What a new workspace is called and who founds it.
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// The workspace's name; the member's with "'s board" where nothing is said.
    pub name: Option<String>,
    /// The founding member's name; the system user's where nothing is said.
    pub member: Option<String>,
    /// The founding member's address.
    pub email: Option<String>,
}

/// What was made.
#[derive(Debug, Clone)]
pub struct InitReport {
    /// The workspace's name.
    pub workspace_name: String,
    /// The workspace's id.
    pub workspace_id: String,
    /// The founding member's name.
    pub member: String,
    /// The recovery key. Shown once; nothing on this machine keeps it.
    pub recovery_key: String,
}

/// Where a running node listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// Loopback address and port.
    pub address: String,
    /// The process.
    pub pid: u32,
}

/// Why a home cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// There is a workspace already.
    #[error("{0} holds a workspace already")]
    Exists(PathBuf),
    /// There is none.
    #[error("{0} holds no workspace")]
    Missing(PathBuf),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        #[source]
        error: io::Error,
    },
    /// A file is not what this program wrote.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The roster refuses what was asked.
    #[error("{0}")]
    Founding(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<HomeError> for Refusal {
    fn from(error: HomeError) -> Self {
        let hint = match &error {
            HomeError::Exists(_) => "Use it as it is, or name another home with --home.",
            HomeError::Missing(_) => {
                "Run `stead up` (or `stead init`) to make one, or name another home with --home."
            }
            HomeError::Founding(_) => "Choose another name or address.",
            HomeError::Store(StoreError::Locked) => {
                "A node or another command has it open; wait, or stop it with `stead node stop`."
            }
            HomeError::Store(StoreError::Newer(_)) => {
                "Use the version that wrote it, or a newer one."
            }
            HomeError::File { .. } | HomeError::Damaged { .. } | HomeError::Store(_) => {
                "Nothing was changed. Run `stead doctor`, or restore a backup with `stead restore`."
            }
        };
        let code = if matches!(error, HomeError::Founding(_)) {
            Code::InvalidArgument
        } else {
            Code::Unavailable
        };
        let refusal = Self::new(code, format!("{error}."), hint);
        // For whoever waits until the other is done.
        match error {
            HomeError::Store(StoreError::Locked) => refusal.with("locked", true),
            HomeError::Exists(_) => refusal.with("exists", true),
            _ => refusal,
        }
    }
}

impl Home {
    /// The home at a path; nothing is made yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where homes are when nobody says: the platform's place for a user's data. `env` reads the
    /// environment. Nothing where that names no place.
    pub fn default_path(env: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let absolute = |name: &str| env(name).filter(|path| path.is_absolute());
        if cfg!(windows) {
            absolute("LOCALAPPDATA").map(|data| data.join("stead"))
        } else if cfg!(target_os = "macos") {
            absolute("HOME").map(|home| home.join("Library/Application Support/stead"))
        } else {
            absolute("XDG_DATA_HOME")
                .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
                .map(|data| data.join("stead"))
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether it holds a workspace.
    pub fn is_made(&self) -> bool {
        self.workspace_dir().is_ok()
    }

    /// Makes device key, token and workspace.
    ///
    /// # Errors
    ///
    /// Where there is a workspace already or something cannot be written.
    pub fn init(&self, world: &dyn World, options: &InitOptions) -> Result<InitReport, HomeError> {
        if self.is_made() {
            return Err(HomeError::Exists(self.0.clone()));
        }
        let alone = self.alone()?;
        let key = self.make_device_key(world)?;
        let member_name = options
            .member
            .clone()
            .filter(|name| !name.trim().is_empty())
            .unwrap_or_else(|| "owner".to_owned());
        let workspace_name = options
            .name
            .clone()
            .filter(|name| !name.trim().is_empty())
            .unwrap_or_else(|| format!("{member_name}'s board"));
        let recovery = RecoveryKey::from_entropy(&world.entropy());
        let (member, credential) = (id_bytes(world), id_bytes(world));
        let founding = Founding {
            workspace_name: workspace_name.clone(),
            device_name: "this machine".to_owned(),
            recovery: recovery.id(),
            nonce: world.entropy(),
            created_at: u64::try_from(world.wall_ms()).unwrap_or(0),
            member: MemberId::from_bytes(member),
            member_name: member_name.clone(),
            email: options.email.clone(),
            credential: stead_sync::CredentialId::from_bytes(credential),
            credential_name: member_name.clone(),
            token_hash: None,
        };
        let (roster, entry) = Roster::found(&key, founding)
            .map_err(|error| HomeError::Founding(error.to_string()))?;
        let [generation, _] = halves(world.entropy());
        // Made beside its place and moved there whole, so that a start never meets half a store.
        let id = roster.workspace().to_string();
        let beside = self
            .0
            .join("workspaces")
            .join(format!(".new-{}", hex(&generation)));
        let disk = Directory::new(&beside).map_err(|error| self.file("workspaces", error))?;
        let store = Store::create(
            Box::new(disk),
            *roster.workspace().as_bytes(),
            generation,
            &[entry.bytes()],
            Cache::default(),
        )?;
        drop(store);
        self.make_token(world)?;
        let place = self.0.join("workspaces").join(&id);
        std::fs::rename(&beside, &place).map_err(|error| self.file("workspaces", error))?;
        crate::store::sync_dir(&self.0.join("workspaces"))
            .map_err(|error| self.file("workspaces", error))?;
        drop(alone);
        Ok(InitReport {
            workspace_name,
            workspace_id: id,
            member: member_name,
            recovery_key: recovery.reveal(),
        })
    }

    /// Makes the home where it is missing, and keeps others from making a workspace in it while
    /// the file is open: two at once would take each other's device key away.
    ///
    /// # Errors
    ///
    /// Where it cannot be made, or holds a workspace.
    pub(crate) fn alone(&self) -> Result<std::fs::File, HomeError> {
        make_private_dir(&self.0).map_err(|error| self.file("", error))?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options
            .open(self.0.join(MAKING))
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|error| self.file(MAKING, error))?;
        if self.is_made() {
            return Err(HomeError::Exists(self.0.clone()));
        }
        Ok(file)
    }

    /// The directory of the workspace.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn workspace_dir(&self) -> Result<PathBuf, HomeError> {
        let missing = || HomeError::Missing(self.0.clone());
        let mut found: Vec<_> = std::fs::read_dir(self.0.join("workspaces"))
            .map_err(|_| missing())?
            .filter_map(Result::ok)
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
        found.into_iter().next().ok_or_else(missing)
    }

    /// The device key.
    ///
    /// # Errors
    ///
    /// Where the file is missing or damaged.
    pub fn device_seed(&self) -> Result<[u8; 32], HomeError> {
        let path = self.0.join(DEVICE_KEY);
        let text = std::fs::read_to_string(&path).map_err(|error| self.file(DEVICE_KEY, error))?;
        unhex(text.trim()).ok_or(HomeError::Damaged {
            path,
            what: "it is no key in hexadecimal",
        })
    }

    /// Takes the device key of a backup, where this home has none of its own.
    ///
    /// # Errors
    ///
    /// Where there is another one, or it cannot be written.
    pub(crate) fn adopt_key(&self, hexadecimal: &str) -> Result<(), HomeError> {
        let path = self.0.join(DEVICE_KEY);
        if path.exists()
            && self.device_seed().map(|seed| hex(&seed)).ok().as_deref() != Some(hexadecimal)
        {
            return Err(HomeError::Damaged {
                path,
                what: "it is another device's key than the backup's; restore into a new home",
            });
        }
        replace_file(&path, hexadecimal.as_bytes()).map_err(|error| self.file(DEVICE_KEY, error))
    }

    fn make_device_key(&self, world: &dyn World) -> Result<DeviceKey, HomeError> {
        if self.0.join(DEVICE_KEY).exists() {
            return Ok(DeviceKey::from_seed(&self.device_seed()?));
        }
        let seed = world.entropy();
        replace_file(&self.0.join(DEVICE_KEY), hex(&seed).as_bytes())
            .map_err(|error| self.file(DEVICE_KEY, error))?;
        Ok(DeviceKey::from_seed(&seed))
    }

    /// The token that stands for the owner on this machine.
    ///
    /// # Errors
    ///
    /// Where the file is missing or empty.
    pub fn token(&self) -> Result<String, HomeError> {
        let text =
            std::fs::read_to_string(self.0.join(TOKEN)).map_err(|error| self.file(TOKEN, error))?;
        let token = text.trim().to_owned();
        // An empty token would let everybody in who sends none.
        if token.len() < 32 {
            return Err(HomeError::Damaged {
                path: self.0.join(TOKEN),
                what: "it holds no token",
            });
        }
        Ok(token)
    }

    /// Makes a new token for this machine where there is none.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn make_token(&self, world: &dyn World) -> Result<(), HomeError> {
        if self.token().is_ok() {
            return Ok(());
        }
        let token = format!("local_{}", hex(&world.entropy()));
        replace_file(&self.0.join(TOKEN), token.as_bytes()).map_err(|error| self.file(TOKEN, error))
    }

    /// Where a node listens, as the last one that started wrote it.
    pub fn node_file(&self) -> Option<NodeFile> {
        let content = std::fs::read(self.0.join(NODE_FILE)).ok()?;
        serde_json::from_slice(&content).ok()
    }

    /// Says where this process listens.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn write_node_file(&self, node: &NodeFile) -> Result<(), HomeError> {
        let content =
            serde_json::to_vec(node).map_err(|error| self.file(NODE_FILE, error.into()))?;
        replace_file(&self.0.join(NODE_FILE), &content).map_err(|error| self.file(NODE_FILE, error))
    }

    /// Says that nobody listens any more.
    pub fn remove_node_file(&self) {
        if let Err(error) = std::fs::remove_file(self.0.join(NODE_FILE)) {
            tracing::debug!(%error, "node.json was not there to remove");
        }
    }

    fn file(&self, name: &str, error: io::Error) -> HomeError {
        HomeError::File {
            path: self.0.join(name),
            error,
        }
    }
}

const DEVICE_KEY: &str = "device.key";
const TOKEN: &str = "token";
const NODE_FILE: &str = "node.json";
const MAKING: &str = "making.lock";

/// Eight random bytes, as member and credential ids are made of.
pub(crate) fn id_bytes(world: &dyn World) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = world.entropy();
    [a, b, c, d, e, f, g, h]
}

pub(crate) fn halves(bytes: [u8; 32]) -> [[u8; 16]; 2] {
    let mut out = [[0; 16]; 2];
    for (half, chunk) in out.iter_mut().zip(bytes.chunks_exact(16)) {
        half.copy_from_slice(chunk);
    }
    out
}
