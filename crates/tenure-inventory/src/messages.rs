//! Lists the messages of the program side by side: errors, log lines and other texts for people.

mod prose;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::page::{self, Mode};
use crate::workspace::{Package, Workspace};

const PAGE: &str = "docs/messages.md";

const INTRODUCTION: &str = "# Messages

The errors, the log lines and the other texts that people read while Tenure runs, so that they can be compared. A value
that is filled in is in braces. `scripts/messages` makes this page from the source; do not edit it.
";

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The message of an error.
    Error,
    /// The message of a log line.
    Log,
    /// A line that the command prints to standard error.
    Stderr,
    /// The message of a panic, which only a bug can cause.
    Panic,
    /// A reason, a hint or another text that becomes part of a message.
    Part,
}

impl Kind {
    fn title(self) -> &'static str {
        match self {
            Self::Error => "Errors",
            Self::Log => "Log lines",
            Self::Stderr => "Standard error of the command",
            Self::Panic => "Panics",
            Self::Part => "Reasons and other texts",
        }
    }

    /// Returns the title of the second column.
    fn detail(self) -> &'static str {
        match self {
            Self::Log => "level and fields",
            _ => "in",
        }
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Message {
    kind: Kind,
    /// The path of the file within its package.
    file: String,
    text: String,
    /// The level and the fields of a log line; otherwise the type, function or constant around the message.
    detail: String,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} | {} | {} |", code(&self.text), code(&self.detail), self.file)
    }
}

/// Writes or checks the page of messages.
pub(crate) fn list(mode: Mode) -> Result<(), String> {
    let workspace = Workspace::load()?;
    let packages = collect(&workspace)?;
    let text = document(&packages);
    println!("{} messages", packages.values().map(BTreeSet::len).sum::<usize>());
    if page::put(mode, &workspace.root, PAGE, &text)? {
        return Ok(());
    }
    Err(format!("{PAGE} is out of date: run scripts/messages, read the difference, and commit it"))
}

/// Prints the messages that break a rule of form, and fails if there are any.
pub(crate) fn style() -> Result<(), String> {
    let mut count = 0;
    for (package, messages) in collect(&Workspace::load()?)? {
        // The form of a part depends on the message around it.
        for message in messages.iter().filter(|message| !matches!(message.kind, Kind::Panic | Kind::Part)) {
            let faults = prose::faults(&message.text);
            count += usize::from(!faults.is_empty());
            faults.iter().for_each(|fault| println!("{package}/{}: {fault}: {:?}", message.file, message.text));
        }
    }
    if count == 0 { Ok(()) } else { Err(format!("{count} messages break a rule of form")) }
}

/// Returns the messages of each published package.
fn collect(workspace: &Workspace) -> Result<BTreeMap<String, BTreeSet<Message>>, String> {
    let packages = workspace.packages.iter().filter(|package| package.published && !package.is_for_tests());
    packages.map(|package| Ok((package.name.clone(), of_package(package)?))).collect()
}

fn of_package(package: &Package) -> Result<BTreeSet<Message>, String> {
    let mut messages = BTreeSet::new();
    for path in sources(&package.folder.join("src")).map_err(|error| format!("{}: {error}", package.name))? {
        let file = path.strip_prefix(&package.folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).map_err(|error| format!("{file}: {error}"))?;
        messages.extend(source::messages(&text, &file)?);
    }
    Ok(messages)
}

/// Returns the source files in a folder, without files of tests: `*_tests.rs`.
fn sources(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if name.ends_with(".rs") && name != "tests.rs" && !name.ends_with("_tests.rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns the page, in Markdown.
fn document(packages: &BTreeMap<String, BTreeSet<Message>>) -> String {
    let mut text = INTRODUCTION.to_owned();
    for (package, messages) in packages {
        text += &format!("\n## {package}\n");
        let mut last = None;
        for message in messages {
            if last.replace(message.kind) != Some(message.kind) {
                text += &format!("\n### {}\n\n", message.kind.title());
                text += &format!("| message | {} | file |\n|---|---|---|\n", message.kind.detail());
            }
            text += &message.to_string();
        }
    }
    text
}

/// Writes a code span for a cell of a table.
fn code(text: &str) -> String {
    let text = text.replace('\n', "\\n").replace('|', "\\|");
    match (text.is_empty(), text.contains('`')) {
        (true, _) => text,
        (_, true) => format!("`` {text} ``"),
        (_, false) => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the same check as `scripts/messages --check`.
    #[test]
    fn the_page_of_messages_is_up_to_date() {
        list(Mode::Check).unwrap();
    }
}
