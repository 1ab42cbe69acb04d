//! The store reports the life of the holder correctly: a seat reads as expired only after its lease has passed, and
//! it does so eventually. How the store shows this depends on its kind.
//!
//! Protects from: two leaders, if a store ends a lease too early, and no leader, if a store never ends it.

use std::time::Duration;

use tenure_core::{Life, LifeKind, SeatName};

use crate::bench::{Connection, Written, candidate, now};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("expiry");
    let (one, other) = (bench.connect(), bench.connect());
    let me = candidate("one");
    let written = bench.write(&one, &seat, None, &bench.held(&me, 1)).await?;
    match bench.promises().life {
        LifeKind::Observe => stays_unchanged(&bench, &other, &seat, &written).await?,
        LifeKind::Clock => drop(tells_its_age(&bench, &one, &other, &seat, written).await?),
        LifeKind::Session => {
            // From here on, no heartbeat keeps the session alive.
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
                .until("the seat of a dead process reads as over", || async {
                    Ok(bench.read(&other, &seat).await?.life == Life::Over)
                })
                .await?;
        }
    }
    let seen = bench.read(&other, &seat).await?;
    bench.write(&other, &seat, Some(&seen.version), &bench.held(&candidate("other"), 2)).await?;
    Ok(())
}

/// Checks that a seat which is not renewed keeps its version, because followers measure the lease by that.
async fn stays_unchanged(bench: &Bench, store: &Connection, seat: &SeatName, written: &Written) -> Verdict {
    let first = bench.read(store, seat).await?;
    ensure!(first.version == written.version, "the version differs from the one that the write returned");
    while now().since(written.sent) < bench.lease() {
        let seen = bench.read(store, seat).await?;
        match seen.life {
            Life::Observe => {}
            Life::Received { at } => {
                ensure!(
                    at >= written.sent && at <= now(),
                    "a version was reported as received at {at:?}, which is before its send or in the future"
                );
            }
            life => return Err(Failure::new(format!("the store promises `Observe`, but reports {life:?}"))),
        }
        ensure!(
            seen.version == written.version,
            "the version changed without a write, so the lease would never expire"
        );
        tokio::time::sleep(bench.lease() / 20).await;
    }
    Ok(())
}

/// Checks that the store's clock and this machine's clock agree on the age of the write, within the bounds that the
/// moments of send and receipt give.
async fn tells_its_age(
    bench: &Bench,
    one: &Connection,
    other: &Connection,
    seat: &SeatName,
    mut written: Written,
) -> Result<Written, Failure> {
    // Clocks can differ by a percent, and have a limited resolution.
    let slack = |span: Duration| span / 50 + Duration::from_millis(5);
    for renewal in 0..3 {
        let until = written.answered + bench.lease() / 3;
        while now() < until {
            let asked = now();
            let seen = bench.read(other, seat).await?;
            let Life::Clock { now: store_now, renewed } = seen.life else {
                return Err(Failure::new(format!(
                    "the holder is alive, but its seat reads as {:?} instead of `Clock`",
                    seen.life
                )));
            };
            let (most, least) = (now().since(written.sent), asked.since(written.answered));
            let age = store_now.checked_since(renewed).ok_or_else(|| {
                Failure::new(format!("the store reports that the seat was written in the future: {:?}", seen.life))
            })?;
            ensure!(
                age <= most + slack(most) && age + slack(least) >= least,
                "the store reports that the seat was written {age:?} ago, but it was between {least:?} and {most:?} ago"
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

/// Checks that the seat reads as held for as long as its holder counts on it, and as over soon after.
async fn ends_after_its_lease(bench: &Bench, store: &Connection, seat: &SeatName, written: &Written) -> Verdict {
    let lease = written.granted.unwrap_or(bench.lease()).min(bench.lease());
    // The holder's own hold, with the default drift.
    let hold = lease * 98 / 100;
    bench
        .until("the seat of a dead holder reads as over", || async {
            let seen = bench.read(store, seat).await?;
            let age = now().since(written.since);
            match seen.life {
                Life::Held => Ok(false),
                Life::Over => {
                    ensure!(
                        age >= hold,
                        "the seat reads as over after {age:?}, but its holder counts on it for {hold:?}"
                    );
                    Ok(true)
                }
                other => Err(Failure::new(format!("a seat on a session reads as {other:?}"))),
            }
        })
        .await
}
