//! The packages of the workspace, as cargo describes them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace.
pub(crate) struct Workspace {
    /// Its folder.
    pub(crate) root: PathBuf,
    /// The folder that cargo builds into.
    pub(crate) target: PathBuf,
    /// Its packages, sorted by name.
    pub(crate) packages: Vec<Package>,
}

/// A package of the workspace.
pub(crate) struct Package {
    /// Its name, such as `tenure-core`.
    pub(crate) name: String,
    /// The folder of its `Cargo.toml`.
    pub(crate) folder: PathBuf,
    /// The name of its library in code, such as `tenure_core`.
    pub(crate) library: Option<String>,
    /// Whether users can depend on the package: it has no `publish = false`.
    pub(crate) published: bool,
}

impl Package {
    /// Returns whether the package is for tests. Its messages appear in the tests of a store, not while Tenure runs.
    pub(crate) fn is_for_tests(&self) -> bool {
        self.name.ends_with("-testkit")
    }
}

impl Workspace {
    /// Reads the workspace from `cargo metadata`.
    pub(crate) fn load() -> Result<Self, String> {
        let mut cargo = cargo();
        cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
        let output = cargo.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("cannot read cargo metadata: {error}"))?;
        let mut packages: Vec<Package> =
            metadata["packages"].as_array().into_iter().flatten().filter_map(package).collect();
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        let path = |key: &str| metadata[key].as_str().map(PathBuf::from).ok_or(format!("cargo metadata has no {key}"));
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, packages })
    }
}

/// Returns a command for cargo, in the folder of the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    cargo
}

fn package(package: &Value) -> Option<Package> {
    let library = package["targets"]
        .as_array()?
        .iter()
        .find(|target| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib")));
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        folder: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
        library: library.and_then(|library| library["name"].as_str()).map(|name| name.replace('-', "_")),
        // With `publish = false` the list of registries is empty.
        published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
    })
}
