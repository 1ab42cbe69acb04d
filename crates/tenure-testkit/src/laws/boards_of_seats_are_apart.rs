//! Every seat has a board of its own, also if one's name begins with that of the other.
//!
//! Protects from: asking one leader to step down, and being obeyed by another.

use std::time::Duration;

use tenure_core::{Note, NoteKind};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Board];

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    let board = crate::laws::board_of(&store)?;
    let seats = ["jobs", "jobs/request", "jobs/a", "Jobs", "job", "job%"].map(|name| bench.seat(name));
    let note = |value: &str| Note {
        kind: NoteKind::Request,
        key: "k".into(),
        value: format!("{value:?}"),
        lifetime: Duration::from_secs(60),
    };
    for seat in &seats {
        board.put(seat, &note(seat.as_str())).await?;
    }
    for seat in &seats {
        let listed = board.list(seat, NoteKind::Request).await?;
        let own = note(seat.as_str()).value;
        ensure!(listed.len() == 1 && listed[0].value == own, "on the board of {:?} lie {listed:?}", seat.as_str());
    }
    board.remove(&seats[0], NoteKind::Request, "k").await?;
    for seat in &seats[1..] {
        let left = board.list(seat, NoteKind::Request).await?;
        ensure!(left.len() == 1, "removing a note of {:?} has removed that of {:?}", seats[0].as_str(), seat.as_str());
    }
    Ok(())
}
