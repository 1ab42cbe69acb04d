//! Finds the program of a command before the candidate stands.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Checks that a program can be executed, where `execvp` would look for it.
///
/// # Errors
/// The error that `execvp` would return, as far as the file shows it, or ISDIR for a folder.
pub(crate) fn find(program: &OsStr) -> Result<(), Errno> {
    if program.as_bytes().contains(&b'/') {
        return check(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut problem = Errno::NOENT;
    for folder in std::env::split_paths(&path) {
        match check(&folder.join(program)) {
            Ok(()) => return Ok(()),
            Err(Errno::ACCESS) => problem = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(problem)
}

fn check(path: &Path) -> Result<(), Errno> {
    access(path, Access::EXEC_OK)?;
    if path.is_dir() { Err(Errno::ISDIR) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_a_shell_finds_it() {
        assert_eq!(find("sh".as_ref()), Ok(()));
        assert_eq!(find("/bin/sh".as_ref()), Ok(()));
        assert_eq!(find("no-such-program".as_ref()), Err(Errno::NOENT));
        assert_eq!(find("./no-such-program".as_ref()), Err(Errno::NOENT));
        assert_eq!(find("/".as_ref()), Err(Errno::ISDIR));
        assert_eq!(find("".as_ref()), Err(Errno::NOENT));
    }
}
