//! Lists the public items of the library crates and the messages of the program in `docs/`, and checks that both lists are
//! up to date. A reviewer then sees each change to them in the diff.
//!
//! `scripts/api` and `scripts/messages` call this program.

mod api;
mod messages;
mod page;
mod workspace;

use std::process::ExitCode;

use page::Mode;

const USAGE: &str = "usage: tenure-inventory api [--check | --undocumented]\n       \
                     tenure-inventory messages [--check | --style]";

fn main() -> ExitCode {
    if let Some(rustdoc) = std::env::var_os(api::RUSTDOC) {
        return api::be_rustdoc(&rustdoc);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["api"] => api::list(Mode::Write),
        ["api", "--check"] => api::list(Mode::Check),
        ["api", "--undocumented"] => api::undocumented(),
        ["messages"] => messages::list(Mode::Write),
        ["messages", "--check"] => messages::list(Mode::Check),
        ["messages", "--style"] => messages::style(),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
