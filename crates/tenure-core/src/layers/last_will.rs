//! The last will of a program: a companion process that frees its seats when the program dies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use serde_json::{Value, json};
use tracing::{Level, warn};

use crate::{
    Answers, Call, Clock, ConfigError, DynNotes, Expect, Incarnation, Interest, Lifeline, News, Promises, Reading,
    Record, SeatName, SessionId, Store, StoreError, Swap, Token, Version, Write, log,
};

/// A store whose seats are freed at once when this process dies: after a crash, `abort`, `kill -9`, an exit without a
/// stop, or when the kernel is out of memory.
///
/// It starts a companion, the command `tenure will`, which holds a socket and a list of the seats that this process
/// holds. When the kernel confirms that this process is dead, with all of its threads, the companion connects to the
/// store, frees those seats, and exits. While this process lives, the companion does nothing, whatever happens to the
/// socket. So followers take over within milliseconds, where they would otherwise wait for the lease to expire.
///
/// A companion that has ended while this process lives is logged as a warning, and started again.
///
/// It promises no more than that: processes that this one has started may still run. If the machine fails, the
/// companion is killed as well, or it cannot reach the store, then the lease decides, as it does without a last will.
///
/// Stores with a lifeline (SQLite; PostgreSQL, MySQL and SQL Server with `mode=session`) free the seats of a dead process by
/// themselves.
#[derive(Debug)]
pub struct LastWills<S> {
    store: S,
    companion: Arc<Mutex<Companion>>,
}

/// How long the companion has to start.
const START: Duration = Duration::from_secs(10);

/// The number of companions that one process starts at most. A healthy system never kills a companion.
const MAX_COMPANIONS: u32 = 100;

impl<S: Store> LastWills<S> {
    /// Starts the companion. `program` is the command `tenure`: a name that is found on the path, or a path. `url` is
    /// the URL of the store, which the companion connects to; it gets it through a socket, because a URL can contain a
    /// password.
    ///
    /// # Errors
    /// If the program cannot be started, is not a `tenure` that knows how to execute wills, or was built without this
    /// store.
    pub fn start(store: S, url: &str, program: &str) -> Result<Self, ConfigError> {
        let start = Start { url: url.to_owned(), program: program.to_owned() };
        let (process, socket) = start.companion().map_err(ConfigError::new)?;
        let companion = Companion { socket, pending: Vec::new(), held: BTreeMap::new() };
        let companion = Arc::new(Mutex::new(companion));
        start.keep(process, &companion).map_err(ConfigError::new)?;
        Ok(Self { store, companion })
    }

    /// Tells the companion which seat this process is about to win, unless it knows.
    fn arm(&self, seat: &SeatName, record: &Record) {
        let Some(holder) = record.holder.as_ref().filter(|_| !self.store.promises().lifeline) else { return };
        let line = json!({ "arm": {
            "election": seat.as_str(),
            "candidate": &*holder.id,
            "incarnation": holder.incarnation.to_string(),
            "token": record.token.get(),
            "lease_ms": u64::try_from(record.lease.as_millis()).unwrap_or(u64::MAX),
        } });
        let mut companion = lock(&self.companion);
        if companion.held.get(seat).is_none_or(|held| held.names != record.names()) {
            companion.tell(&line);
            companion.held.insert(seat.clone(), Held { names: record.names(), line });
        }
    }
}

/// How to start a companion.
struct Start {
    url: String,
    program: String,
}

impl Start {
    /// Starts a companion and waits until it is ready.
    fn companion(&self) -> Result<(Child, UnixStream), String> {
        let (program, get) = (&self.program, "install the command tenure, or name its path");
        let failed =
            |why: &dyn std::fmt::Display| format!("last_will: cannot start {program:?} as companion: {why}; {get}");
        let (socket, its_end) = UnixStream::pair().map_err(|error| failed(&error))?;
        let answers = its_end.try_clone().map_err(|error| failed(&error))?;
        let mut process = Command::new(program)
            .arg("will")
            // It gets the URL through the socket.
            .env_remove("TENURE_STORE")
            .stdin(OwnedFd::from(its_end))
            .stdout(Stdio::from(OwnedFd::from(answers)))
            .spawn()
            .map_err(|error| failed(&error))?;
        let answer = self.first_answer(&socket).unwrap_or_default();
        if answer == "ready\n" {
            return Ok((process, socket));
        }
        let _ = process.kill();
        let _ = process.wait();
        Err(match answer.strip_prefix("refused: ") {
            Some(why) => {
                let full = "cargo install --path crates/tenure-cli --features full";
                let why = why.trim_end();
                format!("last_will: companion {program:?} answers: {why}; \"{full}\" builds one with all stores")
            }
            None => failed(&"it does not answer; it must be the command tenure of this version"),
        })
    }

