//! Reports the time of the call as the time of the heartbeat.

use super::*;

#[derive(Default)]
pub(crate) struct EveryHeartbeatNew;

fn made_new(swap: Swap) -> Swap {
    match swap {
        Swap::Done { version, granted, .. } => {
            Swap::Done { version, since: Some(tenure_core::Clock::system().now()), granted }
        }
        Swap::Lost => Swap::Lost,
    }
}

impl Defect for EveryHeartbeatNew {
    async fn swap(
        &self,
        parts: &Parts,
        seat: &SeatName,
        expected: Option<&Version>,
        next: &Record,
    ) -> Result<Swap, StoreError> {
        SeatStore::swap(&parts.store, seat, expected, next).await.map(made_new)
    }

    async fn renew(&self, parts: &Parts, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        SeatStore::renew(&parts.store, seat, held, record).await.map(made_new)
    }
}
