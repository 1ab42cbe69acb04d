//! A bid that was sent before its seat was led, released and removed with `forget` is lost if it arrives after the
//! removal, unless its token is above those of the removed terms. The write itself compares its token with the one
//! that the removal has kept: the seat is absent again, as the bid expects.
//!
//! Protects from: a token that two terms have, or that is lower than the token of an earlier term.

use tenure_core::{Clock, Expect, Fault, SeatName, SeatStore, SingleSeat, Swap, Version};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::TokensOfRemovedSeats];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("removed");
    let [late, other] = [(); 2].map(|()| SingleSeat::new(bench.subject.open()));
    [&late, &other].iter().for_each(|store| store.attach(&Clock::system()));
    // The removed term has the token of the late bid, and then a higher one. The second time, the seat has been removed
    // before.
    for higher in [0, 1] {
        let (expect, token) = absent(&bench, &late, &seat).await?;
        let bid = bench.held(&candidate("late"), token);
        let last = token + higher;
        let (expect_now, _) = absent(&bench, &other, &seat).await?;
        let held = win(&bench, &other, &seat, expect_now, last).await?;
        let released =
            bench.within("an answer", other.write(&seat, Expect::Version(held), &bench.vacant(last))).await??;
        let Swap::Done { version: released, .. } = released else {
            return Err(Failure::new("the release of a seat was lost"));
        };
        if let Err(error) = bench.within("an answer to forget", other.forget(&seat)).await? {
            ensure!(error.fault() == Fault::Denied, "cannot remove a vacant seat: {error}");
            // The law does not concern a store that cannot forget.
            return Ok(());
        }
        let on_release = (Expect::Version(released), bench.held(&candidate("late"), last + 1));
        for (expect, bid) in [(expect, bid), on_release] {
            let answer = bench.within("an answer", late.write(&seat, expect.clone(), &bid)).await?;
            ensure!(
                matches!(answer, Ok(Swap::Lost)) || answer.as_ref().is_err_and(|error| error.fault() != Fault::Unknown),
                "a seat was removed after a term with token {last}; then a bid with token {} from before that, which \
                 expects {expect:?}, was answered with {answer:?}",
                bid.token
            );
        }
        let (_, next) = absent(&bench, &late, &seat).await?;
        ensure!(next > last, "a seat was removed after a term with token {last}, but its floor is {}", next - 1);
    }
    let (expect, token) = absent(&bench, &late, &seat).await?;
    win(&bench, &late, &seat, expect, token).await?;
    Ok(())
}

/// Reads a seat that must not exist. Returns the condition and the token of a bid that rests on this reading.
async fn absent(bench: &Bench, store: &SingleSeat, seat: &SeatName) -> Result<(Expect, u64), Failure> {
    let reading = bench.within("a reading", SeatStore::read(store, seat)).await??;
    ensure!(reading.seat.is_none(), "the seat must not exist, but reads as {:?}", reading.seat);
    Ok((Expect::Absent(reading.identity), reading.floor.get() + 1))
}

/// Takes a seat that does not exist. Returns its version.
async fn win(
    bench: &Bench,
    store: &SingleSeat,
    seat: &SeatName,
    expect: Expect,
    token: u64,
) -> Result<Version, Failure> {
    let bid = bench.held(&candidate("one"), token);
    match bench.within("an answer", store.write(seat, expect, &bid)).await?? {
        Swap::Done { version, .. } => Ok(version),
        Swap::Lost => Err(Failure::new(format!("a bid with token {token}, above the floor, was lost"))),
    }
}
