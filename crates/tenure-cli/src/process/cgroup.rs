//! A control group for the command, where this process can create one. Killing the group kills all of its processes at
//! once, however fast they fork.
//!
//! This needs cgroup v2 and the permission to create groups: as root in a container, or in a service with
//! `Delegate=yes`. Elsewhere `family.rs` finds and kills the processes without a group.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A control group. Dropping it removes the group, if the group is empty.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a control group for the command, below the guard's own group; `None` if the system does not allow that.
    pub(crate) fn make(stamp: &OsStr) -> Option<Self> {
        if std::env::var_os("TENURE_TEST_NO_CGROUP").is_some() {
            return None;
        }
        let own = own_group()?;
        remove_orphans(&own);
        let group = Self(own.join(name(std::process::id(), stamp)));
        match fs::create_dir(&group.0) {
            Ok(()) => {}
            // Left by a shim of this guard that was killed and is still dying.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(_) => return None,
        }
        // Before Linux 5.14 this file does not exist, and the group cannot be killed.
        group.0.join("cgroup.kill").exists().then_some(group)
    }

    /// Returns the control group that a guard of this process has created, if it exists.
    pub(crate) fn of_guard(guard: u32, stamp: &OsStr) -> Option<Self> {
        Some(own_group()?.join(name(guard, stamp))).filter(|path| path.exists()).map(Self)
    }

    /// Returns the path of the file to which a process writes `0` in order to join the group.
    pub(crate) fn procs_file(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Kills all processes in the group.
    pub(crate) fn kill(&self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the name of a guard's group. The stamp distinguishes guards that had the same process id.
fn name(guard: u32, stamp: &OsStr) -> String {
    format!("{}{guard}-{}", prefix(), stamp.display())
}

/// Returns the prefix of the names of all groups whose guards are in this PID namespace. Containers can share a control
/// group, and the process id of a guard has no meaning in another namespace.
fn prefix() -> String {
    format!("tenure-{}-", fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino()))
}

/// Removes the empty groups that dead guards of this PID namespace have left behind.
///
/// The kernel does not remove a group with a living process. The group of a living guard is kept, because it is empty
/// until its first process has joined. Groups of a PID namespace that no longer exists are kept, too.
fn remove_orphans(own: &Path) {
    let prefix = prefix();
    for group in fs::read_dir(own).into_iter().flatten().flatten() {
        let guard = group
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix)?.split('-').next()?.parse::<u32>().ok());
        if guard.is_some_and(|guard| !Path::new(&format!("/proc/{guard}")).exists()) {
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// Returns the folder of the group that this process is in.
fn own_group() -> Option<PathBuf> {
    find_own(&fs::read_to_string("/proc/self/cgroup").ok()?, &fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// Finds the folder of a process's group from the contents of its `cgroup` and `mountinfo` files.
fn find_own(membership: &str, mounts: &str) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mount) = mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        (back.split(' ').next()? == "cgroup2").then_some((front.next()?, front.next()?))
    })?;
    // A group outside of the mounted part of the hierarchy is not accessible here.
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(mount).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 0:20 / /proc rw - proc proc rw\n\
        30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn only_groups_of_dead_guards_of_this_pid_namespace_are_removed() {
        let own = std::env::temp_dir().join(format!("tenure-orphans-{}", std::process::id()));
        // No process has this number.
        let (me, dead) = (std::process::id(), u32::MAX);
        let mut left = ["tenure-1-4294967295-7".to_owned(), name(me, "7".as_ref()), "other".to_owned()];
        for group in left.iter().chain([&name(dead, "7".as_ref())]) {
            fs::create_dir_all(own.join(group)).unwrap();
        }
        remove_orphans(&own);
        let mut found: Vec<_> =
            fs::read_dir(&own).unwrap().map(|group| group.unwrap().file_name().into_string().unwrap()).collect();
        fs::remove_dir_all(&own).unwrap();
        found.sort();
        left.sort();
        assert_eq!(found, left);
    }

    #[test]
    fn the_group_of_this_process_is_found_below_the_mount() {
        let group = find_own("1:cpu:/x\n0::/user.slice/job\n", MOUNTS);
        assert_eq!(group.unwrap(), Path::new("/sys/fs/cgroup/user.slice/job"));
        assert_eq!(find_own("0::/\n", MOUNTS).unwrap(), Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn without_cgroup_v2_there_is_no_group() {
        assert_eq!(find_own("1:cpu:/x\n", MOUNTS), None);
        assert_eq!(find_own("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n"), None);
    }

    #[test]
    fn a_group_outside_of_the_mounted_part_is_not_found() {
        let mounts = "30 22 0:26 /inner /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find_own("0::/other\n", mounts), None);
        assert_eq!(find_own("0::/inner/a\n", mounts).unwrap(), Path::new("/sys/fs/cgroup/a"));
    }
}
