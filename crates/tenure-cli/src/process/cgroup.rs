//! A control group of its own for the command, where this process may make one: killing it kills
//! everybody in it at once, however fast they fork.
//!
//! Only with cgroup v2, in a group that is ours to divide (as root in a container, or a service with
//! `Delegate=yes`). Where it cannot be had, `family.rs` does without.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A control group, removed when this is dropped, which works once it is empty.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a control group for this guard, below its own; `None` if the system does not allow that.
    pub(crate) fn make(stamp: &OsStr) -> Option<Self> {
        if std::env::var_os("TENURE_TEST_NO_CGROUP").is_some() {
            return None;
        }
        let own = own_group()?;
        remove_orphans(&own);
        let group = Self(own.join(name(std::process::id(), stamp)));
        // Not dropped if it cannot be made: it is not ours to remove then.
        if fs::create_dir(&group.0).is_err() {
            std::mem::forget(group);
            return None;
        }
        // Before Linux 5.14 it has no such file, and then it is of no use.
        group.0.join("cgroup.kill").exists().then_some(group)
    }

    /// The one that a guard below this process has made, if it has.
    pub(crate) fn of_guard(guard: u32, stamp: &OsStr) -> Option<Self> {
        Some(own_group()?.join(name(guard, stamp))).filter(|path| path.exists()).map(Self)
    }

    /// The file that a process writes `0` to in order to join.
    pub(crate) fn door(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    /// Kills everybody in it.
    pub(crate) fn kill(&self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The name of a guard's group. The stamp tells apart guards that have the same process id, as they may in two
/// containers that share a control group.
fn name(guard: u32, stamp: &OsStr) -> String {
    format!("tenure-{guard}-{}", stamp.display())
}

/// Removes what guards have left behind that nobody could clean up after.
fn remove_orphans(own: &Path) {
    for group in fs::read_dir(own).into_iter().flatten().flatten() {
        let guard = group
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix("tenure-")?.split('-').next()?.parse::<u32>().ok());
        if guard.is_some_and(|guard| !Path::new(&format!("/proc/{guard}")).exists()) {
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// The folder of this process's own group.
fn own_group() -> Option<PathBuf> {
    find_own(&fs::read_to_string("/proc/self/cgroup").ok()?, &fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// The same, from the process's `cgroup` and `mountinfo`.
fn find_own(membership: &str, mounts: &str) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mount) = mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        (back.split(' ').next()? == "cgroup2").then_some((front.next()?, front.next()?))
    })?;
    // What lies outside of the part that is mounted here cannot be reached.
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(mount).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 0:20 / /proc rw - proc proc rw\n\
        30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_below_the_mount() {
        let group = find_own("1:cpu:/x\n0::/user.slice/job\n", MOUNTS);
        assert_eq!(group.unwrap(), Path::new("/sys/fs/cgroup/user.slice/job"));
        assert_eq!(find_own("0::/\n", MOUNTS).unwrap(), Path::new("/sys/fs/cgroup"));
    }

    #[test]
    fn without_version_two_there_is_none() {
        assert_eq!(find_own("1:cpu:/x\n", MOUNTS), None);
        assert_eq!(find_own("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n"), None);
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_is_out_of_reach() {
        let mounts = "30 22 0:26 /inner /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(find_own("0::/other\n", mounts), None);
        assert_eq!(find_own("0::/inner/a\n", mounts).unwrap(), Path::new("/sys/fs/cgroup/a"));
    }
}
