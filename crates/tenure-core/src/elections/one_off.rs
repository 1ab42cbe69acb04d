//! Calls that belong to no election of this process: to look, to list and to remove.

use std::time::Duration;

use tenure_protocol::{Fault, LastWill, Reading, Token, WillStep};
use tokio::sync::oneshot;

use super::Elections;
use crate::driver::Command;
use crate::{CandidateStatus, Ended, Error, ListedElection, SeatName, SeatStatus, StoreError};

/// The part of a lease that one attempt to execute a last will takes at most. A server that hangs leaves time for
/// another attempt.
const ATTEMPTS: u32 = 5;

/// The pauses between attempts to execute a last will.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why each attempt to execute a last will lost.
const CONTENDED: &str = "another process changed the seat at each attempt, or still has what holds the seat open";

impl Elections {
    /// Reads the seat of an election once: its leader, and how long the leader's lease still lasts by the store's
    /// clock.
    ///
    /// For scripts and status pages. To follow an election, [`observe`](Self::observe) it.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// let status = elections.look("nightly-jobs").await?;
    /// assert!(status.leader.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the name is not valid, or the store fails or does not answer within 10 seconds.
    pub async fn look(&self, name: impl AsRef<str>) -> Result<SeatStatus, Error> {
        let seat = SeatName::new(name)?;
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::Look { seat, reply });
        answered(answer).await.map(|reading| SeatStatus::of(reading, &self.engine.promises))
    }

    /// Lists all elections that have a record in the store, sorted by name, each with the state of its seat: those that
    /// run in any process, and those that ran once and were not [forgotten](Self::forget).
    ///
    /// For status pages and scripts. It lists the elections within the prefix, schema, namespace or file of this store.
    /// It reads the seats in batches and writes nothing. Over a store of `tenure::connect_read_only`, it needs only the
    /// right to read, and creates nothing.
    ///
    /// ```
    /// # use tenure_core::{Elections, memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure_core::Error> {
    /// # let elections = Elections::new(MemoryStore::new());
    /// # elections.election("nightly-jobs").candidate("web-1").start()?.elected().await?;
    /// for election in elections.list().await? {
    ///     let leader = election.status?.leader;
    ///     println!("{}: {}", election.name, leader.map_or("vacant".into(), |leader| leader.candidate.id));
    ///     # assert_eq!(election.name.as_str(), "nightly-jobs");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the store cannot list its elections, fails or does not answer within 10 seconds. A record that cannot be read
    /// is an error of its election alone.
    pub async fn list(&self) -> Result<Vec<ListedElection>, Error> {
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::List { reply });
        // An election that was forgotten after it was listed has no record any more.
        let exists = |(_, reading): &(SeatName, Result<Reading, StoreError>)| {
            reading.as_ref().map_or(true, |reading| reading.seat.is_some())
        };
        let listed = answered(answer).await?.into_iter().filter(exists);
        let status = |reading: Result<Reading, StoreError>| match reading {
            Ok(reading) => Ok(SeatStatus::of(reading, &self.engine.promises)),
            Err(error) => Err(Error::Store(error.into())),
        };
        Ok(listed.map(|(name, reading)| ListedElection { name, status: status(reading) }).collect())
    }

    /// Lists the candidates of the election with this name, the leader first. See
    /// [`Election::candidates`](crate::Election::candidates).
    ///
    /// # Errors
    /// If the name is not valid, or the store keeps no notes, fails or does not answer within 10 seconds.
    pub async fn candidates(&self, name: impl AsRef<str>) -> Result<Vec<CandidateStatus>, Error> {
        let seat = SeatName::new(name)?;
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::Candidates { seat, reply });
        answered(answer).await
    }

    /// Executes the last will of a candidate whose process is dead: frees its seat, if the seat still names that
    /// candidate. Returns the token of the term that it has ended, or `None` if there was nothing to free. `lease` is
    /// that of the candidate, and `within` is how much of it is left.
    ///
    /// **The caller must have seen that the process is dead, and that no work of its term is left.** The seat of a leader
    /// that is alive would be taken from it, and two leaders could work at once. `tenure run` and `tenure will` execute
    /// wills; other programs do not need this.
    ///
    /// # Errors
    /// If the name is not valid, if the store denies the calls, or if it fails for so long. Then the seat becomes free
    /// when its lease expires, as it does without a will. The same holds if another process keeps the seat, because it has
    /// the [lifeline](crate::Election::lifeline) of the dead one.
    pub async fn execute_will(
        &self,
        name: impl AsRef<str>,
        will: &LastWill,
        lease: Duration,
        within: Duration,
    ) -> Result<Option<Token>, Error> {
        let seat = SeatName::new(name)?;
        let (engine, clock) = (self.engine.start_thread()?, &self.engine.clock);
        let until = clock.now() + within;
        let mut pause = FIRST_PAUSE;
        loop {
            let (reply, answer) = oneshot::channel();
            let attempt = (lease / ATTEMPTS).min(until.since(clock.now()));
            let (seat, will) = (seat.clone(), will.clone());
            engine.send(Command::ExecuteWill { seat, will: Box::new(will), lease, within: attempt, reply });
            let result = answered(answer).await;
            let left = until.since(clock.now());
            let is_late = left <= FIRST_PAUSE;
            match result {
                Ok(Some(WillStep::Freed(token))) => return Ok(Some(token)),
                Ok(Some(_)) => return Ok(None),
                Ok(None) if is_late => return Err(Error::Store(StoreError::refused(CONTENDED).into())),
                Ok(None) => {}
                Err(error) => {
                    let is_denied = error.store_error().is_none_or(|error| error.fault() == Fault::Denied);
                    if is_denied || is_late {
                        return Err(error);
                    }
                }
            }
            // The last attempt begins just before the end.
            clock.sleep_until(clock.now() + pause.min(left.saturating_sub(FIRST_PAUSE))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Removes the seat of an election and its notes. The store keeps the token floor, so that tokens never restart.
    ///
    /// For elections that are not used any more. A leader loses its seat.
    ///
    /// # Errors
    /// If the name is not valid, or the store fails or cannot remove seats.
    pub async fn forget(&self, name: impl AsRef<str>) -> Result<(), Error> {
        let seat = SeatName::new(name)?;
        let (reply, answer) = oneshot::channel();
        self.engine.start_thread()?.send(Command::Forget { seat, reply });
        answered(answer).await
    }
}

/// Waits for an answer of the engine, which can have ended.
async fn answered<T>(answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
    answer.await.unwrap_or(Err(Error::Ended(Ended::EngineGone)))
}
