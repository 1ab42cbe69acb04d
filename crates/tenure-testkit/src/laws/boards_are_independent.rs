//! Every seat has its own requests and its own candidates, also if the name of one seat begins with that of
//! another. Notes on one board are listed, replaced and removed independently of those on another board, also with
//! the same key.
//!
//! Protects from: a request to step down that reaches the leader of another seat, and a leader that mistakes a
//! candidate for a request.

use tenure_core::Board;

use super::LONG;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    let notes = super::notes_of(&store)?;
    let names = ["jobs", "jobs/request", "jobs/requests", "jobs/a", "Jobs", "job", "job%"];
    let seats = names.iter().map(|name| bench.seat(name));
    let mut boards: Vec<_> = seats.flat_map(|seat| [Board::Requests(seat.clone()), Board::Candidates(seat)]).collect();
    boards.push(Board::Processes);
    let key = format!("{:016x}", rand::random::<u64>());
    let value = |place: usize| format!("{place}");
    for (place, board) in boards.iter().enumerate() {
        notes.put_one(board, &key, &value(place), LONG).await?;
    }
    let removed = &boards[0];
    for is_removed in [false, true] {
        for (place, board) in boards.iter().enumerate() {
            // Other laws may have put notes on the board of processes.
            let listed = notes.list_one(board).await?.into_iter().filter(|note| note.key == key);
            let listed: Vec<_> = listed.map(|note| note.value).collect();
            let expected = if is_removed && board == removed { vec![] } else { vec![value(place)] };
            ensure!(listed == expected, "{expected:?} was put on {board:?}, but {listed:?} is listed");
        }
        notes.remove_one(removed, &key).await?;
    }
    Ok(())
}
