//! Of many concurrent bids on the same version, over many connections, exactly one succeeds, and the seat names its
//! bidder.
//!
//! Protects from: another write between the check and the write, and a loser that believes it has won.

use futures_util::future::join_all;
use tenure_core::{Swap, Version};

use crate::bench::{Connection, candidate};
use crate::failure::ensure;
use crate::law::Need;
use crate::{Bench, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[];

const BIDDERS: usize = 8;
const ROUNDS: u64 = 6;

pub(super) async fn check(bench: Bench) -> Verdict {
    let connections: Vec<_> = (0..BIDDERS).map(|_| bench.connect()).collect();
    // On a seat that does not exist yet, and on a released one.
    let seat = bench.seat("raced");
    let mut expected = None;
    for token in 1..=ROUNDS {
        let (winner, version) = race(&bench, &connections, &seat, expected.as_ref(), token).await?;
        expected = Some(bench.write(&winner, &seat, Some(&version), &bench.vacant(token)).await?.version);
    }
    Ok(())
}

async fn race(
    bench: &Bench,
    connections: &[Connection],
    seat: &tenure_core::SeatName,
    expected: Option<&Version>,
    token: u64,
) -> Result<(Connection, Version), Failure> {
    let bids = connections.iter().enumerate().map(|(number, store)| {
        let (bench, store, seat, expected) = (bench.clone(), store.clone(), seat.clone(), expected.cloned());
        tokio::spawn(async move {
            let me = candidate(&format!("bidder-{number}"));
            let swap = store.swap(&seat, expected.as_ref(), &bench.held(&me, token)).await?;
            Ok::<_, Failure>((store, me, swap))
        })
    });
    let mut won = Vec::new();
    for bid in bench.within("answers to racing bids", join_all(bids)).await? {
        let (store, me, swap) = bid.map_err(|panic| Failure::new(format!("a bid panicked: {panic}")))??;
        if let Swap::Done { version, .. } = swap {
            won.push((store, me, version));
        }
    }
    ensure!(won.len() == 1, "{} of {BIDDERS} racing bids succeeded, expected exactly one", won.len());
    let (store, me, version) = won.remove(0);
    let seen = bench.read(&store, seat).await?;
    ensure!(
        seen.record.is_held_by(me.incarnation) && seen.version == version,
        "the seat does not name the winner {me}: {seen:?}"
    );
    Ok((store, version))
}
