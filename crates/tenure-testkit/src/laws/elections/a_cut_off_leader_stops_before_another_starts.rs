//! A leader that cannot reach the store, whether its calls hang or are refused, stops on its own before another
//! leader starts, is notified, and follows once it reaches the store again.
//!
//! Protects from: renewals without a time-out, and errors that leave the leader leading forever.

use tenure_core::{EventKind, Token};

use crate::law::Need;
use crate::wrap::Traffic;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

pub(super) async fn check(bench: Bench) -> Verdict {
    let (hanging, refused) = tokio::join!(cut(&bench, Traffic::Hang), cut(&bench, Traffic::Refuse));
    hanging.and(refused)
}

async fn cut(bench: &Bench, traffic: Traffic) -> Verdict {
    let seat = bench.seat(&format!("cut-off-{traffic:?}"));
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    let first = bench.within("one works", detector.acted_above(Token::ZERO)).await?;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    let mut events = one.election.events();

    one.wire.set(traffic);
    bench
        .event(
            "an event that the term of one is over",
            &mut events,
            |event| matches!(event, EventKind::LostLeadership { token, .. } if *token >= first),
        )
        .await?;
    bench.within("the other works while one is cut off", detector.acted_above(first)).await?;
    one.wire.set(Traffic::Pass);
    bench
        .event(
            "one knows who leads once it is back",
            &mut events,
            |event| matches!(event, EventKind::LeaderChanged { leader: Some(leader), .. } if leader.token > first),
        )
        .await?;
    detector.acts_do_not_overlap()
}
