//! Calls that are made at the same time go out together, and each gets its own answer.
//!
//! ```text
//!  renew ─┐
//!  read  ─┼─▶ gathered ──▶ one write ──▶ server ──▶ one read ──▶ each its answer
//!  renew ─┘      ▲
//!                └── what comes in meanwhile waits for the next, a moment at most
//! ```
//!
//! A lone call goes out at once. Only who asks again and again, as a process with thousands of elections
//! does, is slowed to so many batches a second; each of them waits for a small part of what a call is
//! given. No batch waits for the answers to the one before it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::ears::{Ear, Ears};

/// How many calls go out together at most.
const MOST: usize = 1024;

/// So many batches may go out at once, before each has to wait for its turn.
const BURST: u32 = 16;

/// The way to a connection. The task that carries calls ends with it.
pub(crate) struct Gather {
    asks: mpsc::UnboundedSender<Ask>,
    /// How long the turn of a batch is, in microseconds.
    turn: Arc<AtomicU64>,
}

/// How many replicas must have what was written, and how long to wait for them.
#[derive(Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) within: Duration,
}

enum Ask {
    Call {
        commands: Vec<Cmd>,
        replicas: Option<Replicas>,
        reply: oneshot::Sender<Result<Vec<Value>, RedisError>>,
    },
    Listen {
        channel: String,
        ear: Arc<Ear>,
        reply: oneshot::Sender<Result<(), RedisError>>,
    },
    /// To listen to these no more.
    Leave(Vec<String>),
}

impl Gather {
    /// Begins to carry calls over a connection, until it is over.
    pub(crate) fn start(connection: MultiplexedConnection, ears: Arc<Ears>) -> Self {
        let (asks, inbox) = mpsc::unbounded_channel();
        let turn = Arc::new(AtomicU64::new(u64::MAX));
        tokio::spawn(carry(inbox, connection, ears, turn.clone()));
        Self { asks, turn }
    }

