//! What the store says about the holder's life is true: a seat reads as lapsed only after its lease
//! has passed, and does so in the end. How that shows depends on the kind of store.
//!
//! Protects from: two leaders, by a store that is in a hurry; and none, by one that never lets go.

use std::time::Duration;

use tenure_core::{Life, LifeKind, SeatName};

use crate::bench::{Connection, Written, candidate, now};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("lapse");
    let (one, other) = (bench.connect(), bench.connect());
    let me = candidate("one");
    let written = bench.write(&one, &seat, None, &bench.held(&me, 1)).await?;
    match bench.promises().life {
        LifeKind::Observe => stays_unchanged(&bench, &other, &seat, &written).await?,
        LifeKind::Clock => drop(tells_its_age(&bench, &one, &other, &seat, written).await?),
        LifeKind::Session => {
            // From here on, nothing keeps the session alive.
            let silent = bench.subject.ends_with_its_connection().then_some(one);
            ends_after_its_lease(&bench, &other, &seat, &written).await?;
            drop(silent);
        }
        LifeKind::Lock => {
            let written = tells_its_age(&bench, &one, &other, &seat, written).await?;
            let seen = bench.read(&other, &seat).await?;
            ensure!(seen.version == written.version, "the version changed without a write: {seen:?}");
            drop(one);
            bench
                .until("that the seat of a process that is gone reads as over", || async {
                    Ok(bench.read(&other, &seat).await?.life == Life::Over)
                })
                .await?;
        }
    }
    let seen = bench.read(&other, &seat).await?;
    bench.write(&other, &seat, Some(&seen.version), &bench.held(&candidate("other"), 2)).await?;
    Ok(())
}

/// A seat that nobody renews keeps its version: followers count by that.
async fn stays_unchanged(bench: &Bench, store: &Connection, seat: &SeatName, written: &Written) -> Verdict {
    let first = bench.read(store, seat).await?;
    ensure!(first.version == written.version, "read with another version than the write gave");
    while now().since(written.sent) < bench.lease() {
        let seen = bench.read(store, seat).await?;
        match seen.life {
            Life::Observe => {}
            Life::Received { at } => {
                ensure!(at >= written.sent && at <= now(), "a version was received at {at:?}, but not when it was under way");
            }
            life => return Err(Failure::new(format!("the store promises to say nothing about life, but says {life:?}"))),
        }
        ensure!(seen.version == written.version, "the version changed without a write: a lapse would never be seen");
        tokio::time::sleep(bench.lease() / 20).await;
    }
    Ok(())
}

/// The store's clock and ours agree on how long ago the seat was written, within what the moments
/// of sending and receipt allow.
async fn tells_its_age(
    bench: &Bench,
    one: &Connection,
    other: &Connection,
    seat: &SeatName,
    mut written: Written,
) -> Result<Written, Failure> {
    // Clocks may run apart by a percent, and count in steps.
    let slack = |span: Duration| span / 50 + Duration::from_millis(5);
    for renewal in 0..3 {
        let until = written.answered + bench.lease() / 3;
        while now() < until {
            let asked = now();
            let seen = bench.read(other, seat).await?;
            let Life::Clock { now: store_now, renewed } = seen.life else {
                return Err(Failure::new(format!("a seat whose holder lives reads as {:?}, not by the clock", seen.life)));
            };
            let (most, least) = (now().since(written.sent), asked.since(written.answered));
            let age = store_now.checked_since(renewed).ok_or_else(|| {
                Failure::new(format!("the store says that the seat will be written in the future: {:?}", seen.life))
            })?;
            ensure!(
                age <= most + slack(most) && age + slack(least) >= least,
                "the store says that the seat was written {age:?} ago, but by our clock that was between {least:?} and {most:?}"
            );
            tokio::time::sleep(bench.lease() / 20).await;
        }
        if renewal < 2 {
            let holder = bench.read(one, seat).await?.record;
            let record = tenure_core::Record { nonce: rand::random(), ..holder };
            written = bench.renew(one, seat, &written.version, &record).await?;
        }
    }
    Ok(written)
}

/// The seat reads as held for as long as its holder may count on it, and as over soon after.
async fn ends_after_its_lease(bench: &Bench, store: &Connection, seat: &SeatName, written: &Written) -> Verdict {
    let lease = written.granted.unwrap_or(bench.lease()).min(bench.lease());
    // What the holder itself counts on, at the usual drift.
    let hold = lease * 98 / 100;
    bench
        .until("that the seat of a holder that is gone reads as over", || async {
            let seen = bench.read(store, seat).await?;
            let age = now().since(written.since);
            match seen.life {
                Life::Held => Ok(false),
                Life::Over => {
                    ensure!(age >= hold, "the seat read as over after {age:?}, but its holder counts on it for {hold:?}");
                    Ok(true)
                }
                other => Err(Failure::new(format!("a seat on a session reads as {other:?}"))),
            }
        })
        .await
}
