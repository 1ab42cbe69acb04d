//! The engine waits for work that wraps up slowly, for `stop_grace` and longer than a lease. The seat is renewed
//! meanwhile, and the next leader's work begins only after the work has returned.
//!
//! Protects from: a seat that is released, or expires, while the work of its leader still runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::{EndReason, EventKind};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("drains");
    loop {
        let detector = OverlapDetector::new();
        let lease = bench.lease();
        let one = bench.stand_with(&seat, "one", |election| election.stop_grace(lease * 20))?;
        let (at, has_wrapped_up) = (detector.clone(), Arc::new(AtomicBool::new(false)));
        let flag = has_wrapped_up.clone();
        let working = one.works(move |term| {
            let (at, wrapped_up) = (at.clone(), flag.clone());
            async move {
                let shift = at.begin(&term);
                term.ending().await;
                // Wrapping up takes longer than a lease, and the work acts meanwhile.
                let until = tokio::time::Instant::now() + lease * 3 / 2;
                while shift.act() {
                    if tokio::time::Instant::now() >= until {
                        wrapped_up.store(true, Ordering::SeqCst);
                        break;
                    }
                    tokio::time::sleep(lease / 50).await;
                }
            }
        });
        let term = one.term().await;
        bench.until("one works", || async { Ok(detector.work_spans() > 0) }).await?;
        let other = bench.stand(&seat, "other")?;
        let next = other.reports_to(&detector);
        let mut events = one.election.events();
        one.election.stop();
        let ended = bench
            .event(
                "the end of the term",
                &mut events,
                |event| matches!(event, EventKind::LostLeadership { token, .. } if *token >= term.token()),
            )
            .await?;
        bench.within("the other works", detector.acted_above(term.token())).await?;
        bench.within("the work of one returns", working).await?.ok();
        detector.acts_do_not_overlap()?;
        // If the machine is so busy that the seat was not renewed in time, repeat.
        let as_asked = matches!(ended, EventKind::LostLeadership { why: EndReason::Stopped, .. });
        if as_asked {
            detector.shifts_do_not_overlap()?;
        }
        other.election.stop();
        other.stopped().await;
        next.abort();
        if as_asked {
            ensure!(has_wrapped_up.load(Ordering::SeqCst), "work was cancelled while it had time left to wrap up");
            ensure!(detector.work_spans() == 2, "{} terms have worked, expected two", detector.work_spans());
            return Ok(());
        }
    }
}