    /// Sends commands, and returns what they are answered with; last, if asked for, how many replicas
    /// have what was written. Dropped before it is sent, it never is.
    pub(crate) async fn call(&self, commands: Vec<Cmd>, replicas: Option<Replicas>) -> Result<Vec<Value>, RedisError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.asks.send(Ask::Call { commands, replicas, reply });
        answer.await.unwrap_or_else(|_| Err(over()))
    }

    /// Listens to a channel, once the server has confirmed it.
    pub(crate) async fn listen(&self, channel: &str, ear: Arc<Ear>) -> Result<(), RedisError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.asks.send(Ask::Listen { channel: channel.to_owned(), ear, reply });
        answer.await.unwrap_or_else(|_| Err(over()))
    }

    /// Listens to these channels no more, if anybody still does.
    pub(crate) fn leave(&self, channels: Vec<String>) {
        let _ = self.asks.send(Ask::Leave(channels));
    }

    /// There are calls that are given a fifteenth of this: none may wait here for more than a small part.
    pub(crate) fn serves(&self, lease: Duration) {
        let turn = (lease / 300).clamp(Duration::from_micros(500), Duration::from_millis(10));
        self.turn.fetch_min(u64::try_from(turn.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Most of what calls are given, or less: a call that was given up after this has met with silence.
    pub(crate) fn patience(&self) -> Duration {
        turn(&self.turn) * 15
    }
}

fn turn(micros: &AtomicU64) -> Duration {
    match micros.load(Ordering::Relaxed) {
        // Nothing is known of leases yet.
        u64::MAX => Duration::from_millis(1),
        micros => Duration::from_micros(micros),
    }
}

fn over() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

async fn carry(
    mut inbox: mpsc::UnboundedReceiver<Ask>,
    connection: MultiplexedConnection,
    ears: Arc<Ears>,
    micros: Arc<AtomicU64>,
) {
    let mut gathered = Vec::new();
    let mut underway = FuturesUnordered::new();
    let mut credit = Credit { left: BURST, counted: Instant::now() };
    loop {
        let next_turn = credit.next(turn(&micros));
        tokio::select! {
            biased;
            // Whoever waits is told as what it waits for is dropped.
            () = ears.closed() => return,
            Some(()) = underway.next() => {}
            () = sleep_until(next_turn), if next_turn.is_some() => {}
            count = inbox.recv_many(&mut gathered, MOST), if next_turn.is_none() => {
                if count == 0 {
                    return;
                }
                credit.left -= 1;
                for batch in Batch::of(gathered.drain(..)) {
                    underway.push(batch.send(connection.clone(), ears.clone()));
                }
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Who may send a batch now.
struct Credit {
    left: u32,
    counted: Instant,
}

impl Credit {
    /// When the next batch may go out; `None`: now.
    fn next(&mut self, turn: Duration) -> Option<Instant> {
        let turns = self.counted.elapsed().as_micros() / turn.as_micros();
        if turns >= u128::from(BURST) {
            (self.left, self.counted) = (BURST, Instant::now());
        } else {
            let turns = u32::try_from(turns).unwrap_or(BURST);
            self.left = (self.left + turns).min(BURST);
            self.counted += turn * turns;
        }
        (self.left == 0).then(|| self.counted + turn)
    }
}

/// What goes out together: calls, of which none waits for replicas or all do, or channels.
enum Batch {
    Calls {
        commands: Pipeline,
        /// Each caller, and how many answers are its own.
        callers: Vec<(usize, Caller)>,
        replicas: Option<Replicas>,
    },
    Leave(Vec<String>),
    Channels(HashMap<String, Listeners>),
}

type Caller = oneshot::Sender<Result<Vec<Value>, RedisError>>;

type Listeners = (Arc<Ear>, Vec<oneshot::Sender<Result<(), RedisError>>>);

impl Batch {
    /// Reads go first: they need not wait for replicas.
    fn of(asks: impl Iterator<Item = Ask>) -> impl Iterator<Item = Self> {
        let mut plain = (Pipeline::new(), Vec::new());
        let mut waiting = (Pipeline::new(), Vec::new(), None::<Replicas>);
        let (mut left, mut channels) = (Vec::new(), HashMap::<String, Listeners>::new());
        for ask in asks {
            match ask {
                // Whoever has asked has given up: nothing is sent.
                Ask::Call { reply, .. } if reply.is_closed() => {}
                Ask::Listen { reply, .. } if reply.is_closed() => {}
                Ask::Call { commands, replicas, reply } => {
                    let (pipeline, callers) = match replicas {
                        None => (&mut plain.0, &mut plain.1),
                        Some(replicas) => {
                            let least = waiting.2.map_or(replicas.within, |others| others.within.min(replicas.within));
                            waiting.2 = Some(Replicas { within: least, ..replicas });
                            (&mut waiting.0, &mut waiting.1)
                        }
                    };
                    callers.push((commands.len(), reply));
                    for command in commands {
                        pipeline.add_command(command);
                    }
                }
                Ask::Leave(channels) => left.extend(channels),
                Ask::Listen { channel, ear, reply } => {
                    channels.entry(channel).or_insert_with(|| (ear, Vec::new())).1.push(reply);
                }
            }
        }
        if let Some(replicas) = waiting.2 {
            let within = u64::try_from(replicas.within.as_millis().max(1)).unwrap_or(u64::MAX);
            waiting.0.cmd("WAIT").arg(replicas.count).arg(within);
        }
        let calls = [
            Self::Calls { commands: plain.0, callers: plain.1, replicas: None },
            Self::Calls { commands: waiting.0, callers: waiting.1, replicas: waiting.2 },
        ];
        let calls =
            calls.into_iter().filter(|batch| matches!(batch, Self::Calls { callers, .. } if !callers.is_empty()));
        let left = (!left.is_empty()).then_some(Self::Leave(left));
        calls.chain(left).chain((!channels.is_empty()).then_some(Self::Channels(channels)))
    }

    async fn send(self, mut connection: MultiplexedConnection, ears: Arc<Ears>) {
        match self {
            Self::Calls { commands, callers, replicas } => {
                let answers = connection.send_packed_commands(&commands, 0, commands.len()).await;
                match answers {
                    Ok(mut answers) => {
                        ears.sound();
                        let replicas = replicas.and_then(|_| answers.pop());
                        let mut answers = answers.into_iter();
                        for (count, reply) in callers {
                            let own: Vec<_> = answers.by_ref().take(count).chain(replicas.clone()).collect();
                            let _ = reply.send(own.into_iter().map(Value::extract_error).collect());
                        }
                    }
                    Err(error) => {
                        // The connection failed, and nobody knows how far it got.
                        ears.close();
                        callers.into_iter().for_each(|(_, reply)| drop(reply.send(Err(error.clone()))));
                    }
                }
            }
            Self::Leave(channels) => drop(connection.unsubscribe(channels).await),
            Self::Channels(channels) => {
                let names: Vec<&String> = channels.keys().collect();
                let answer = connection.subscribe(names).await;
                if answer.is_ok() {
                    ears.sound();
                }
                for (ear, replies) in channels.into_values() {
                    if answer.is_ok() {
                        ear.open.store(true, Ordering::Release);
                    }
                    replies.into_iter().for_each(|reply| drop(reply.send(answer.clone())));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lone_calls_go_out_at_once_and_many_take_turns() {
        let turn = Duration::from_millis(10);
        let mut credit = Credit { left: BURST, counted: Instant::now() };
        for _ in 0..BURST {
            assert_eq!(credit.next(turn), None);
            credit.left -= 1;
        }
        assert_eq!(credit.next(turn), Some(Instant::now() + turn));
        tokio::time::advance(turn).await;
        assert_eq!(credit.next(turn), None);
        credit.left -= 1;
        assert_eq!(credit.next(turn), Some(Instant::now() + turn));
        tokio::time::advance(turn * 1000).await;
        assert_eq!((credit.next(turn), credit.left), (None, BURST));
    }
}
