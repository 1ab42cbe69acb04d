//! Reads the text after the options of a help page: sections with examples, tables and paragraphs.

/// The text, in parts.
#[derive(Debug, Default)]
pub(super) struct Prose {
    /// Paragraphs without a heading.
    pub(super) loose: Vec<Block>,
    /// Titles and contents. Exit codes and examples are last.
    pub(super) sections: Vec<(String, Vec<Block>)>,
}

/// A part of a section.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block {
    Paragraph(String),
    /// Lines that must stay as they are.
    Lines(Vec<String>),
    /// A row of a table: a word, and what it means.
    Item(String, String),
}

const EXAMPLES: &str = "Examples";

impl Prose {
    pub(super) fn new(text: &str) -> Self {
        let mut prose = Self::default();
        for block in text.split("\n\n") {
            let lines: Vec<&str> = block.lines().collect();
            match lines[..] {
                [] => {}
                [heading, next, ..] if is_heading(heading) && is_indented(next) => {
                    let title = heading.trim_end_matches(':');
                    let (title, rest) = match title.split_once(", ") {
                        Some((EXAMPLES, rest)) => (EXAMPLES, Some(rest)),
                        _ if title == "Example" || title == "Try it" => (EXAMPLES, None),
                        _ => (title, None),
                    };
                    let rest = rest.map(|rest| Block::Paragraph(format!("{}:", upper_first(rest))));
                    let content = rest.into_iter().chain(content(&lines[1..], heading.starts_with("Example")));
                    prose.sections.push((title.to_owned(), content.collect()));
                }
                _ => match prose.sections.last_mut() {
                    // An empty line within a section.
                    Some((title, section)) if is_indented(lines[0]) => {
                        section.extend(content(&lines, title == EXAMPLES));
                    }
                    _ => prose.loose.extend(content(&lines, true)),
                },
            }
        }
        // The order of man pages. The sort is stable.
        prose.sections.sort_by_key(|(title, _)| [&"Exit codes", &EXAMPLES].iter().position(|last| *last == title));
        prose
    }
}

fn is_indented(line: &str) -> bool {
    line.starts_with("  ")
}

fn is_heading(line: &str) -> bool {
    !is_indented(line) && line.ends_with([':', '?'])
}

/// Splits lines into paragraphs, and tables or lines that stay as they are.
fn content(lines: &[&str], is_literal: bool) -> Vec<Block> {
    let chunks = lines.chunk_by(|one, next| is_indented(one) == is_indented(next));
    let blocks = chunks.map(|chunk| {
        if !is_indented(chunk[0]) {
            vec![Block::Paragraph(chunk.join(" "))]
        } else if is_literal {
            vec![Block::Lines(chunk.iter().map(|line| line[2..].to_owned()).collect())]
        } else {
            table(chunk)
        }
    });
    blocks.flatten().collect()
}

/// Reads a table of two columns. Both can take several lines. Text without columns is a paragraph.
fn table(lines: &[&str]) -> Vec<Block> {
    let lines: Vec<Vec<char>> = lines.iter().map(|line| line.chars().collect()).collect();
    let Some(column) = lines.iter().find_map(|line| second_column(line)) else {
        let words = lines.iter().map(|line| line.iter().collect::<String>().trim().to_owned());
        return vec![Block::Paragraph(words.collect::<Vec<_>>().join(" "))];
    };
    let mut blocks: Vec<Block> = Vec::new();
    for line in &lines {
        let trimmed = |part: &[char]| part.iter().collect::<String>().trim().to_owned();
        if line.get(column - 2..column).is_some_and(|gap| gap != [' ', ' ']) {
            blocks.push(Block::Paragraph(trimmed(line)));
            continue;
        }
        let at = column.min(line.len());
        let (left, right) = (trimmed(&line[..at]), trimmed(&line[at..]));
        match blocks.last_mut() {
            Some(Block::Item(tag, text)) if left.is_empty() || right.is_empty() || continues(tag, &left) => {
                append(tag, &left);
                append(text, &right);
            }
            _ => blocks.push(Block::Item(left, right)),
        }
    }
    blocks
}

/// Returns where the second column begins: after two spaces or more.
fn second_column(line: &[char]) -> Option<usize> {
    let begin = line.iter().position(|c| *c != ' ')?;
    let gap = begin + line[begin..].windows(2).position(|two| two == [' ', ' '])?;
    line[gap..].iter().position(|c| *c != ' ').map(|more| gap + more)
}

/// Returns whether the first column of a line continues that of the line before.
fn continues(tag: &str, left: &str) -> bool {
    tag.ends_with(',') || left.starts_with("or ")
}

fn append(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

fn upper_first(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}
