//! Writing notes changes neither the seat nor its version.
//!
//! Protects from: a leader that loses its seat, or a follower that waits another lease, because of a note.

use tenure_core::Board;

use super::LONG;
use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("alone");
    let (store, other) = (bench.connect(), bench.connect());
    let notes = super::notes_of(&other)?;
    let (requests, candidates) = (Board::Requests(seat.clone()), Board::Candidates(seat.clone()));
    // A note before the seat exists.
    notes.put_one(&candidates, "k", "{}", LONG).await?;
    let reading = bench.within("a reading", store.read(&seat)).await??;
    ensure!(reading.seat.is_none(), "a note has created a seat: {:?}", reading.seat);
    let me = candidate("me");
    let held = bench.write(&store, &seat, None, &bench.held(&me, 1)).await?;
    notes.put_one(&requests, "k", "{}", LONG).await?;
    notes.remove_one(&requests, "k").await?;
    let seen = bench.read(&store, &seat).await?;
    ensure!(seen.version == held.version, "a note has changed the version of the seat");
    bench.renew(&store, &seat, &held.version, &bench.held(&me, 1)).await?;
    let listed = notes.list_one(&candidates).await?;
    ensure!(listed.len() == 1, "writing the seat has changed its notes: {listed:?}");
    Ok(())
}
