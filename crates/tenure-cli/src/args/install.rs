//! The command lines of `tenure completions` and `tenure man`, which `scripts/package` uses.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print the completion script of a shell
///
/// The script completes commands and options, and asks the store for the names of elections and candidates. It waits
/// for the store for at most a second.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > ~/.zfunc/_tenure       with fpath+=(~/.zfunc) before compinit in ~/.zshrc
  tenure completions fish > ~/.config/fish/completions/tenure.fish")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that has a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Write the man pages of all commands into a folder
#[derive(Debug, Args)]
#[command(after_long_help = "\
Example:
  tenure man ~/.local/share/man

Pages of commands are in the subfolder man1, and the page of tenure.toml is in man5.")]
pub(crate) struct Man {
    /// The folder; it is created if it does not exist
    pub(crate) folder: PathBuf,
}
