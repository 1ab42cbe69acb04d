//! One connection to the server, which all calls share, pipelined.
//!
//! ```text
//!  calls ──Request──▶ writes ──bytes──▶ server ──replies──▶ reads ──▶ the calls, in the order of their requests
//! ```
//!
//! Both halves run in a task of the connection, so that a call that is dropped leaves no half of a command on the wire.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::StoreError;
use tenure_kit::socket::{self, Address, Duplex, Keepalive};
use tenure_kit::{Connection, Liveness, Patience, lock};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::options::MemcachedOptions;
use crate::protocol::{Commands, Reply, read_reply};

/// A connection that all calls share. After any failure it is closed, and never used again.
pub(crate) struct MemcachedConnection {
    pub(crate) address: Address,
    requests: mpsc::UnboundedSender<Request>,
    liveness: Arc<Liveness>,
    /// For each key, the nonce of the record that this connection last saw, and the CAS value that it had then.
    seen: Mutex<HashMap<String, (String, u64)>>,
}

struct Request {
    commands: Commands,
    answer: oneshot::Sender<Vec<Reply>>,
}

impl Connection for MemcachedConnection {
    fn liveness(&self) -> &Liveness {
        &self.liveness
    }
}

impl MemcachedConnection {
    /// Connects, logs in, and rejects servers that do not check conditions.
    pub(crate) async fn connect(options: Arc<MemcachedOptions>) -> Result<Self, StoreError> {
        let address = options.address();
        let opened = timeout(CONNECT_WITHIN, Self::open(&options, &address)).await;
        opened.unwrap_or_else(|_| Err(socket::silent(&address, PRODUCT)))
    }

    async fn open(options: &MemcachedOptions, address: &Address) -> Result<Self, StoreError> {
        let failed = |error| socket::unreachable(address, PRODUCT, "memcached:// has no TLS", error);
        let (stream, _) = address.connect(&Keepalive::default()).await.map_err(failed)?;
        let (requests, inbox) = mpsc::unbounded_channel();
        let liveness = Arc::new(Liveness::new());
        tokio::spawn(serve(stream, inbox, liveness.clone()));
        let connection = Self { address: address.clone(), requests, liveness, seen: Mutex::default() };
        connection.log_in(options).await?;
        connection.probe(&options.prefix).await?;
        Ok(connection)
    }

    /// Logs in with the server's text protocol: the first command is a `set` whose value has the user and the password.
    /// A server without log-ins takes it for a value. So the value expires at once, and no client can read it.
    async fn log_in(&self, options: &MemcachedOptions) -> Result<(), StoreError> {
        let (Some(user), Some(password)) = (&options.user, &options.password) else { return Ok(()) };
        let (login, address) = (format!("{user} {}", password.0), &self.address);
        let mut commands = Commands::default();
        commands.line(&format!("set tenure 0 -1 {}\r\n{login}", login.len()));
        match self.handshake(commands).await?.first() {
            Some(Reply::Strange(line)) if line == "STORED" => Ok(()),
            _ => Err(StoreError::denied(format!("{address} rejected the user or the password; check both"))),
        }
    }

    /// Checks that the server knows meta commands and checks conditions. Otherwise each candidate would win each bid.
    ///
    /// The probe is one round trip: a write, additions that must fail because the key exists, and a write on a CAS
    /// value that the key does not have. A server without CAS (`memcached -C`) answers the first with `c0`, and ignores
    /// the condition of a write on the value 0.
    async fn probe(&self, prefix: &str) -> Result<(), StoreError> {
        let (key, address) = (format!("{prefix}:#probe"), &self.address);
        let mut commands = Commands::default();
        for condition in ["", "ME", "ME", &format!("C{}", u64::MAX)] {
            commands.put_with(&key, "probe", &format!("T60 c {condition}"));
        }
        match self.handshake(commands).await?.as_slice() {
            // Between two of the commands, another client can empty the server once: that is no reason to refuse it.
            [
                Reply::Done { cas: 1.. },
                Reply::NotStored,
                Reply::NotStored | Reply::Done { cas: 1.. },
                Reply::NotStored | Reply::Missing,
            ]
            | [
                Reply::Done { cas: 1.. },
                Reply::Done { cas: 1.. },
                Reply::NotStored,
                Reply::NotStored | Reply::Missing,
            ] => Ok(()),
            [Reply::Strange(line), ..] if line.contains("unauthenticated") => Err(StoreError::denied(format!(
                "{address} requires a user and a password; write memcached://user:password@host"
            ))),
            [Reply::Strange(_), ..] => Err(StoreError::denied(format!(
                "{address} does not know meta commands; check that it is memcached 1.6 or later"
            ))),
            [Reply::Failed(line), ..] => {
                Err(StoreError::refused(format!("{address} cannot write")).because(line.clone()))
            }
            [Reply::Done { cas: 0 }, ..] => Err(StoreError::denied(format!(
                "{address} runs without CAS, so two candidates could lead at once; start it without -C"
            ))),
            _ => Err(StoreError::denied(format!(
                "{address} ignores the conditions of writes, so two candidates could lead at once; connect to memcached \
                 itself, without a proxy"
            ))),
        }
    }

