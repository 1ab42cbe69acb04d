//! The tiny store, with one connection for calls and one for a watch.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{
    Change, Life, Promises, Push, Reading, Record, Seat, SeatName, SeatStore, Seen, StoreError, Swap, Token, Version,
    record,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Flaw, Shared};

/// A store on a tiny server.
pub(super) struct TinyStore {
    address: String,
    flaw: Option<Flaw>,
    /// The connection for calls, while no call uses it.
    idle: Shared<Option<Connection>>,
    /// What flaws keep: abandoned connections, the rest of a cut reply, and the last readings.
    kept: Shared<Vec<Connection>>,
    half: Shared<String>,
    cache: Shared<BTreeMap<SeatName, Reading>>,
}

type Connection = BufReader<TcpStream>;

/// A connection in use by a call. Dropping the call closes it, or keeps it if that is the flaw.
struct Lent<'a> {
    store: &'a TinyStore,
    connection: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if self.store.has(Flaw::KeepsAbandonedConnections) {
            self.store.kept.lock().expect("no panic").extend(self.connection.take());
        }
    }
}

/// Returns the holder and token of a record as one word.
pub(super) fn holder(record: Option<&Record>) -> String {
    let named = record.and_then(|record| Some((record.holder.as_ref()?.incarnation, record.token)));
    named.map_or_else(|| "-".to_owned(), |(incarnation, token)| format!("{incarnation:?}-{token}").replace(' ', ""))
}

fn word(seat: &SeatName) -> String {
    seat.as_str().bytes().map(|byte| format!("{byte:02x}")).collect()
}

impl TinyStore {
    pub(super) fn new(address: &str, flaw: Option<Flaw>) -> Self {
        Self {
            address: address.to_owned(),
            flaw,
            idle: Shared::default(),
            kept: Shared::default(),
            half: Shared::default(),
            cache: Shared::default(),
        }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    async fn connect(&self) -> Result<Connection, StoreError> {
        let refused = |error| StoreError::refused("cannot connect to the tiny server").because(error);
        TcpStream::connect(&self.address).await.map(BufReader::new).map_err(refused)
    }

    /// Sends a request on the idle connection, or on a new one, and keeps the connection for the next call.
    async fn ask(&self, question: &str) -> Result<String, StoreError> {
        let idle = self.idle.lock().expect("no panic").take();
        let connection = match idle {
            Some(idle) => idle,
            None => self.connect().await?,
        };
        let mut lent = Lent { store: self, connection: Some(connection) };
        let mut answer = String::new();
        if self.has(Flaw::KeepsHalfAReply) {
            answer.clone_from(&self.half.lock().expect("no panic"));
        }
        let asked = talk(lent.connection.as_mut().expect("a connection in use"), question, &mut answer).await;
        if asked.is_err() {
            *self.half.lock().expect("no panic") = answer.clone();
        }
        let answer = asked.map(|()| answer);
        if answer.is_ok() || self.has(Flaw::NeverReconnects) {
            *self.idle.lock().expect("no panic") = lent.connection.take();
        }
        answer
    }
}

/// Sends a request, and appends the reply to `answer`.
async fn talk(connection: &mut Connection, question: &str, answer: &mut String) -> Result<(), StoreError> {
    let unknown = |error| StoreError::unknown("the connection broke").because(error);
    connection.get_mut().write_all(format!("{question}\n").as_bytes()).await.map_err(unknown)?;
    connection.read_line(answer).await.map_err(unknown)?;
    match answer.pop() {
        Some('\n') => Ok(()),
        cut => {
            answer.extend(cut);
            Err(StoreError::unknown("the connection ended before the reply was complete"))
        }
    }
}

fn not_understood(answer: &str) -> StoreError {
    StoreError::unknown(format!("the answer is not understood: {answer:?}"))
}

impl SeatStore for TinyStore {
    fn promises(&self) -> Promises {
        let push = if self.has(Flaw::PromisesProvenPush) { Push::Proven } else { Push::Hint };
        Promises { push, ..Promises::of("tiny") }
    }

    async fn read(&self, seat: &SeatName) -> Result<Reading, StoreError> {
        let cached = self.cache.lock().expect("no panic").get(seat).cloned();
        if let Some(cached) = cached.filter(|_| self.has(Flaw::ReadsFromItsCache)) {
            return Ok(cached);
        }
        let name = seat;
        let answer = self.ask(&format!("read {}", word(name))).await?;
        let (floor, rest) = answer.split_once(' ').ok_or_else(|| not_understood(&answer))?;
        let floor = Token::new(floor.parse().map_err(|_| not_understood(&answer))?);
        let seat = match rest.split_once(' ') {
            None => None,
            Some((version, text)) => {
                Some(Seat { record: record::from_json(text)?, version: Version::new(version), life: Life::Observe })
            }
        };
        let reading = Reading { seat, floor, identity: None };
        self.cache.lock().expect("no panic").insert(name.clone(), reading.clone());
        Ok(reading)
    }

    async fn swap(&self, seat: &SeatName, expected: Option<&Version>, next: &Record) -> Result<Swap, StoreError> {
        let mut expected = expected.cloned();
        if self.has(Flaw::WritesWithoutACondition) {
            expected = self.read(seat).await?.seat.map(|seat| seat.version);
        }
        let expected = expected.as_ref().map_or("0", |version| version.as_str());
        let answer = self.ask(&format!("write {} {expected} {}", word(seat), record::to_json(next))).await?;
        match answer.strip_prefix("done ") {
            Some(version) => {
                let version = Version::new(version);
                let written = Seat { record: next.clone(), version: version.clone(), life: Life::Observe };
                self.cache.lock().expect("no panic").insert(seat.clone(), Reading::of(Some(written)));
                Ok(Swap::Done { version, since: None, granted: None })
            }
            None if answer == "lost" => Ok(Swap::Lost),
            None => Err(not_understood(&answer)),
        }
    }

    async fn renew(&self, seat: &SeatName, held: &Version, record: &Record) -> Result<Swap, StoreError> {
        if self.has(Flaw::AnswersRenewalsItself) {
            return Ok(Swap::Done { version: held.clone(), since: None, granted: None });
        }
        let renewed = self.swap(seat, Some(held), record);
        if self.has(Flaw::TreatsSilenceAsSuccess) {
            let done = Swap::Done { version: held.clone(), since: None, granted: None };
            return tokio::time::timeout(Duration::from_millis(50), renewed).await.unwrap_or(Ok(done));
        }
        renewed.await
    }

    async fn changed(&self, seat: &SeatName, seen: &Seen) -> Change {
        let seen = holder(seen.seat.as_ref().map(|seat| &seat.record));
        let watched = async {
            let mut connection = self.connect().await?;
            talk(&mut connection, &format!("watch {} {seen}", word(seat)), &mut String::new()).await
        };
        if watched.await.is_err() {
            if self.has(Flaw::WatchesABrokenConnection) {
                std::future::pending::<()>().await;
            }
            // A pause, in case no server accepts connections.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Change::Look
    }
}
