//! The pages have everything that the help has, in a form that `man` shows as it is meant.

use super::*;

fn page_of<'a>(pages: &'a [(String, String)], name: &str) -> &'a str {
    &pages.iter().find(|(path, _)| path.ends_with(&format!("/{name}"))).unwrap_or_else(|| panic!("no page {name}")).1
}

/// Returns the text of a page without its markup, as words.
fn words(roff: &str) -> Vec<String> {
    let plain = roff.lines().filter(|line| !line.starts_with('.')).collect::<Vec<_>>().join("\n");
    unescaped(&plain).split_whitespace().map(str::to_owned).collect()
}

fn unescaped(roff: &str) -> String {
    let mut plain = roff.to_owned();
    for (from, to) in [
        ("\\fB", ""),
        ("\\fI", ""),
        ("\\fR", ""),
        ("\\&", ""),
        ("\\-", "-"),
        ("\\(aq", "'"),
        ("\\(ga", "`"),
        ("\\(ha", "^"),
        ("\\(ti", "~"),
        ("\\(dq", "\""),
        ("\\[u2026]", "…"),
        ("\\e", "\\"),
    ] {
        plain = plain.replace(from, to);
    }
    plain
}

#[test]
fn every_command_and_option_is_in_a_page() {
    let mut cli = Cli::command();
    cli.build();
    let pages = pages();
    for command in commands(&cli) {
        let name = command.get_name();
        let main = unescaped(page_of(&pages, "tenure.1"));
        assert!(main.contains(&format!("tenure-{name}(1)")), "{name}");
        let page = unescaped(page_of(&pages, &format!("tenure-{name}.1")));
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let names = argument.get_long().map(|long| format!("--{long}"));
            let names = names.or(argument.get_short().map(|short| format!("-{short}")));
            let names = names.unwrap_or_else(|| argument.get_value_names().unwrap()[0].to_string());
            assert!(page.lines().any(|line| line.contains(&names)), "{names} in {name}");
            let help = argument.get_long_help().or(argument.get_help()).unwrap().to_string().replace('`', "");
            assert!(words(&page).join(" ").contains(&*help), "{name}: {help}");
        }
    }
    let settings = page_of(&pages, "tenure.toml.5");
    for option in tenure::ElectionOptions::TABLE {
        assert!(settings.contains(&format!(".TP\n\\fB{}\\fR", option.name)), "{}", option.name);
    }
}

#[test]
fn no_word_of_a_help_text_is_lost() {
    let mut cli = Cli::command();
    cli.build();
    let pages = pages();
    for command in commands(&cli) {
        let page = words(page_of(&pages, &format!("tenure-{}.1", command.get_name()))).join(" ").replace('`', "");
        let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default().replace('`', "");
        for line in help.lines().filter(|line| !is_title(line)) {
            for cell in line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()) {
                assert!(page.contains(cell), "{}: {cell}", command.get_name());
            }
        }
    }
}

fn is_title(line: &str) -> bool {
    !line.starts_with(' ') && line.ends_with([':', '?'])
}

#[test]
fn lines_are_text_or_known_requests() {
    for (path, page) in pages() {
        assert!(page.starts_with(".TH \"TENURE"), "{path}");
        for line in page.lines() {
            let request = line.strip_prefix('.').map(|line| line.split(' ').next().unwrap());
            assert!(
                request.is_none_or(|request| {
                    ["TH", "SH", "SS", "PP", "TP", "RS", "RE", "nf", "fi", "sp", "nh", "ad"].contains(&request)
                }),
                "{path}: {line}"
            );
            assert!(!line.is_empty() && !line.starts_with('\'') && line.is_ascii(), "{path}: {line}");
        }
    }
}

#[test]
fn examples_are_lines_and_exit_codes_are_items() {
    let pages = pages();
    let status = page_of(&pages, "tenure-status.1");
    let section = |title: &str| {
        let begin = status.find(&format!(".SH \"{title}\"\n")).unwrap_or_else(|| panic!("no section {title}"));
        let rest = &status[begin + 1..];
        &rest[..rest.find(".SH ").unwrap_or(rest.len())]
    };
    let lines = section("EXAMPLES").split(".nf\n").nth(1).unwrap().split(".fi\n").next().unwrap();
    assert!(lines.lines().any(|line| line == "tenure status nightly\\-jobs"), "{lines}");
    assert!(section("EXIT CODES").contains("\n.TP\n\\fB1\\fR\n"), "{}", section("EXIT CODES"));
    assert!(status.find("EXIT CODES") < status.find("EXAMPLES") && status.find("EXAMPLES") < status.find("SEE ALSO"));
}

#[test]
fn tables_and_lines_are_recognized() {
    let prose = Prose::new(
        "Examples:\n  one   two\n    three\n\nA paragraph\nof two lines.\n\nEvents:\n  a whole line without columns\n  \
         one, two    the first\n  or three    line\n              and the second\n  four        five\n\n\
         Exit codes:\n  0  well\n\nWhy?\n  Because it\n  is so.",
    );
    let item = |tag: &str, text: &str| Block::Item(tag.into(), text.into());
    assert_eq!(prose.loose, [Block::Paragraph("A paragraph of two lines.".into())]);
    let titles: Vec<&str> = prose.sections.iter().map(|(title, _)| &**title).collect();
    assert_eq!(titles, ["Events", "Why?", "Exit codes", "Examples"]);
    assert_eq!(
        prose.sections[0].1,
        [
            Block::Paragraph("a whole line without columns".into()),
            item("one, two or three", "the first line and the second"),
            item("four", "five"),
        ]
    );
    assert_eq!(prose.sections[1].1, [Block::Paragraph("Because it is so.".into())]);
    assert_eq!(prose.sections[2].1, [item("0", "well")]);
    assert_eq!(prose.sections[3].1, [Block::Lines(vec!["one   two".into(), "  three".into()])]);
}

#[test]
fn characters_that_roff_interprets_are_escaped() {
    let mut page = Page::new("x", 1, "y");
    page.lines(&[".SH 'a' \\n".to_owned(), String::new(), "'quoted' `x` ^~-…".to_owned()]);
    page.paragraph(&text(".dot `bold`"));
    let page = page.finish();
    let text = page.split(".nf\n").nth(1).unwrap();
    assert_eq!(
        text,
        "\\&.SH \\(aqa\\(aq \\en\n\\&\n\\(aqquoted\\(aq \\(gax\\(ga \\(ha\\(ti\\-\\[u2026]\n.fi\n.RE\n.PP\n\
         \\&.dot \\fBbold\\fR\n"
    );
}
