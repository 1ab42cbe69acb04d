//! A seat that an operator has forgotten is gone, with its notes, but not the number that its
//! tokens must stay above. A store that cannot forget says so, and changes nothing.
//!
//! Protects from: tidying up that lets tokens restart.

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
            ensure!(error.fault() == Fault::Denied, "what a store cannot do at all it must deny: {error}");
            ensure!(reading.seat.is_some(), "forget() was denied, but the seat is gone");
        }
        Ok(()) => {
            ensure!(reading.seat.is_none(), "a seat that was forgotten reads as {:?}", reading.seat);
            ensure!(reading.floor.get() >= 7, "a seat with token 7 was forgotten, and its floor is {}", reading.floor);
            if let Some(notes) = store.notes() {
                for board in &boards {
                    let left = notes.list_one(board).await?;
                    ensure!(left.is_empty(), "the seat was forgotten, and on {board:?} lie {left:?}");
                }
            }
            // Forgetting what is not there is no error.
            bench.within("an answer to forget", store.forget(&seat)).await??;
            bench.write(&store, &seat, None, &bench.held(&candidate("next"), 8)).await?;
        }
    }
    bench.read(&store, &other).await?;
    Ok(())
}