    /// Tells a companion its store, and returns the first line that it answers.
    fn first_answer(&self, socket: &UnixStream) -> std::io::Result<String> {
        let mut first = format!("{}\n", json!({ "store": self.url, "parent": std::process::id() })).into_bytes();
        // The buffer of a new socket is larger than any URL.
        send_some(socket, &mut first)?;
        socket.set_read_timeout(Some(START))?;
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line)?;
        Ok(line)
    }

    /// Waits for the end of the companion on a separate thread, and starts the next one. The thread ends with the last
    /// companion, after the store was dropped.
    fn keep(self, process: Child, companion: &Arc<Mutex<Companion>>) -> Result<(), String> {
        let companion = Arc::downgrade(companion);
        let keep = move || self.keep_running(process, &companion);
        let thread = std::thread::Builder::new().name("tenure-will".to_owned()).spawn(keep);
        thread.map(drop).map_err(|error| format!("last_will: cannot start a thread for the companion: {error}"))
    }

    fn keep_running(&self, mut process: Child, companion: &Weak<Mutex<Companion>>) {
        for number in 1.. {
            // It fails if this program ignores the ends of its children, or reaps all of them. The companion has ended
            // in any case.
            let status = process.wait().map_or_else(|_| "unknown".to_owned(), |status| status.to_string());
            // Without the store, nothing is left to do for a companion.
            let Some(companion) = companion.upgrade() else { return };
            let too_many = || format!("{MAX_COMPANIONS} companions have ended");
            let next = if number < MAX_COMPANIONS { self.companion() } else { Err(too_many()) };
            match next {
                Ok((next, socket)) => {
                    process = next;
                    lock(&companion).moved_to(socket);
                    log::emit(Level::WARN, move || warn!(status, "the companion has ended; started another one"));
                }
                Err(error) => {
                    return log::emit(Level::WARN, move || {
                        warn!(status, error, "the companion has ended; if this process dies, its seats have to expire");
                    });
                }
            }
        }
    }
}

/// The socket to a companion, and what the companion knows.
#[derive(Debug)]
struct Companion {
    socket: UnixStream,
    /// Text that did not fit into the socket.
    pending: Vec<u8>,
    /// The seats that this process may hold.
    held: BTreeMap<SeatName, Held>,
}

/// A seat that this process may hold.
#[derive(Debug)]
struct Held {
    /// Its candidate and its term.
    names: (Option<Incarnation>, Token),
    /// The line that arms the companion, and says whether the store has confirmed the seat (`won`).
    line: Value,
}

impl Companion {
    /// Writes a line without blocking.
    fn tell(&mut self, line: &Value) {
        self.pending.extend(format!("{line}\n").into_bytes());
        self.flush();
    }

    /// Writes as much as fits. If the companion is gone, the next one is told which seats are held.
    fn flush(&mut self) {
        if send_some(&self.socket, &mut self.pending).is_err() {
            self.pending.clear();
        }
    }

    fn held(&mut self, seat: &SeatName, token: Token) -> Option<&mut Held> {
        self.held.get_mut(seat).filter(|held| held.names.1 == token)
    }

    /// Tells the companion that the store has confirmed that this process holds this seat.
    fn won(&mut self, seat: &SeatName, token: Token) {
        if let Some(held) = self.held(seat, token).filter(|held| held.line["arm"]["won"] != true) {
            held.line["arm"]["won"] = true.into();
            let line = held.line.clone();
            self.tell(&line);
        }
    }

    /// Tells the companion that this process does not hold this seat.
    fn disarm(&mut self, seat: &SeatName, token: Token) {
        if self.held(seat, token).is_some() {
            self.held.remove(seat);
            self.tell(&json!({ "disarm": seat.as_str(), "token": token.get() }));
        }
    }

    /// Returns those of these seats that this process may hold, each with its place, its term, and whether the term was
    /// won.
    fn held_of(&self, seats: &[SeatName]) -> BTreeMap<usize, (SeatName, Token, bool)> {
        let held = |(place, seat): (usize, &SeatName)| {
            let held = self.held.get(seat)?;
            Some((place, (seat.clone(), held.names.1, held.line["arm"]["won"] == true)))
        };
        seats.iter().enumerate().filter_map(held).collect()
    }

