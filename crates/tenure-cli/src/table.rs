//! Tables for people: aligned columns, cut to the width of the terminal.

use crate::screen::Paint;

/// The head of a column, and how its cells are aligned.
pub(crate) type Column = (&'static str, Align);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    /// As numbers are.
    Right,
}

pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    pub(crate) tone: Tone,
}

/// Whether a row is good news or a warning, which decides its colour.
#[derive(Clone, Copy)]
pub(crate) enum Tone {
    Good,
    Neutral,
    Warning,
}

/// Formats the lines of a table, cut to the width of the terminal, if there is one.
pub(crate) fn lines(columns: &[Column], rows: &[Row], width: Option<usize>, paint: Paint) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| rows.iter().map(|row| length(&row.cells[at])).chain([length(columns[at].0)]).max().unwrap_or(0))
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (at, cell) in cells.enumerate() {
            let room = " ".repeat(widths[at] - length(cell));
            line += &match columns[at].1 {
                Align::Right => format!("{room}{cell}  "),
                Align::Left => format!("{cell}{room}  "),
            };
        }
        cut(line.trim_end(), width)
    };
    let head = paint.dim(line(&mut columns.iter().map(|(head, _)| *head)));
    let rows = rows.iter().map(|row| {
        let line = line(&mut row.cells.iter().map(String::as_str));
        match row.tone {
            Tone::Good => paint.green(line),
            Tone::Neutral => line,
            Tone::Warning => paint.yellow(line),
        }
    });
    std::iter::once(head).chain(rows).collect()
}

/// Cuts a line to the width of the terminal, if there is one.
pub(crate) fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width.saturating_sub(1)).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}