    /// Sends the first commands of a connection. If it ends meanwhile, no call had an effect yet.
    async fn handshake(&self, commands: Commands) -> Result<Vec<Reply>, StoreError> {
        let closed = |_| {
            let error = io::Error::from(io::ErrorKind::UnexpectedEof);
            socket::unreachable(&self.address, PRODUCT, "", error)
        };
        self.send(commands).await.map_err(closed)
    }

    /// Sends commands in one piece, and returns their replies, in order. If the future is dropped before the commands
    /// are sent, they are never sent. A command without a reply may have been executed.
    pub(crate) async fn ask(&self, commands: Commands) -> Vec<Reply> {
        if commands.count == 0 {
            return Vec::new();
        }
        let waiting = self.liveness.waiting(PATIENCE);
        let answer = self.send(commands).await;
        match answer {
            Ok(_) => waiting.answered(),
            Err(_) => waiting.failed(),
        }
        answer.unwrap_or_default()
    }

    async fn send(&self, commands: Commands) -> Result<Vec<Reply>, oneshot::error::RecvError> {
        let (answer, replies) = oneshot::channel();
        // If the task has ended, it drops the request, and with it the sender of the answer.
        let _ = self.requests.send(Request { commands, answer });
        replies.await
    }

    /// Returns the error of a command without a usable reply.
    pub(crate) fn no_reply(&self, reply: Option<&Reply>) -> StoreError {
        let address = &self.address;
        match reply {
            // A write that does not find memory can have removed the old value.
            Some(Reply::Failed(line)) => {
                StoreError::unknown(format!("{address} failed; check its memory and its log")).because(line.clone())
            }
            Some(Reply::Strange(line)) => {
                StoreError::unknown(format!("{address} gave an answer that memcached does not give"))
                    .because(line.clone())
            }
            _ => StoreError::unknown(format!("the connection to {address} was lost before the answer")),
        }
    }

    /// Remembers the CAS value of the record with this nonce. `None` if the key has no record.
    pub(crate) fn remember(&self, key: &str, seen: Option<(String, u64)>) {
        match seen {
            Some(seen) => lock(&self.seen).insert(key.to_owned(), seen),
            None => lock(&self.seen).remove(key),
        };
    }

    /// Returns the CAS value that the record with this nonce had when this connection last saw it.
    pub(crate) fn cas_of(&self, key: &str, nonce: &str) -> Option<u64> {
        lock(&self.seen).get(key).filter(|(seen, _)| seen == nonce).map(|(_, cas)| *cas)
    }
}

/// Serves a connection until all handles of it are dropped, or it breaks.
async fn serve(stream: Box<dyn Duplex>, mut inbox: mpsc::UnboundedReceiver<Request>, liveness: Arc<Liveness>) {
    let (reads, mut writes) = tokio::io::split(stream);
    let mut reads = BufReader::new(reads);
    let pending = Mutex::new(VecDeque::new());
    let write = async {
        while let Some(Request { commands, answer }) = inbox.recv().await {
            if !answer.is_closed() {
                lock(&pending).push_back((commands.count, answer));
                writes.write_all(&commands.bytes).await?;
            }
        }
        Ok(())
    };
    let read = async {
        loop {
            let reply = read_reply(&mut reads).await?;
            liveness.heard();
            let (mut count, answer) = lock(&pending).pop_front().ok_or(io::ErrorKind::InvalidData)?;
            let mut replies = vec![reply];
            count -= 1;
            while count > 0 && !matches!(replies.last(), Some(Reply::Strange(_))) {
                replies.push(read_reply(&mut reads).await?);
                count -= 1;
            }
            let is_strange = matches!(replies.last(), Some(Reply::Strange(line)) if line != "STORED");
            let _ = answer.send(replies);
            if is_strange {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    };
    let _: io::Result<()> = tokio::select! {
        ended = write => ended,
        ended = read => ended,
    };
    // The senders of pending answers are dropped after this, so a call that fails finds the connection closed.
    liveness.close();
}

/// How long opening a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

const PRODUCT: &str = "memcached";

/// A single call that times out may only be slow. If the server has been silent for twice as long as the call waited,
/// other calls timed out before it, and a new connection may work. With the shortest lease, calls time out after 10 ms.
const PATIENCE: Patience = Patience { at_least: Duration::from_millis(5), times: 2 };
