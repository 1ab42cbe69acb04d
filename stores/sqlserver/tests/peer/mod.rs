//! A scripted peer: a small server that speaks TDS and answers the batches of this store from a model in memory.
//!
//! It shows that the store logs in, sends its batches and reads the answers as TDS requires, and that it draws the right
//! conclusions from them. It does not show that SQL Server understands the statements: the model knows a batch by its name.

#![allow(dead_code, reason = "each test program uses a part of the peer")]

pub(crate) mod locks;
pub(crate) mod statements;
pub(crate) mod tokens;
pub(crate) mod wire;

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use locks::{Locks, Spid};
use statements::Tables;
use tokens::{Answer, Failure};
use wire::{BATCH, LOGIN, PRELOGIN, RPC, Request};

/// A server in this process. It ends when it is dropped.
pub(crate) struct Peer {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct State {
    schemas: HashMap<String, Tables>,
    locks: Locks,
    connections: HashMap<Spid, TcpStream>,
    last_spid: Spid,
    pub(crate) server: Server,
    /// Answers to the next batches of these names.
    scripted: Vec<(&'static str, Scripted)>,
    /// The names of all batches, in order.
    pub(crate) received: Vec<String>,
    /// The last batch of each name.
    pub(crate) batches: HashMap<String, String>,
    is_paused: bool,
    is_stopped: bool,
    /// How often the data was lost.
    losses: u32,
}

/// The server as its clients find it.
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) level: i64,
    pub(crate) updateability: String,
    pub(crate) durability: i64,
    pub(crate) password: String,
    /// The access token that it accepts.
    pub(crate) token: String,
    pub(crate) may_create: bool,
    pub(crate) may_write: bool,
    pub(crate) may_kill: bool,
    /// How far its clock is ahead, in microseconds.
    pub(crate) clock_ahead: i64,
}

/// An answer that a test puts in the place of the model's.
#[derive(Clone, Debug)]
pub(crate) enum Scripted {
    Answer(Answer),
    /// Executes the batch, and then fails with this error.
    Afterwards(Failure),
    /// Executes the batch, and closes the connection.
    Close,
    /// Executes the batch, and never answers.
    Silence,
}

