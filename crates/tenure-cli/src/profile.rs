//! The times of the steps of `tenure run`, for `scripts/bench handover --profile`. If the variable `TENURE_PROFILE` names a
//! file, each process of this program appends lines `NANOSECONDS STEP` to it.

use std::fs::File;
use std::io::Write as _;
use std::sync::LazyLock;

use tenure::store::{
    Answers, Call, Clock, DynNotes, DynStore, Interest, Lifeline, News, Promises, Reading, SeatName, SessionId, Store,
    StoreError, Swap, Version, Write,
};

use crate::process::now;

static FILE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("TENURE_PROFILE")?;
    File::options().create(true).append(true).open(path).ok()
});

/// Returns whether the steps of this process are measured.
pub(crate) fn is_on() -> bool {
    FILE.is_some()
}

/// Appends a step: what a process does with a message, of which the first word counts, or with a call to the store.
pub(crate) fn step(does: &str, what: &str) {
    if let Some(mut file) = FILE.as_ref() {
        let line = format!("{} {does} {}", now(), what.split(' ').next().unwrap_or_default());
        let _ = file.write_all(format!("{}\n", line.trim_end()).as_bytes());
    }
}

/// A store that measures its calls about seats.
pub(crate) struct Profiled(pub(crate) Box<dyn DynStore>);

#[deny(clippy::missing_trait_methods)]
impl Store for Profiled {
    fn promises(&self) -> Promises {
        (*self.0).promises()
    }

    fn attach(&self, clock: &Clock, news: &News) {
        (*self.0).attach(clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        (*self.0).shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        step("engine reads", "");
        let ended = (*self.0).read(call, seats, to).await;
        step("engine has read", "");
        ended
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        let what = writes.first().map_or("", |write| if write.record.is_vacant() { "release" } else { "bid" });
        step("engine sends", what);
        let ended = (*self.0).write(call, writes, to).await;
        step("engine has sent", what);
        ended
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        (*self.0).session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        (*self.0).watch(interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        (*self.0).notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        (*self.0).forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        (*self.0).list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        (*self.0).lifeline(seat)
    }
}
