//! The man pages: one for each command, from the definition of the command line, and `tenure.toml(5)` from the table of
//! options.
//!
//! The pages come from this program, so they fit it in every build. `clap_mangen` would run examples and exit codes
//! together into one paragraph, and leave out the help of options that only `--help` shows.

mod prose;
mod roff;
mod settings;

use clap::{Arg, Command, CommandFactory};

use self::prose::{Block, Prose};
use self::roff::{Page, bold, escape, italic, text};
use crate::args::Cli;

/// Returns the pages: the path of each below the folder `man`, and its text.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut cli = Cli::command();
    cli.build();
    let mut pages = vec![("man1/tenure.1".to_owned(), main_page(&cli))];
    for command in commands(&cli) {
        pages.push((format!("man1/tenure-{}.1", command.get_name()), page(command)));
    }
    pages.push(("man5/tenure.toml.5".to_owned(), settings::page()));
    pages
}

/// Returns the commands that have a page.
fn commands(cli: &Command) -> impl Iterator<Item = &Command> {
    cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn main_page(cli: &Command) -> String {
    let mut page = Page::new("tenure", 1, "elects one leader among many processes");
    let prose = Prose::new(&cli.get_after_help().map(ToString::to_string).unwrap_or_default());
    synopsis(&mut page, cli, &prose);
    page.section("Commands");
    for command in commands(cli) {
        let name = format!("tenure-{}", command.get_name());
        page.item(&format!("{}(1)", bold(&name)), &text(&about(command).0));
    }
    options(&mut page, cli);
    sections(&mut page, &prose);
    page.section("See also");
    page.paragraph(&format!("{}(5)", bold("tenure.toml")));
    page.finish()
}

fn page(command: &Command) -> String {
    let mut page = Page::new(&format!("tenure-{}", command.get_name()), 1, &about(command).0);
    let prose = Prose::new(&command.get_after_long_help().map(ToString::to_string).unwrap_or_default());
    synopsis(&mut page, command, &prose);
    options(&mut page, command);
    sections(&mut page, &prose);
    page.section("See also");
    page.paragraph(&format!("{}(1), {}(5)", bold("tenure"), bold("tenure.toml")));
    page.finish()
}

/// Returns the first paragraph of the help, and the rest.
fn about(command: &Command) -> (String, String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    about.split_once("\n\n").map_or((about.clone(), String::new()), |(first, rest)| (first.to_owned(), rest.to_owned()))
}

fn synopsis(page: &mut Page, command: &Command, prose: &Prose) {
    page.section("Synopsis");
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let name = command.get_bin_name().unwrap_or("tenure");
    let rest = usage.strip_prefix(name).unwrap_or(usage);
    let words =
        rest.split_whitespace().map(|word| match word.strip_prefix('<').and_then(|word| word.strip_suffix('>')) {
            Some(value) => italic(value),
            None => escape(word),
        });
    page.paragraph(&format!("{} {}", bold(name), words.collect::<Vec<_>>().join(" ")));

    page.section("Description");
    let (first, rest) = about(command);
    let description = if rest.is_empty() { first } else { rest };
    // The help of a command has no full stop at its end.
    page.paragraph(&format!("{}.", text(&description).trim_end_matches('.')));
    blocks(page, &prose.loose);
}

/// Writes the options, grouped as in the help.
fn options(page: &mut Page, command: &Command) {
    let shown: Vec<&Arg> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for heading in shown.iter().map(|argument| argument.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    page.section("Options");
    for heading in headings {
        if let Some(heading) = heading {
            page.subsection(heading);
        }
        for argument in shown.iter().filter(|argument| argument.get_help_heading() == heading) {
            page.item(&tag(argument), &description(argument));
        }
    }
}

/// Formats the names of an option: `-w, --wait TIME`.
fn tag(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| bold(&format!("-{short}")));
    let long = argument.get_long().map(|long| bold(&format!("--{long}")));
    let takes_value = argument.get_num_args().is_some_and(|number| number.takes_values());
    let value = argument.get_value_names().filter(|_| takes_value).map(|names| italic(&names.join(" ")));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    [names.join(", "), value.unwrap_or_default()].join(" ").trim().to_owned()
}

fn description(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut description = text(&help);
    let takes_value = argument.get_num_args().is_some_and(|number| number.takes_values());
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| takes_value && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("{} ({})", bold(value.get_name()), text(&lower_first(&help.to_string()))),
            None => bold(value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        description += &format!(" [possible values: {}]", values.join(", "));
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_value && !defaults.is_empty() {
        description += &escape(&format!(" [default: {}]", defaults.join(",")));
    }
    if let Some(variable) = argument.get_env() {
        description += &format!(" [variable: {}]", bold(&variable.to_string_lossy()));
    }
    description
}

fn sections(page: &mut Page, prose: &Prose) {
    for (title, content) in &prose.sections {
        page.section(title);
        blocks(page, content);
    }
}

fn blocks(page: &mut Page, blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Paragraph(paragraph) => page.paragraph(&text(paragraph)),
            Block::Lines(lines) => page.lines(lines),
            Block::Item(tag, description) => page.item(&bold(tag), &text(description)),
        }
    }
}

fn lower_first(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    first.to_lowercase() + rest
}

#[cfg(test)]
mod tests;
