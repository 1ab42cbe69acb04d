//! A follower can ask the leader to step down through the board. The follower learns which leader it asked, the
//! leader hands over in an orderly way, and a request does not outlive its term.
//!
//! Protects from: requests that are never read, and requests that also end the term of the next leader.

use tenure_core::{EndReason, Error, EventKind, Fault};

use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, OverlapDetector, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Notes];

pub(super) async fn check(bench: Bench) -> Verdict {
    let seat = bench.seat("asked");
    let detector = OverlapDetector::new();
    let one = bench.stand(&seat, "one")?;
    one.reports_to(&detector);
    one.term().await;
    let other = bench.stand(&seat, "other")?;
    other.reports_to(&detector);
    loop {
        other.knows_a_leader().await;
        let mut events = one.election.events();
        let asked = bench.within("an answer to a request", other.election.request_step_down()).await?;
        let asked = match asked {
            Ok(Some(asked)) => asked,
            Ok(None) => continue,
            // If the machine is so busy that the call timed out, ask again, as a user would.
            Err(Error::Store(error)) if error.fault() == Fault::Unknown => continue,
            Err(error) => return Err(error.into()),
        };
        let me = other.election.candidate().incarnation;
        if asked.candidate.incarnation == me {
            // If the machine is so busy that one has lost the seat meanwhile, let it lead again and repeat.
            other.election.step_down();
            one.term().await;
            continue;
        }
        let ended = bench
            .event(
                "the end of the term that was asked to step down",
                &mut events,
                |event| matches!(event, EventKind::LostLeadership { token, .. } if *token == asked.token),
            )
            .await?;
        let next = other.term().await.token();
        ensure!(next > asked.token, "the next term has token {next}, which is not above {}", asked.token);
        if matches!(ended, EventKind::LostLeadership { why: EndReason::SteppedDown, .. }) {
            break;
        }
    }
    let store = bench.connect();
    bench
        .until("the request is removed from the board", || async {
            let requests = tenure_core::Board::Requests(seat.clone());
            Ok(crate::laws::notes_of(&store)?.list_one(&requests).await?.is_empty())
        })
        .await?;
    detector.shifts_do_not_overlap()
}
