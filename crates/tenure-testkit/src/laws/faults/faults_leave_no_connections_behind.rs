//! Whatever happens to the server or the network, and however often, processes then have no more connections than they
//! need, by the count of the server's own side.
//!
//! Protects from: connections that are given up and never closed, or that the server is left to find out about.

use tenure_core::Token;

use super::{Need, Rig};
use crate::proxy::{Proxy, Way};
use crate::servers::connections;
use crate::{TestCandidate, Failure, Verdict};

pub(super) const NEEDS: &[Need] = &[Need::Alone];

pub(super) async fn check(mut rig: Rig) -> Verdict {
    let address = rig.server.address();
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let port = port.ok_or_else(|| Failure::new(format!("there is no port in {address:?}")))?;
    // A server may have connections of its own.
    let most = connections(port) + rig.server.connections(2);
    let candidates = [rig.one(rig.lease()), rig.other(rig.lease())];
    rig.works_above(Token::ZERO).await?;
    for round in 0..8 {
        match round % 4 {
            0 => rig.server.pause(),
            1 => rig.faulty.black_hole(Way::Up),
            2 => rig.faulty.black_hole(Way::Down),
            _ => [&rig.faulty, &rig.clear].into_iter().for_each(Proxy::reset),
        }
        // Calls and attempts to connect are given up meanwhile.
        tokio::time::sleep(rig.lease() * 3 / 2).await;
        rig.server.resume();
        rig.faulty.pass();
        let asked = |one: &TestCandidate| one.counter.counts().calls;
        for (one, before) in candidates.iter().zip(candidates.each_ref().map(asked)) {
            rig.within("that it asks again", one.counter.wait_for(|counts| counts.calls > before)).await?;
        }
        let leads = || candidates.iter().any(|one| one.election.is_leader());
        rig.until("that one of them leads", leads).await?;
        let few = rig.until("that no connections are left behind", || connections(port) <= most).await;
        few.map_err(|failure| Failure::new(format!("{failure}: {} connections, not {most}", connections(port))))?;
    }
    rig.settles(candidates).await
}
