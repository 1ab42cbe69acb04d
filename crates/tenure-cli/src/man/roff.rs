//! The language of man pages: as little of it as the pages need.

/// A page that is being written.
pub(super) struct Page(String);

impl Page {
    /// Starts a page with its name and the line that `apropos` shows.
    pub(super) fn new(name: &str, section: u8, about: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        // Without a date, equal sources have equal pages. Names and options are not hyphenated, and spaces not stretched.
        let mut page = Self(format!(
            ".TH {} {section} \"\" \"Tenure {version}\" Tenure\n.nh\n.ad l\n",
            quoted(&name.to_uppercase())
        ));
        page.section("Name");
        page.0 += &format!("{} \\- {}\n", escape(name), escape(&super::lower_first(about)));
        page
    }

    pub(super) fn section(&mut self, title: &str) {
        self.0 += &format!(".SH {}\n", quoted(&title.to_uppercase()));
    }

    pub(super) fn subsection(&mut self, title: &str) {
        self.0 += &format!(".SS {}\n", quoted(title));
    }

    /// Adds a paragraph, of text in roff.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.separate();
        self.0 += &format!("{}\n", line(text));
    }

    /// Adds an item with its description, both in roff.
    pub(super) fn item(&mut self, tag: &str, description: &str) {
        self.0 += &format!(".TP\n{}\n{}\n", line(tag), line(description));
    }

    /// Adds lines as they are.
    pub(super) fn lines(&mut self, lines: &[String]) {
        self.separate();
        self.0 += ".RS 4\n.nf\n";
        for text in lines {
            self.0 += &format!("{}\n", line(&escape(text)));
        }
        self.0 += ".fi\n.RE\n";
    }

    /// Begins a paragraph, unless a section has just begun.
    fn separate(&mut self) {
        if !self.0.lines().last().is_some_and(|line| line.starts_with(".S")) {
            self.0 += ".PP\n";
        }
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Converts text of the help to roff. What it has in backquotes is bold, line breaks become spaces, and an empty line
/// begins a paragraph.
pub(super) fn text(help: &str) -> String {
    let paragraphs = help.split("\n\n").map(|paragraph| {
        let paragraph = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        let parts: Vec<&str> = paragraph.split('`').collect();
        // An even number of parts has an odd number of backquotes: the last one is a character like others.
        if parts.len().is_multiple_of(2) {
            return escape(&paragraph);
        }
        parts.iter().enumerate().map(|(at, part)| if at % 2 == 1 { bold(part) } else { escape(part) }).collect()
    });
    paragraphs.collect::<Vec<String>>().join("\n.sp\n")
}

pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escape(text))
}

pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escape(text))
}

/// Escapes the characters that roff would interpret, or replace by typographic ones that a shell does not understand.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped += "\\e",
            '-' => escaped += "\\-",
            '\'' => escaped += "\\(aq",
            '`' => escaped += "\\(ga",
            '^' => escaped += "\\(ha",
            '~' => escaped += "\\(ti",
            '"' => escaped += "\\(dq",
            c if c.is_ascii() => escaped.push(c),
            c => escaped += &format!("\\[u{:04X}]", u32::from(c)),
        }
    }
    escaped
}

/// Quotes an argument of a macro.
fn quoted(argument: &str) -> String {
    format!("\"{}\"", escape(argument))
}

/// Protects a line that begins as a request does. A line must not be empty either.
fn line(text: &str) -> String {
    if text.is_empty() || text.starts_with('.') { format!("\\&{text}") } else { text.to_owned() }
}
