//! The last will of a dead process: one attempt to free its seat.

use tenure_protocol::{LastWill, Swap, WillStep};
use tokio::sync::oneshot;

use super::Driver;
use crate::{Answers, Call, DynStore, Error, Expect, SeatName, StoreError, Write};

impl Driver {
    /// Reads the seat, and frees it if it still names the dead process. Answers `None` if another write
    /// came in between.
    pub(super) fn execute_will(
        &self,
        seat: SeatName,
        will: LastWill,
        call: Call,
        reply: oneshot::Sender<Result<Option<WillStep>, Error>>,
    ) {
        let store = self.store.clone();
        let attempt = async move { execute(&*store, seat, &will, call).await };
        self.one_off_within(call.within, reply, attempt);
    }
}

async fn execute(
    store: &dyn DynStore,
    seat: SeatName,
    will: &LastWill,
    call: Call,
) -> Result<Option<WillStep>, StoreError> {
    let reading = Answers::one(async |to| store.read(&call, std::slice::from_ref(&seat), &to).await).await?;
    let (expected, record) = match will.step(&reading, rand::random()) {
        WillStep::Free { expected, record } => (expected, *record),
        done => return Ok(Some(done)),
    };
    let token = record.token;
    let write = Write { seat, expect: Expect::HolderDead(expected), record };
    match Answers::one(async |to| store.write(&call, &[write], &to).await).await? {
        Swap::Done { .. } => Ok(Some(WillStep::Freed(token))),
        Swap::Lost => Ok(None),
    }
}
