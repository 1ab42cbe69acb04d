//! Where the database is, and whether it can be there.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_core::StoreError;

use crate::{errors, side};

/// Where the store keeps its seats.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqliteOptions {
    /// The database file. Its folder must exist and be on a local disk. `None`: [`default_path`],
    /// whose folder is created if it is missing.
    pub path: Option<PathBuf>,
}

impl SqliteOptions {
    /// From a URL: `sqlite:` for the default file, `sqlite:jobs.db`, `sqlite:/var/lib/jobs.db` or
    /// `sqlite:///var/lib/jobs.db`.
    ///
    /// # Errors
    /// In one line, if the URL is of another form.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("sqlite:").ok_or("a URL of this store begins with sqlite:")?;
        let path = match rest.strip_prefix("//") {
            None => rest,
            Some(local) if local.is_empty() || local.starts_with('/') => local,
            Some(_) => return Err("sqlite: takes no host: write sqlite:/path/to/file.db".to_owned()),
        };
        if path.contains('?') {
            return Err("sqlite: takes no options: write sqlite:/path/to/file.db".to_owned());
        }
        Ok(Self { path: (!path.is_empty()).then(|| PathBuf::from(path)) })
    }
}

/// The default database: `tenure/tenure.db` in the user's state folder (`$XDG_STATE_HOME`, or
/// `$HOME/.local/state`). `None` if neither variable is an absolute path: any other folder would be one that
/// the other candidates do not look in.
pub fn default_path() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    Some(state?.join("tenure/tenure.db"))
}

/// A database file, and the folder for locks and notifications beside it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) database: PathBuf,
    pub(crate) side: PathBuf,
    /// Ours to make, if its folder is missing.
    is_default: bool,
}

impl Place {
    pub(crate) fn new(options: SqliteOptions) -> Self {
        let is_default = options.path.is_none();
        let database = options.path.or_else(default_path).unwrap_or_default();
        // A program that changes its folder later must not find another database there.
        let is_a_file = !database.as_os_str().is_empty() && database.as_os_str() != ":memory:";
        let database = if is_a_file { std::path::absolute(&database).unwrap_or(database) } else { database };
        let mut side = database.clone().into_os_string();
        side.push(".d");
        Self { database, side: side.into(), is_default }
    }

    /// Makes what may be made, and refuses what cannot work.
    pub(crate) fn prepare(&self) -> Result<(), StoreError> {
        if self.database.as_os_str().is_empty() {
            return Err(StoreError::denied(
                "no default database: neither HOME nor XDG_STATE_HOME is an absolute path; \
                 set HOME, or name a file: sqlite:/path/to/file.db",
            ));
        }
        let folder = match self.database.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if self.database.as_os_str() == ":memory:" {
            // SQLite would give each process a database of its own, and each would lead.
            return Err(StoreError::denied("a database in memory is shared with no other process: name a file"));
        }
        if self.is_default {
            std::fs::create_dir_all(folder).map_err(|error| errors::of_file(folder, error))?;
        }
        match std::fs::metadata(folder) {
            Ok(folder) if folder.is_dir() => {}
            Ok(_) => return Err(StoreError::denied(format!("{} is not a folder", folder.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let shown = folder.display();
                return Err(StoreError::denied(format!("the folder {shown} does not exist: mkdir -p {shown}")));
            }
            Err(error) => return Err(errors::of_file(folder, error)),
        }
        if self.database.is_dir() {
            return Err(StoreError::denied(format!(
                "{} is a folder: name a file in it, such as {0}/tenure.db",
                self.database.display()
            )));
        }
        refuse_remote(folder)?;
        side::create_folder(self).map_err(|error| errors::of_file(&self.side, error))
    }
}

/// Locks must be seen by all who share the file, and freed when a process is gone: the kernel does
/// that for its own disks alone.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn refuse_remote(folder: &Path) -> Result<(), StoreError> {
    let kind = rustix::fs::statfs(folder).map_err(|error| errors::of_file(folder, error.into()))?.f_type;
    // The magic numbers have 32 bits, whatever the type they come in.
    match remote(kind as u32) {
        None => Ok(()),
        Some(name) => Err(StoreError::denied(format!(
            "{} is on {name}, where locks cannot be trusted: name a file on a local disk, or use a store with a server",
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

/// Magic numbers of file systems that other machines may write to, or whose locks a program answers.
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
    (0x786f_4256, "a folder shared by VirtualBox"),
    (0xbacb_acbc, "a folder shared by VMware"),
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
    fn a_relative_path_is_taken_from_the_folder_of_the_start() {
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
        assert!(path("sqlite://host/jobs.db").unwrap_err().contains("takes no host"));
        assert!(path("sqlite:jobs.db?mode=wal").unwrap_err().contains("takes no options"));
    }
}
