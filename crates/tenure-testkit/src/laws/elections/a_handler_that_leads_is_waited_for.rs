//! `on_started_leading` is work: the seat is not released before the handler has returned, however long it wraps up
//! within its `stop_grace`, and the next leader's work starts only after that.
//!
//! Protects from: a handler that still wraps up while the work of the next leader runs.

use tenure_core::{EndReason, EventKind, Term};
use tokio::time::Instant;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("leads");
    loop {
        let (detector, lease) = (OverlapDetector::new(), bench.lease());
        let at = detector.clone();
        let one = bench.stand_with(&seat, "one", |election| {
            election.stop_grace(lease * 20).on_started_leading(async move |term: Term| {
                let shift = at.begin(&term);
                term.ending().await;
                let until = Instant::now() + lease / 3;
                // It works on for this long, whether its term is current or not.
                while Instant::now() < until {
                    shift.act();
                    tokio::time::sleep(lease / 50).await;
                }
            })
        })?;
        let term = one.term().await;
        bench.until("the handler works", || async { Ok(detector.work_spans() > 0) }).await?;
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
        detector.acts_do_not_overlap()?;
        other.election.stop();
        other.stopped().await;
        next.abort();
        // If the machine is so busy that the seat was not renewed in time, repeat.
        if matches!(ended, EventKind::LostLeadership { why: EndReason::Stopped, .. }) {
            detector.shifts_do_not_overlap()?;
            ensure!(detector.work_spans() == 2, "{} terms have worked, expected two", detector.work_spans());
            return Ok(());
        }
    }
}
