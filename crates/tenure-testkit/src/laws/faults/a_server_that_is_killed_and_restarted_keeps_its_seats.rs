//! A server that is killed and restarts within a lease costs no term: it still has all data that it has confirmed.
//! Where a term ends with its connection, the next term has a higher token.
//!
//! Protects from: durability that is promised but missing, and a store that does not reconnect to its server.

use super::{Need, Rig};
use crate::Verdict;
use crate::bench::now;
use crate::failure::ensure;

pub(super) const NEEDS: &[Need] = &[Need::Alone, Need::Durable];

pub(super) async fn check(mut rig: Rig) -> Verdict {
    let lease = rig.server.long_lease();
    let mut one = rig.one(lease);
    let first = one.leads().await;
    let mut other = rig.other(lease);
    other.knows(first).await;
    let mut token = first;
    for _ in 0..2 {
        let killed = now();
        rig.server.restart();
        // If the machine is so busy that the server restarts too late for the lease, the term may be lost.
        let is_late = now().since(killed) > lease / 3;
        if rig.server.ends_with_its_connection() || is_late || token > first {
            rig.until("a candidate leads", || one.election.is_leader() || other.election.is_leader()).await?;
            let leader = if one.election.is_leader() { &one } else { &other };
            let now = leader.term().await.token();
            ensure!(now >= token, "a term with token {now} followed one with token {token}");
            token = now;
            let seat = rig.record().await?.map(|record| record.token);
            ensure!(seat >= Some(token), "a term with token {token} started, but the seat has {seat:?}");
        } else {
            rig.is_kept(&one, first).await?;
            rig.led_once()?;
        }
    }
    rig.settles([one, other]).await
}
