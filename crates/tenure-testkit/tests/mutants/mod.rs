//! Mutants: the engine with one defect, as text files in `mutants/`.
//!
//! ```text
//! A sentence that says what is broken.
//! file: crates/tenure-core/src/election.rs
//! caught by: a_paused_leader_stops_believing
//! on: clock
//! --- find
//! until != 0 && self.clock.now().as_nanos() < until
//! --- replace
//! until != 0
//! ```

use std::path::{Path, PathBuf};

/// A defect in the sources of the workspace.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not every test that reads mutants applies them")]
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) caught_by: String,
    /// The subject of `tests/conformance.rs` that the law runs on.
    pub(crate) on: String,
    pub(crate) find: String,
    pub(crate) replace: String,
}

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads all mutants. Each must be well formed, and its `find` text must occur exactly once in its source file.
pub(crate) fn load() -> Result<Vec<Mutant>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let listed = std::fs::read_dir(&folder).map_err(|error| format!("cannot read the mutants: {error}"))?;
    let mut files: Vec<_> = listed.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    let mut mutants = Vec::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "mutant")) {
        let mutant = parse(path).map_err(|problem| format!("{}: {problem}", path.display()))?;
        let source = std::fs::read_to_string(root().join(&mutant.file))
            .map_err(|error| format!("{}: {}: {error}", path.display(), mutant.file.display()))?;
        let found = source.matches(&mutant.find).count();
        if found != 1 {
            return Err(format!(
                "{}: the text under `--- find` occurs {found} times in the source, expected once",
                path.display()
            ));
        }
        mutants.push(mutant);
    }
    Ok(mutants)
}

fn parse(path: &Path) -> Result<Mutant, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (head, rest) = text.split_once("--- find\n").ok_or("has no `--- find`")?;
    let (find, replace) = rest.split_once("--- replace\n").ok_or("has no `--- replace`")?;
    let field = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map(str::to_owned).ok_or_else(|| format!("has no `{name}: `"))
    };
    if head.starts_with("file: ") || find.trim().is_empty() {
        return Err("must start with a sentence, and the text under `--- find` must not be empty".to_owned());
    }
    Ok(Mutant {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        file: field("file")?.into(),
        caught_by: field("caught by")?,
        on: field("on").unwrap_or_else(|_| "clock".to_owned()),
        find: find.trim_end_matches('\n').to_owned(),
        replace: replace.trim_end_matches('\n').to_owned(),
    })
}
