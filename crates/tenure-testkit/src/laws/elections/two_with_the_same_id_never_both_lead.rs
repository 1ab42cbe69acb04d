//! Two processes with the same id are two candidates: they lead one after the other, never both.
//!
//! Protects from: ids that collide, so that each renews what the other has won.

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
    // Mistaken for each other they lead both, or by turns if they are lucky; so this is looked at first.
    let [one, other] = twins.each_ref().map(|twin| twin.election.candidate().incarnation);
    ensure!(one != other, "two processes with the same id are the same candidate");
    for twin in &twins {
        twin.reports_to(&detector);
    }
    let mut token = Token::ZERO;
    for _ in 0..TERMS {
        token = bench.within("that one of them works", detector.acted_above(token)).await?;
        // Both are asked, whoever leads: the other one is not to be moved by it.
        for twin in &twins {
            twin.election.step_down();
        }
    }
    let lead = twins.iter().filter(|twin| twin.election.is_leader()).count();
    ensure!(lead <= 1, "both lead at once");
    detector.acts_do_not_overlap()
}
