//! The location of the database, and whether it is usable.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_core::{ConfigError, StoreError};

use crate::{errors, side};

/// The options of a [`SqliteStore`](crate::SqliteStore).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqliteOptions {
    /// The database file. Its directory must exist and be on a local disk. `None`: [`default_path`], whose
    /// directory is created if it is missing.
    pub path: Option<PathBuf>,
}

impl SqliteOptions {
    /// Parses a URL: `sqlite:` for the default file, `sqlite:jobs.db`, `sqlite:/var/lib/jobs.db` or
    /// `sqlite:///var/lib/jobs.db`.
    ///
    /// # Errors
    /// If the URL has another scheme, a host or options. The message is one line.
    pub fn from_url(url: &str) -> Result<Self, ConfigError> {
        let rest = url.strip_prefix("sqlite:").ok_or("a SQLite URL must start with sqlite:")?;
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(local) if local.is_empty() || local.starts_with('/') => local,
            Some(_) => return Err("sqlite: URLs have no host; write sqlite:/path/to/file.db".into()),
        };
        if path.contains('?') {
            return Err("sqlite: URLs have no options; write sqlite:/path/to/file.db".into());
        }
        Ok(Self { path: (!path.is_empty()).then(|| PathBuf::from(path)) })
    }
}

/// Returns the default database: `tenure/tenure.db` in the user's state directory (`$XDG_STATE_HOME`, or
/// `$HOME/.local/state`).
///
/// Returns `None` if neither variable is an absolute path: candidates that run elsewhere would not find a file
/// in any other directory.
pub fn default_path() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    Some(state?.join("tenure/tenure.db"))
}

/// A database file, and the directory `FILE.d` for its locks and notifications.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) database: PathBuf,
    pub(crate) side: PathBuf,
    /// This is the default database, whose directory may be created.
    is_default: bool,
}

impl Place {
    pub(crate) fn new(options: SqliteOptions) -> Self {
        let is_default = options.path.is_none();
        let database = options.path.or_else(default_path).unwrap_or_default();
        // A program that changes its working directory later must still find the same database.
        let is_a_file = !database.as_os_str().is_empty() && database.as_os_str() != ":memory:";
        let database = if is_a_file { std::path::absolute(&database).unwrap_or(database) } else { database };
        let mut side = database.clone().into_os_string();
        side.push(".d");
        Self { database, side: side.into(), is_default }
    }

    /// Creates the directories that may be created, and refuses places that cannot work.
    pub(crate) fn prepare(&self) -> Result<(), StoreError> {
        if self.is_default
            && let Some(folder) = self.database.parent()
        {
            std::fs::create_dir_all(folder).map_err(|error| errors::of_file(folder, error))?;
        }
        self.check()?;
        side::create_folder(self).map_err(|error| errors::of_file(&self.side, error))
    }

    /// Returns whether there is nothing at this place yet, and the database can be created there.
    pub(crate) fn is_vacant(&self) -> bool {
        let is_creatable = self.database.parent().is_some_and(|folder| self.is_default || folder.is_dir());
        is_creatable && self.database.try_exists().is_ok_and(|exists| !exists)
    }

    /// Refuses places that cannot work.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.database.as_os_str().is_empty() {
            return Err(StoreError::denied(
                "no default database, because neither HOME nor XDG_STATE_HOME is an absolute path; \
                 set HOME, or name a file: sqlite:/path/to/file.db",
            ));
        }
        let folder = match self.database.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if self.database.as_os_str() == ":memory:" {
            // SQLite would give each process a database of its own, so each of them would lead.
            return Err(StoreError::denied("an in-memory database cannot be shared with other processes; name a file"));
        }
        match std::fs::metadata(folder) {
            Ok(folder) if folder.is_dir() => {}
            Ok(_) => {
                return Err(StoreError::denied(format!("{} is not a directory; name a file in one", folder.display())));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let shown = folder.display();
                return Err(StoreError::denied(format!("directory {shown} does not exist; run: mkdir -p {shown}")));
            }
            Err(error) => return Err(errors::of_file(folder, error)),
        }
        if self.database.is_dir() {
            return Err(StoreError::denied(format!(
                "{} is a directory; name a file in it, such as {0}/tenure.db",
                self.database.display()
            )));
        }
        refuse_remote(folder)
    }
}

/// Refuses file systems whose locks do not work for this purpose. All processes that share the file must see
/// each other's locks, and the kernel must free the locks of a process that is gone. It does both only for
/// local disks.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn refuse_remote(folder: &Path) -> Result<(), StoreError> {
    let kind = rustix::fs::statfs(folder).map_err(|error| errors::of_file(folder, error.into()))?.f_type;
    // Magic numbers have 32 bits, whatever the type of the field.
    match remote(kind as u32) {
        None => Ok(()),
        Some(name) => Err(StoreError::denied(format!(
            "{} is on {name}, where file locks are not reliable; use a file on a local disk, or a store with a server",
            folder.display()
        ))),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn remote(magic: u32) -> Option<&'static str> {
    REMOTE.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn refuse_remote(_: &Path) -> Result<(), StoreError> {
    Ok(())
}

/// Magic numbers of file systems that several machines can write to, or whose locks a user program implements.
#[cfg(any(target_os = "linux", target_os = "android"))]
const REMOTE: &[(u32, &str)] = &[
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "a VirtualBox shared folder"),
    (0xbacb_acbc, "a VMware shared folder"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn network_and_fuse_file_systems_are_refused_and_local_ones_are_not() {
        // As `stat -f` shows them: NFS, FUSE, SMB 2, then ext4, tmpfs, XFS, Btrfs, overlayfs.
        assert_eq!([0x6969, 0x6573_5546, 0xfe53_4d42].map(remote), [Some("NFS"), Some("FUSE"), Some("SMB")]);
        assert_eq!([0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630].map(remote), [None; 5]);
        assert!(refuse_remote(&std::env::temp_dir()).is_ok());
    }

    #[test]
    fn a_relative_path_is_resolved_when_the_store_is_created() {
        let place = Place::new(SqliteOptions { path: Some("jobs.db".into()) });
        assert_eq!(place.database, std::env::current_dir().unwrap().join("jobs.db"));
        let memory = Place::new(SqliteOptions { path: Some(":memory:".into()) });
        assert!(memory.prepare().is_err());
    }

    #[test]
    fn a_url_names_a_file_or_the_default() {
        let path = |url: &str| SqliteOptions::from_url(url).map(|options| options.path);
        assert_eq!(path("sqlite:"), Ok(None));
        assert_eq!(path("sqlite://"), Ok(None));
        assert_eq!(path("sqlite:jobs.db"), Ok(Some("jobs.db".into())));
        assert_eq!(path("sqlite:/var/lib/jobs.db"), Ok(Some("/var/lib/jobs.db".into())));
        assert_eq!(path("sqlite:///var/lib/jobs.db"), Ok(Some("/var/lib/jobs.db".into())));
        assert!(path("sqlite://host/jobs.db").unwrap_err().to_string().contains("have no host"));
        assert!(path("sqlite:jobs.db?mode=wal").unwrap_err().to_string().contains("have no options"));
    }
}
