//! Reports the identity of its data, but writes an absent seat whatever identity the bid expects.

use tenure_core::DataIdentity;

use super::*;

#[derive(Default)]
pub(crate) struct IgnoresTheIdentity;

impl Defect for IgnoresTheIdentity {
    async fn read(&self, parts: &Parts, seat: &SeatName) -> Result<Reading, StoreError> {
        let reading = SeatStore::read(&parts.store, seat).await?;
        Ok(Reading { identity: Some(DataIdentity::new("data")), ..reading })
    }
}
