//! A part of the terminal that is redrawn in place.
//!
//! It needs no clean-up: the cursor stays visible below the last line, so the process can end at any time.

use std::io::{IsTerminal, Write};

use crate::failure::Failure;
use crate::screen;

/// Returns whether standard output is a terminal that can move its cursor.
pub(super) fn is_supported() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

/// The lines that are on the screen.
#[derive(Default)]
pub(super) struct View {
    drawn: usize,
}

impl View {
    /// Replaces the lines on the screen by these, as many as fit.
    pub(super) fn draw(&mut self, mut lines: Vec<String>) -> Result<(), Failure> {
        let rows = screen::size(&std::io::stdout()).map(|(_, rows)| rows).filter(|rows| *rows > 1);
        // The cursor needs the last row. A terminal that does not know its size has at least 24 rows.
        lines.truncate(rows.unwrap_or(24) - 1);
        let mut out = std::io::stdout().lock();
        // In one piece, so that no half of it is seen.
        match out.write_all(frame(self.drawn, &lines).as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Err(Failure::reader_gone()),
            result => result?,
        }
        self.drawn = lines.len();
        Ok(())
    }

    /// Clears the screen after a resize: the terminal has wrapped lines anew, so their number is unknown.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        self.drawn = 0;
        let mut out = std::io::stdout().lock();
        Ok(out.write_all(b"\x1b[H\x1b[2J")?)
    }
}

/// Returns the output that replaces the last `drawn` lines.
fn frame(drawn: usize, lines: &[String]) -> String {
    let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
    let lines: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
    // Lines are not wrapped while they are drawn, because then their number would be unknown.
    format!("\x1b[?7l{up}\r{lines}\x1b[J\x1b[?7h")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_back_to_the_first_line_and_clears_the_rest() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(frame(0, &lines), "\x1b[?7l\ra\x1b[K\nb\x1b[K\n\x1b[J\x1b[?7h");
        assert_eq!(frame(3, &lines[..1]), "\x1b[?7l\x1b[3A\ra\x1b[K\n\x1b[J\x1b[?7h");
    }
}