    /// Disarms the companion if the seat was read in a term of another candidate, or vacant, and not before the term of
    /// this process. A bid of this process that is still on its way expects an earlier version, and loses.
    fn read(&mut self, seat: &SeatName, seen: (Option<Incarnation>, Token)) {
        let Some(held) = self.held.get(seat) else { return };
        if held.names.0 != seen.0 && held.names.1 <= seen.1 {
            self.disarm(seat, held.names.1);
        }
    }

    /// Continues with another companion.
    fn moved_to(&mut self, socket: UnixStream) {
        self.socket = socket;
        self.pending = self.held.values().flat_map(|held| format!("{}\n", held.line).into_bytes()).collect();
        self.flush();
    }
}

#[cfg(not(target_vendor = "apple"))]
const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// The standard library has set an option of the socket instead.
#[cfg(target_vendor = "apple")]
const FLAGS: SendFlags = SendFlags::DONTWAIT;

/// Sends as much of a text as fits, and removes it. A peer that is gone is an error, and no SIGPIPE, which would end a
/// program that does not ignore it.
fn send_some(socket: &UnixStream, text: &mut Vec<u8>) -> Result<(), Errno> {
    while !text.is_empty() {
        match send(socket, text, FLAGS) {
            Ok(length) => drop(text.drain(..length)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lock(companion: &Mutex<Companion>) -> MutexGuard<'_, Companion> {
    companion.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for LastWills<S> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    fn attach(&self, clock: &Clock, news: &News) {
        self.store.attach(clock, news);
    }

    fn shard(&self, seat: &SeatName) -> u64 {
        self.store.shard(seat)
    }

    async fn read(&self, call: &Call, seats: &[SeatName], to: &Answers<Reading>) -> Result<(), StoreError> {
        let (companion, held, to) = (self.companion.clone(), lock(&self.companion).held_of(seats), to.clone());
        let to = Answers::new(move |place, answer: Result<Reading, StoreError>| {
            if let (Ok(Reading { seat, .. }), Some((name, token, was_won))) = (&answer, held.get(&place)) {
                match seat {
                    Some(seat) => lock(&companion).read(name, seat.record.names()),
                    // The seat was removed after this process had won it. The renewals of that term expect it, and lose.
                    None if *was_won => lock(&companion).disarm(name, *token),
                    // A bid of this process may still be on its way.
                    None => {}
                }
            }
            to.set(place, answer);
        });
        self.store.read(call, seats, &to).await
    }

    async fn write(&self, call: &Call, writes: &[Write], to: &Answers<Swap>) -> Result<(), StoreError> {
        lock(&self.companion).flush();
        // Before the write: a process that dies right after it has won a seat has told its companion. A will for a seat
        // that was not won, or for a term that is over, changes nothing.
        for write in writes {
            self.arm(&write.seat, &write.record);
        }
        // A seat that was released, or not won, needs no will. The token tells it from the next term, which can begin before
        // this call ends. A renewal can be lost because an earlier one was written, so the next read decides.
        let about = |write: &Write| {
            let is_renewal = matches!(write.expect, Expect::Held(_));
            (write.seat.clone(), write.record.token, write.record.is_vacant(), is_renewal)
        };
        let about: Vec<_> = writes.iter().map(about).collect();
        let (companion, to) = (self.companion.clone(), to.clone());
        let to = Answers::new(move |place, answer: Result<Swap, StoreError>| {
            if let (Ok(swap), Some((seat, token, is_vacant, is_renewal))) = (&answer, about.get(place)) {
                match (swap, is_vacant) {
                    (Swap::Done { .. }, false) => lock(&companion).won(seat, *token),
                    (Swap::Done { .. }, true) => lock(&companion).disarm(seat, *token),
                    (Swap::Lost, false) if !is_renewal => lock(&companion).disarm(seat, *token),
                    (Swap::Lost, _) => {}
                }
            }
            to.set(place, answer);
        });
        self.store.write(call, writes, &to).await
    }

    fn session_of(&self, version: &Version) -> Option<SessionId> {
        self.store.session_of(version)
    }

    async fn watch(&self, interest: &Interest, news: &News) -> StoreError {
        self.store.watch(interest, news).await
    }

    fn notes(&self) -> Option<&dyn DynNotes> {
        self.store.notes()
    }

    async fn forget(&self, seat: &SeatName) -> Result<(), StoreError> {
        self.store.forget(seat).await
    }

    async fn list_seats(&self) -> Result<Vec<SeatName>, StoreError> {
        self.store.list_seats().await
    }

    fn lifeline(&self, seat: &SeatName) -> std::io::Result<Option<Lifeline>> {
        self.store.lifeline(seat)
    }
}
