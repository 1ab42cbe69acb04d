//! Two processes with the same id are two candidates: they lead one after the other, never both.
//!
//! Protects from: ids that collide, so that each process renews the seat that the other has won.

use tenure_core::Token;

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[];

const TERMS: usize = 6;

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("twins");
    let detector = OverlapDetector::new();
    let twins = [bench.stand(&seat, "twin")?, bench.stand(&seat, "twin")?];
    // If the store confused them, they could still lead by turns by luck. So this is checked first.
    let [one, other] = twins.each_ref().map(|twin| twin.election.candidate().incarnation);
    ensure!(one != other, "two processes with the same id are the same candidate");
    for twin in &twins {
        twin.reports_to(&detector);
    }
    let mut token = Token::ZERO;
    for _ in 0..TERMS {
        token = bench.within("one of them works", detector.acted_above(token)).await?;
        // Both are asked to step down. The one that does not lead must ignore it.
        for twin in &twins {
            twin.election.step_down();
        }
    }
    let lead = twins.iter().filter(|twin| twin.election.is_leader()).count();
    ensure!(lead <= 1, "both lead at once");
    detector.acts_do_not_overlap()
}
