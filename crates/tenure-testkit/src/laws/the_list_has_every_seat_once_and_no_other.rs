//! The list of seats has every seat that has a record, held or vacant, exactly once and by its exact name, whatever the
//! name. It has no seat that was forgotten, none that has only notes, and none of another scope of the same server. A
//! store that cannot list its seats returns an error.
//!
//! Protects from: elections that an operator does not see, and names that no command finds because they are escaped,
//! hashed or cut.

use tenure_core::{Board, Fault, SeatName};

use super::LONG;
use super::every_name_is_a_seat_of_its_own::ODD_NAMES;
use crate::bench::{Connection, candidate};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let store = bench.connect();
    if let Err(error) = bench.within("a list of the seats", store.list_seats()).await? {
        ensure!(
            error.fault() == Fault::Denied,
            "a store that cannot list its seats must return `denied`, got: {error}"
        );
        return Ok(());
    }
    ensure!(listed(&bench, &store).await?.is_empty(), "seats are listed before they exist");

    let mut expected: Vec<_> = ODD_NAMES.iter().map(|name| bench.seat(name)).collect();
    let (vacant, forgotten) = (bench.seat("vacant"), bench.seat("forgotten"));
    for (number, seat) in expected.iter().chain([&vacant, &forgotten]).enumerate() {
        let held = bench.held(&candidate("one"), number as u64 + 1);
        let written = bench.write(&store, seat, None, &held).await?;
        if [&vacant, &forgotten].contains(&seat) {
            bench.write(&store, seat, Some(&written.version), &bench.vacant(number as u64 + 1)).await?;
        }
    }
    if let Some(notes) = store.notes() {
        let noted = bench.seat("noted");
        for board in [Board::Requests(noted.clone()), Board::Candidates(noted)] {
            notes.put_one(&board, "k", "{}", LONG).await?;
        }
    }
    expected.push(vacant);
    match bench.within("an answer to forget", store.forget(&forgotten)).await? {
        Ok(()) => {}
        Err(_) => expected.push(forgotten),
    }
    if let Some(elsewhere) = bench.connect_elsewhere() {
        bench.write(&elsewhere, &bench.seat("elsewhere"), None, &bench.held(&candidate("one"), 1)).await?;
        let there = listed(&bench, &elsewhere).await?;
        ensure!(there == [bench.seat("elsewhere")], "another scope has one seat, but lists {there:?}");
    }
    expected.sort();
    let seats = listed(&bench, &bench.connect()).await?;
    let missing: Vec<_> = expected.iter().filter(|seat| !seats.contains(seat)).collect();
    ensure!(missing.is_empty(), "these seats have a record, but are not listed: {missing:?}");
    let other: Vec<_> = seats.iter().filter(|seat| !expected.contains(seat)).collect();
    ensure!(other.is_empty(), "these seats have no record here, but are listed: {other:?}");
    ensure!(
        seats == expected,
        "{} seats have a record, but {} are listed: some of them twice",
        expected.len(),
        seats.len()
    );
    Ok(())
}

/// Returns the seats of this run that a store lists, sorted. Other laws use the same data.
async fn listed(bench: &Bench, store: &Connection) -> Result<Vec<SeatName>, Failure> {
    let mut seats = bench.within("a list of the seats", store.list_seats()).await??;
    let own = bench.seat("");
    seats.retain(|seat| seat.as_str().starts_with(own.as_str()));
    seats.sort();
    Ok(seats)
}
