//! A leader whose process is paused stops believing without any notification: its calls to `is_leader()` and
//! `is_current()` return false by the time that another candidate leads. When it resumes, it is notified that its
//! term is over.
//!
//! Protects from: a flag that says "leader" until another thread clears it.

use tenure_core::{EventKind, Token};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("paused");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    bench.within("one works", detector.acted_above(Token::ZERO)).await?;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    let mut events = one.election.events();

    one.brake.pull();
    bench.within("the engine of one calls the store", one.brake.blocked()).await?;
    let paused = one.election.term();
    let next = other.term().await;
    // From here on, one must stop leading at the end of its hold, because its engine is blocked.
    let believes = one.election.is_leader();
    let term_believes = paused.as_ref().is_some_and(|term| term.is_current());
    bench
        .within("the other works", detector.acted_above(paused.as_ref().map_or(Token::ZERO, |term| term.token())))
        .await?;
    one.brake.release();
    ensure!(!believes, "a paused leader still believed that it led while another led with token {}", next.token());
    ensure!(!term_believes, "the term of a paused leader was still current while another candidate led");
    if let Some(paused) = paused {
        bench
            .event(
                "one learns that its term is over",
                &mut events,
                |event| matches!(event, EventKind::LostLeadership { token, .. } if *token == paused.token()),
            )
            .await?;
        bench.within("the term of one has ended", paused.ended()).await?;
    }
    detector.acts_do_not_overlap()
}