impl Peer {
    pub(crate) fn start() -> Self {
        let server = Server {
            version: "16.0.1000.6".to_owned(),
            level: 160,
            updateability: "READ_WRITE".to_owned(),
            durability: 0,
            password: "right".to_owned(),
            token: "fresh".to_owned(),
            may_create: true,
            may_write: true,
            may_kill: true,
            clock_ahead: 0,
        };
        let state = State {
            schemas: HashMap::new(),
            locks: Locks::default(),
            connections: HashMap::new(),
            last_spid: 50,
            server,
            scripted: Vec::new(),
            received: Vec::new(),
            batches: HashMap::new(),
            is_paused: false,
            is_stopped: false,
            losses: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = Self { address: listener.local_addr().unwrap(), shared, accepting: None };
        peer.accept(listener);
        peer
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self) -> String {
        url_at(&self.address())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Answers the next batch of this name in this way.
    pub(crate) fn script(&self, name: &'static str, scripted: Scripted) {
        self.state().scripted.push((name, scripted));
    }

    pub(crate) fn pause(&self) {
        self.state().is_paused = true;
    }

    pub(crate) fn resume(&self) {
        self.state().is_paused = false;
        self.shared.changed.notify_all();
    }

    /// Stops the server, and starts it again at the same address. Connections and locks are lost, tables are not.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let listener = TcpListener::bind(self.address).unwrap();
        let mut state = self.state();
        (state.is_stopped, state.is_paused) = (false, false);
        drop(state);
        self.accept(listener);
    }

    pub(crate) fn restart_empty(&mut self) {
        self.stop();
        let mut state = self.state();
        state.schemas.clear();
        state.losses += 1;
        drop(state);
        self.restart();
    }

    fn stop(&mut self) {
        let mut state = self.state();
        state.is_stopped = true;
        let spids: Vec<Spid> = state.connections.keys().copied().collect();
        spids.into_iter().for_each(|spid| state.kill(spid));
        drop(state);
        self.shared.changed.notify_all();
        if let Some(accepting) = self.accepting.take() {
            // Wakes the thread.
            let _ = TcpStream::connect(self.address);
            accepting.join().unwrap();
        }
    }

    fn accept(&mut self, listener: TcpListener) {
        let shared = self.shared.clone();
        self.accepting = Some(thread::spawn(move || {
            for stream in listener.incoming() {
                let mut state = shared.state();
                if state.is_stopped {
                    return;
                }
                let Ok(stream) = stream else { continue };
                state.last_spid += 1;
                let spid = state.last_spid;
                state.connections.insert(spid, stream.try_clone().unwrap());
                let shared = shared.clone();
                thread::spawn(move || {
                    let _ = shared.serve(spid, stream);
                    shared.state().kill(spid);
                    shared.changed.notify_all();
                });
            }
        }));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn url_at(address: &str) -> String {
    format!("sqlserver://app:right@{address}/app?encrypt=disable")
}

impl State {
    pub(crate) fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        since.as_micros() as i64 + self.server.clock_ahead
    }

    fn identity(&self) -> String {
        let is_writable = self.server.updateability == "READ_WRITE";
        if is_writable { format!("PEER.5.{}", self.losses) } else { String::new() }
    }

    /// Ends a session: its connection and its locks.
    pub(crate) fn kill(&mut self, spid: Spid) {
        if let Some(connection) = self.connections.remove(&spid) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.locks.end(spid);
    }

    /// Returns the sessions that hold the lock of this name.
    pub(crate) fn holder_of(&self, lock: &str) -> Option<Spid> {
        self.connections.keys().copied().find(|spid| self.locks.has_exclusive(lock, *spid))
    }

    pub(crate) fn tables(&mut self, schema: &str) -> Option<&mut Tables> {
        self.schemas.get_mut(schema)
    }

    pub(crate) fn drop_tables(&mut self, schema: &str) {
        self.schemas.remove(schema);
    }

    pub(crate) fn held_locks(&self) -> usize {
        self.locks.held()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    fn refuses(&self, login: &wire::Login) -> Option<Failure> {
        let is_known = match &login.token {
            Some(token) => *token == self.server.token,
            None => login.password == self.server.password,
        };
        if !is_known {
            return Some(Failure::new(18456, &format!("Login failed for user '{}'.", login.user)));
        }
        let is_there = login.database == "app";
        (!is_there).then(|| {
            Failure::new(
                4060,
                &format!("Cannot open database \"{}\" requested by the login. The login failed.", login.database),
            )
        })
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn serve(&self, spid: Spid, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        loop {
            let (kind, content) = wire::read_message(&mut stream)?;
            self.while_paused();
            let answer = match kind {
                PRELOGIN => wire::prelogin(wire::NOT_SUPPORTED),
                LOGIN => tokens::login(self.state().refuses(&wire::login(&content)).as_ref()),
                BATCH | RPC => {
                    let request = Request::parse(kind, &content);
                    self.answer(spid, &request)?.tokens()
                }
                other => panic!("the peer does not know packets of type {other}"),
            };
            self.while_paused();
            wire::write_message(&mut stream, wire::ANSWER, spid, &answer)?;
        }
    }

    fn answer(&self, spid: Spid, request: &Request) -> io::Result<Answer> {
        let scripted = {
            let mut state = self.state();
            state.received.push(request.name().to_owned());
            state.batches.insert(request.name().to_owned(), request.sql.clone());
            let place = state.scripted.iter().position(|(name, _)| *name == request.name());
            place.map(|place| state.scripted.remove(place).1)
        };
        if let Some(Scripted::Answer(answer)) = scripted {
            return Ok(answer);
        }
        let answer = statements::execute(self, spid, request);
        self.changed.notify_all();
        match scripted {
            Some(Scripted::Afterwards(failure)) => {
                let results = answer.results.into_iter().take(1).collect();
                Ok(Answer { results, failure: Some(failure) })
            }
            Some(Scripted::Close) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(Scripted::Silence) => {
                let mut state = self.state();
                while state.connections.contains_key(&spid) && !is_closed(&state.connections[&spid]) {
                    state = self.changed.wait_timeout(state, TICK).unwrap().0;
                }
                Err(io::ErrorKind::ConnectionReset.into())
            }
            _ => Ok(answer),
        }
    }

    fn while_paused(&self) {
        let mut state = self.state();
        while state.is_paused && !state.is_stopped {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// `sp_getapplock`: returns 0 if the lock was free, 1 after a wait, and -1 after the time-out.
    fn take_lock(&self, spid: Spid, name: &str, is_exclusive: bool, millis: i64) -> i64 {
        let until = Instant::now() + Duration::from_millis(millis as u64);
        let mut state = self.state();
        let (request, is_granted) = state.locks.request(name, spid, is_exclusive);
        if is_granted {
            return 0;
        }
        loop {
            let is_gone = state.connections.get(&spid).is_none_or(is_closed);
            if state.locks.is_granted(name, request) {
                return 1;
            } else if Instant::now() >= until || is_gone {
                state.locks.cancel(name, request);
                return -1;
            }
            let left = until.saturating_duration_since(Instant::now()).min(TICK);
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn release_lock(&self, spid: Spid, name: &str) {
        self.state().locks.release(name, spid);
        self.changed.notify_all();
    }
}

/// How often a wait looks whether its client is still there.
const TICK: Duration = Duration::from_millis(50);

/// Returns whether the client has closed the connection. The flag is that of the socket, so it is set back.
fn is_closed(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let is_closed = matches!(stream.peek(&mut [0]), Ok(0));
    let _ = stream.set_nonblocking(false);
    is_closed
}
