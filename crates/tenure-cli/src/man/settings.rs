//! The page of `tenure.toml`, from the table of options.

use tenure::ElectionOptions;

use super::roff::{Page, bold, escape, italic, text};

const EXAMPLE: &str = "\
store = \"sqlite:\"
lease = \"15s\"              # for every election

[elections.nightly-jobs]   # and for this one
lease = \"60s\"
metadata = { team = \"billing\" }";

pub(super) fn page() -> String {
    let mut page = Page::new("tenure.toml", 5, "the options of elections, in a file and in variables");
    page.section("Description");
    page.paragraph(&text(
        "`tenure` and programs that use its library read options from the file `tenure.toml` in the current folder, or \
         from the file that `--config` or the variable `TENURE_CONFIG` names. Each key is also a variable and an option of \
         `tenure run` and `tenure once`: `renew_every` is `TENURE_RENEW_EVERY` and `--renew-every`. Variables override \
         the file, and the command line overrides variables. A key within `[elections.NAME]` is for that election only.",
    ));
    page.paragraph(&text(
        "A TIME is a number with a unit, such as 500ms, 15s, 2m or 1h. On the command line, the options of a BOOL have no \
         value: `--preempt` turns it on, and `--no-release-on-stop` turns off one that is on by default.",
    ));
    page.section("Keys");
    page.item(&format!("{} {}", bold("store"), italic("URL")), &text("The store, see `tenure stores`."));
    let last_will = "The program `tenure`, by name or by path, that frees the seats of a program at once when the program \
                     dies. For programs that use the library; `tenure run` has a guard, which does the same.";
    page.item(&format!("{} {}", bold("last_will"), italic("PROGRAM")), &text(last_will));
    let metadata = "Text that is shown with the candidate. As a variable: `TENURE_METADATA=team=billing,zone=a`.";
    page.item(&format!("{} {}", bold("metadata"), italic("TABLE")), &text(metadata));
    let mut group = "";
    for option in ElectionOptions::TABLE {
        if option.group != group {
            group = option.group;
            page.subsection(group);
        }
        let description = format!("{} {}", text(option.doc), escape(&format!("[default: {}]", option.default)));
        page.item(&format!("{} {}", bold(option.name), italic(option.kind)), &description);
    }
    page.section("Examples");
    page.lines(&EXAMPLE.lines().map(str::to_owned).collect::<Vec<_>>());
    page.section("See also");
    page.paragraph(&format!("{}(1)", bold("tenure")));
    page.finish()
}
