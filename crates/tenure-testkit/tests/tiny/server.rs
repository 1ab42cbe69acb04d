//! The tiny server: each request is a line, and so is each reply.
//!
//! ```text
//! read NAME                      → FLOOR none | FLOOR VERSION RECORD
//! write NAME VERSION RECORD      → done VERSION | lost        VERSION 0: there must be no seat
//! watch NAME HOLDER              → changed                    once the holder is another
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_core::record;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Shared;

/// A running server. Dropping it ends the server.
pub(super) struct Tiny {
    address: SocketAddr,
    data: Shared<Data>,
    state: Arc<watch::Sender<State>>,
    has_floor: bool,
}

#[derive(Default)]
struct Data {
    /// Versions start from the time, so that they never repeat, even after a loss of data.
    last_version: u64,
    floor: u64,
    seats: BTreeMap<String, (u64, String)>,
}

#[derive(Clone, Copy, Default)]
struct State {
    paused: bool,
    /// The number of restarts. Connections from before the last restart are cut.
    restarts: u64,
    changes: u64,
    over: bool,
}

impl Data {
    fn empty(has_floor: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        Self { last_version: now, floor: if has_floor { now } else { 0 }, seats: BTreeMap::new() }
    }

    /// Answers every request except a watch; `None` if the line is not such a request.
    fn answer(&mut self, question: &str) -> Option<String> {
        let mut parts = question.splitn(4, ' ');
        let (verb, name) = (parts.next()?, parts.next()?);
        match verb {
            "read" => Some(match self.seats.get(name) {
                None => format!("{} none", self.floor),
                Some((version, record)) => format!("{} {version} {record}", self.floor),
            }),
            "write" => {
                let expected: u64 = parts.next()?.parse().ok()?;
                if self.seats.get(name).map_or(0, |(version, _)| *version) != expected {
                    return Some("lost".to_owned());
                }
                self.last_version += 1;
                self.seats.insert(name.to_owned(), (self.last_version, parts.next()?.to_owned()));
                Some(format!("done {}", self.last_version))
            }
            _ => None,
        }
    }

    fn holder(&self, name: &str) -> String {
        let record = self.seats.get(name).and_then(|(_, record)| record::from_json(record).ok());
        super::store::holder(record.as_ref())
    }
}

impl Tiny {
    pub(super) fn start(has_floor: bool) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("it listens");
        let data = Shared::new(std::sync::Mutex::new(Data::empty(has_floor)));
        let state = Arc::new(watch::Sender::new(State::default()));
        let (of_thread, its_state) = (data.clone(), state.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a runtime");
                let mut over = its_state.subscribe();
                let serve = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(connection(stream, of_thread.clone(), its_state.clone()));
                    }
                };
                tokio::select! {
                    () = serve => {}
                    _ = over.wait_for(|state| state.over) => {}
                }
            });
        });
        Self { address, data, state, has_floor }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn pause(&self, paused: bool) {
        self.state.send_modify(|state| state.paused = paused);
    }

    pub(super) fn restart(&self, empty: bool) {
        // Time passes meanwhile, and the floor rises with it.
        std::thread::sleep(Duration::from_millis(10));
        if empty {
            *self.data.lock().expect("no panic") = Data::empty(self.has_floor);
        }
        self.state.send_modify(|state| state.restarts += 1);
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        self.state.send_modify(|state| state.over = true);
    }
}

async fn connection(stream: TcpStream, data: Shared<Data>, state: Arc<watch::Sender<State>>) {
    let mut now = state.subscribe();
    let restarts = now.borrow().restarts;
    let cut = async {
        let _ = now.wait_for(|now| now.restarts > restarts).await;
    };
    let mut now = state.subscribe();
    let serve = async {
        let (from, mut to) = stream.into_split();
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = now.wait_for(|now| !now.paused).await;
            let answer = data.lock().expect("no panic").answer(&line);
            let answer = match (answer, line.strip_prefix("watch ").and_then(|rest| rest.split_once(' '))) {
                (Some(answer), _) => {
                    state.send_modify(|now| now.changes += 1);
                    answer
                }
                (None, Some((name, seen))) => {
                    let is_new = |now: &State| !now.paused && data.lock().expect("no panic").holder(name) != seen;
                    tokio::select! {
                        _ = now.wait_for(is_new) => {}
                        // The client has closed the connection, or has sent a request before the reply.
                        _ = lines.next_line() => return,
                    }
                    "changed".to_owned()
                }
                (None, None) => return,
            };
            if to.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = cut => {}
        () = serve => {}
    }
}
