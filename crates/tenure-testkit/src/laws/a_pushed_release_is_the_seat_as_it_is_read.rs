//! If the store pushes the seat itself after a release, it pushes what a read returns: the record, its version and the
//! identity of the data. A bid on the pushed version wins the seat, and a second one on the same version is lost.
//!
//! Protects from: a next leader that bids on a version that the seat does not have, and is delayed by a lost bid, and
//! from one that takes a release of other data for one of the data that it has seen.

use tenure_core::{Clock, SeatStore, SingleSeat};

use crate::bench::candidate;
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Push];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("released");
    let (leader, next, late) = (bench.connect(), bench.connect(), bench.connect());
    let follower = SingleSeat::new(bench.subject.open());
    SeatStore::attach(&follower, &Clock::system());
    let held = bench.write(&leader, &seat, None, &bench.held(&candidate("leader"), 1)).await?;
    // The follower's own read opens its connection to the store.
    let Some(seen) = SeatStore::read(&follower, &seat).await?.seat else {
        return Err(Failure::new("a seat that was written is not read"));
    };
    let mut written = None;
    let release = async { written = Some(bench.write(&leader, &seat, Some(&held.version), &bench.vacant(1)).await) };
    let pushed = follower.release_pushed_by(&seat, &seen, release);
    let pushed = bench.within("a notification of a release", pushed).await?;
    if let Some(written) = written {
        written?;
    }
    let Some(release) = pushed else {
        ensure!(!bench.subject.pushes_releases(), "the store did not push the seat itself");
        return Ok(());
    };

    let identity = SeatStore::read(&follower, &seat).await?.identity;
    let read = bench.read(&next, &seat).await?;
    ensure!(
        release.record == read.record && release.version == read.version && release.identity == identity,
        "the store pushed {release:?}, but a read returns {read:?} of data {identity:?}"
    );
    bench.write(&next, &seat, Some(&release.version), &bench.held(&candidate("next"), 2)).await?;
    let third = bench.held(&candidate("third"), 2);
    bench.lose("a second bid on the pushed version", &late, &seat, Some(&release.version), &third).await
}
