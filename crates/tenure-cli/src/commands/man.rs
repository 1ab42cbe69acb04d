//! `tenure man`: writes the man pages into a folder.

use std::fs;

use clap::CommandFactory;

use crate::args::{Cli, Man};
use crate::failure::Failure;

pub(crate) fn run(args: &Man) -> Result<u8, Failure> {
    // A user who wants to read a page would otherwise get a folder of that name, and no answer.
    let is_page = |name: &str| Cli::command().find_subcommand(name.trim_start_matches("tenure-")).is_some();
    if let Some(name) = args.folder.to_str().filter(|name| is_page(name) && !args.folder.exists()) {
        let command = name.trim_start_matches("tenure-");
        return Err(Failure::new(format!(
            "tenure man writes all pages into a folder; to read about {command}, write: tenure help {command}; for a \
             folder of that name, write: tenure man ./{name}"
        )));
    }
    for (path, page) in crate::man::pages() {
        let path = args.folder.join(path);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, page));
        written.map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(0)
}
