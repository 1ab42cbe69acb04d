//! A note is listed for at least its lifetime, and not forever, on every board. A note that is put again lasts from
//! then on.
//!
//! Protects from: requests that are gone before the leader could read them, requests to a leader that left long
//! ago, and candidates that are listed long after they have died.

use tenure_core::Board;

use super::LONG;
use crate::bench::now;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    let (notes, lifetime) = (super::notes_of(&store)?, bench.lease());
    let seat = bench.seat("lifetimes");
    let boards = [Board::Requests(seat.clone()), Board::Candidates(seat), Board::Processes];
    let key = |name: &str| format!("{name} {:016x}", rand::random::<u64>());
    let (long, short, renewed) = (key("long"), key("short"), key("renewed"));
    for board in &boards {
        notes.put_one(board, &long, "{}", LONG).await?;
        notes.put_one(board, &renewed, "{}", lifetime).await?;
        notes.put_one(board, &renewed, "{}", LONG).await?;
    }
    let put = now();
    for board in &boards {
        notes.put_one(board, &short, "{}", lifetime).await?;
    }
    for board in &boards {
        bench
            .until("the note expires", || async {
                let listed = notes.list_one(board).await?;
                let age = now().since(put);
                let has = |key: &str| listed.iter().any(|note| note.key == key);
                ensure!(has(&long), "on {board:?}, a note with a lifetime of {LONG:?} is gone after {age:?}");
                ensure!(
                    has(&renewed),
                    "on {board:?}, a note that was put again with a lifetime of {LONG:?} is gone after {age:?}"
                );
                ensure!(
                    has(&short) || age >= lifetime * 98 / 100,
                    "a note with a lifetime of {lifetime:?} is gone after {age:?}"
                );
                Ok(!has(&short))
            })
            .await?;
    }
    Ok(())
}
