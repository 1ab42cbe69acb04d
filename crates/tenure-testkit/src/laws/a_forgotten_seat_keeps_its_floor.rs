//! A seat that an operator removes with `forget` is gone, with its notes, but the store keeps the lower bound for
//! its next token. A store that cannot forget returns an error and changes nothing.
//!
//! Protects from: a cleanup that lets tokens restart.

use tenure_core::{Board, Fault};

use super::LONG;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (seat, other) = (bench.seat("forgotten"), bench.seat("remembered"));
    let store = bench.connect();
    for seat in [&seat, &other] {
        let held = bench.write(&store, seat, None, &bench.held(&candidate("one"), 7)).await?;
        bench.write(&store, seat, Some(&held.version), &bench.vacant(7)).await?;
    }
    let boards = [Board::Requests(seat.clone()), Board::Candidates(seat.clone())];
    if let Some(notes) = store.notes() {
        for board in &boards {
            notes.put_one(board, "k", "{}", LONG).await?;
        }
    }
    let forgotten = bench.within("an answer to forget", store.forget(&seat)).await?;
    let reading = bench.within("a reading", store.read(&seat)).await??;
    match forgotten {
        Err(error) => {
            ensure!(error.fault() == Fault::Denied, "a store that cannot forget must return `denied`, got: {error}");
            ensure!(reading.seat.is_some(), "forget() was denied, but the seat no longer exists");
        }
        Ok(()) => {
            ensure!(reading.seat.is_none(), "a forgotten seat reads as {:?}", reading.seat);
            ensure!(
                reading.floor.get() >= 7,
                "a seat with token 7 was forgotten, but its floor is only {}",
                reading.floor
            );
            if let Some(notes) = store.notes() {
                for board in &boards {
                    let left = notes.list_one(board).await?;
                    ensure!(left.is_empty(), "the seat was forgotten, but its board {board:?} still has {left:?}");
                }
            }
            // Forgetting a seat that does not exist is not an error.
            bench.within("an answer to forget", store.forget(&seat)).await??;
            bench.write(&store, &seat, None, &bench.held(&candidate("next"), 8)).await?;
        }
    }
    bench.read(&store, &other).await?;
    Ok(())
}
