//! Tells the identity of its data, and writes absent seats whichever data they were absent from.

use tenure_core::Identity;

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresTheIdentity;

impl Bend for IgnoresTheIdentity {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let reading = SeatStore::read(&parts.store, seat).await?;
        Ok(Reading { identity: Some(Identity::new("data")), ..reading })
    }
}
