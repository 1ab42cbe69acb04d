//! Generated files of the repository.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The action for a generated file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write it.
    Write,
    /// Fail if the file in the repository is different.
    Check,
}

/// Writes a file, or prints the difference to its new content. Returns whether the file is up to date.
pub(crate) fn put(mode: Mode, root: &Path, path: &str, text: &str) -> Result<bool, String> {
    let file = root.join(path);
    if fs::read_to_string(&file).is_ok_and(|present| present == text) {
        return Ok(true);
    }
    match mode {
        Mode::Write => {
            let folder = file.parent().unwrap_or(root);
            fs::create_dir_all(folder).and_then(|()| fs::write(&file, text)).map_err(|e| format!("{path}: {e}"))?;
            println!("wrote {path}");
            Ok(true)
        }
        Mode::Check => {
            print_difference(root, path, text).map_err(|error| format!("cannot run git diff: {error}"))?;
            Ok(false)
        }
    }
}

/// Prints the difference between a file of the repository and its new content.
fn print_difference(root: &Path, path: &str, text: &str) -> std::io::Result<()> {
    let present = if root.join(path).exists() { path } else { "/dev/null" };
    let mut diff = Command::new("git")
        .args(["--no-pager", "diff", "--no-index", "--unified=0", "--", present, "-"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = diff.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    diff.wait()?;
    Ok(())
}
