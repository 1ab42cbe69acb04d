//! A bid on an absent seat is lost if the data in which the seat was absent has been replaced since, which shows in
//! another identity of the data.
//!
//! Protects from: two leaders after a loss of data. A bid can wait in this process while another candidate wins the
//! seat and the server loses that win. Then the seat is absent again, but its leader still leads.

use tenure_core::{Clock, DataIdentity, Expect, SeatStore, SingleSeat, Swap};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (seat, me) = (bench.seat("absent"), candidate("one"));
    let store = SingleSeat::new(bench.subject.open());
    store.attach(&Clock::system());
    let reading = bench.within("a reading", store.read(&seat)).await??;
    // The law does not concern a store without an identity.
    let Some(identity) = reading.identity else { return Ok(()) };
    let bid = bench.held(&me, reading.floor.get() + 1);
    let elsewhere = Expect::Absent(Some(DataIdentity::new(format!("not {}", identity.as_str()))));
    let swap = bench.within("an answer", store.write(&seat, elsewhere, &bid)).await??;
    ensure!(swap == Swap::Lost, "a bid that expects other data was answered with {swap:?}");
    let reading = bench.within("a reading", store.read(&seat)).await??;
    ensure!(reading.seat.is_none(), "the bid was lost, but the seat exists: {:?}", reading.seat);
    let swap = bench.within("an answer", store.write(&seat, Expect::Absent(Some(identity)), &bid)).await??;
    ensure!(matches!(swap, Swap::Done { .. }), "a bid that expects this data was answered with {swap:?}");
    Ok(())
}
