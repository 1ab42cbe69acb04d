//! The last will of a dead process frees its seat at once, from another process: even though the server still counts
//! its session as alive, and only on the version that was read. Afterwards a renewal that the dead process had sent
//! changes nothing, and another candidate takes the seat.
//!
//! A store with a lifeline frees the seat when the process dies, and not before the lifeline is closed: as long as a
//! process has it open, a will is lost.
//!
//! Protects from: a crash that costs a whole lease, and a will that takes the seat from the next leader.

use std::sync::Arc;

use tenure_core::{Crash, Record, Swap, Token};

use crate::bench::{candidate, now};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("will");
    let (dead, executor, next) = (bench.connect(), bench.connect(), bench.connect());
    let (me, heir) = (candidate("dead"), candidate("next"));
    let won = bench.write(&dead, &seat, None, &bench.held(&me, 1)).await?;
    let held = bench.renew(&dead, &seat, &won.version, &bench.held(&me, 1)).await?;

    let crash = Crash { of: me.clone(), token: Token::new(1), by: "its guard".into() };
    let vacant = Record { crash: Some(Arc::new(crash)), ..bench.vacant(1) };
    let seen = bench.read(&executor, &seat).await?;
    let executed = now();
    let freed = bench.within("an answer to a will", executor.free(&seat, &seen.version, &vacant)).await??;
    if executor.promises().lifeline {
        ensure!(freed == Swap::Lost, "a will must be lost while the lifeline is open, but was answered with {freed:?}");
        let after = bench.read(&executor, &seat).await?;
        ensure!(after.record == seen.record, "a lost will has changed the seat from {seen:?} to {after:?}");
        return Ok(());
    }
    ensure!(freed != Swap::Lost, "the will of a dead process must free its seat, but was lost");
    let after = bench.read(&next, &seat).await?;
    ensure!(after.record == vacant, "the will wrote {vacant:?}, but {:?} was read", after.record);

    bench
        .until("the renewals of the dead process are lost", || async {
            match bench.within("an answer", dead.renew(&seat, &held.version, &bench.held(&me, 1))).await? {
                // The answer of a heartbeat that was sent before the will.
                Ok(Swap::Done { since: Some(since), .. }) if since < executed => Ok(false),
                Ok(Swap::Done { .. }) => Err(Failure::new("a renewal after the will succeeded".to_owned())),
                _ => Ok(true),
            }
        })
        .await?;
    let taken = bench.write(&next, &seat, Some(&after.version), &bench.held(&heir, 2)).await?;

    for version in [&seen.version, &after.version] {
        let twice = bench.within("an answer to a will", executor.free(&seat, version, &vacant)).await??;
        ensure!(twice == Swap::Lost, "a will on an old version must be lost, but was answered with {twice:?}");
    }
    bench.renew(&next, &seat, &taken.version, &bench.held(&heir, 2)).await?;
    Ok(())
}
