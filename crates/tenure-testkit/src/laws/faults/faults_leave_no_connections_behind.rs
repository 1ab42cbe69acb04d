//! After repeated faults of the server or the network, processes have no more connections than they need, counted
//! on the side of the server.
//!
//! Protects from: connections that are abandoned and never closed, or that only the server closes.

use tenure_core::Token;

use super::{Need, Rig};
use crate::proxy::{Proxy, Way};
use crate::servers::connections;
use crate::{Failure, TestCandidate, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Alone];

pub(super) async fn check(mut rig: Rig) -> Verdict {
    let address = rig.server.address();
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let port = port.ok_or_else(|| Failure::new(format!("the address {address:?} has no port")))?;
    // The server may have connections to itself.
    let most = connections(port) + rig.server.connections(2);
    let candidates = [rig.one(rig.lease()), rig.other(rig.lease())];
    rig.works_above(Token::ZERO).await?;
    for round in 0..if rig.server.is_slow() { 4 } else { 8 } {
        match round % 4 {
            0 => rig.server.pause(),
            1 => rig.faulty.black_hole(Way::Up),
            2 => rig.faulty.black_hole(Way::Down),
            _ => [&rig.faulty, &rig.clear].into_iter().for_each(Proxy::reset),
        }
        // Calls and connection attempts time out meanwhile.
        tokio::time::sleep(rig.lease() * 3 / 2).await;
        rig.server.resume();
        rig.faulty.pass();
        let asked = |one: &TestCandidate| one.counter.counts().calls;
        for (one, before) in candidates.iter().zip(candidates.each_ref().map(asked)) {
            rig.within("the candidate makes another call", one.counter.wait_for(|counts| counts.calls > before))
                .await?;
        }
        let leads = || candidates.iter().any(|one| one.election.is_leader());
        rig.until("a candidate leads", leads).await?;
        let few = rig.until("no surplus connections are left", || connections(port) <= most).await;
        few.map_err(|failure| {
            Failure::new(format!("{failure}: there are {} connections, at most {most} are needed", connections(port)))
        })?;
    }
    rig.settles(candidates).await
}
