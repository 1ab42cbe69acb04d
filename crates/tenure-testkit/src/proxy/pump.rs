//! Moves bytes in one direction, as the rules say.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Control, Way};

/// The direction of a pump, and the state that it shares with others.
pub(super) struct Side<'a> {
    pub(super) way: Way,
    /// The number of the connection.
    pub(super) number: u64,
    pub(super) control: &'a Control,
    /// Set once a request was delivered whose reply must be dropped.
    pub(super) drop_reply: &'a watch::Sender<bool>,
}

/// Moves bytes from one socket to another.
pub(super) struct Pump<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    side: Side<'a>,
}

/// Bytes to deliver, and when each is due.
type Queue = VecDeque<(Instant, Vec<u8>)>;

impl<'a> Pump<'a> {
    pub(super) fn new(from: &'a TcpStream, to: &'a TcpStream, side: Side<'a>) -> Self {
        Self { from, to, side }
    }

    /// Moves bytes until one end closes the connection, or until the connection must be cut.
    pub(super) async fn run(self) {
        let mut rules = self.side.control.rules.subscribe();
        let mut queue = Queue::new();
        loop {
            rules.mark_unchanged();
            let (held, _) = self.rules();
            let due = queue.front().filter(|_| !held).map(|(due, _)| *due);
            tokio::select! {
                _ = rules.changed() => {}
                () = until(due) => {
                    let Some((_, bytes)) = queue.pop_front() else { continue };
                    if !self.deliver(&bytes).await {
                        return;
                    }
                }
                bytes = read(self.from) => match bytes {
                    None => return,
                    // The current rules, which may have changed during the wait.
                    Some(bytes) => queue.push_back((Instant::now() + self.rules().1, bytes)),
                },
            }
        }
    }

    /// Returns whether bytes in this direction are held back, and how long they are delayed.
    fn rules(&self) -> (bool, Duration) {
        let rules = self.side.control.rules.borrow();
        let (held, delay) = match self.side.way {
            Way::Up => (rules.hold_up, rules.delay_up),
            Way::Down => (rules.hold_down, rules.delay_down),
        };
        (held || rules.frozen.contains(&self.side.number), delay)
    }

    /// Delivers bytes, unless they must be cut or dropped. Returns whether the connection stays open.
    async fn deliver(&self, bytes: &[u8]) -> bool {
        self.side.control.delivered.fetch_add(1, Ordering::Relaxed);
        if self.side.way == Way::Up {
            self.side.control.last_requests().insert(self.side.number, bytes.to_vec());
        }
        if self.side.way == Way::Down && *self.side.drop_reply.borrow() {
            // The server has replied, so it has applied the request.
            self.catch();
            return false;
        }
        let cut = {
            let mut snags = self.side.control.snags();
            if self.side.way == Way::Up && snags.drop_reply.as_ref().is_some_and(|marker| has(bytes, marker)) {
                snags.drop_reply = None;
                self.side.drop_reply.send_replace(true);
            }
            match &snags.cut {
                Some((way, marker, after)) if *way == self.side.way && has(bytes, marker) => {
                    let after = (*after).min(bytes.len());
                    snags.cut = None;
                    Some(after)
                }
                _ => None,
            }
        };
        match cut {
            None => write(self.to, bytes).await,
            Some(after) => {
                write(self.to, &bytes[..after]).await;
                // Gives the receiver time to read the bytes before it sees the end of the connection.
                tokio::time::sleep(Duration::from_millis(5)).await;
                self.catch();
                false
            }
        }
    }

    fn catch(&self) {
        self.side.control.caught.send_modify(|caught| *caught += 1);
    }
}

pub(super) fn has(bytes: &[u8], marker: &[u8]) -> bool {
    marker.is_empty() || bytes.windows(marker.len()).any(|window| window == marker)
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Reads the next bytes; `None` at the end of the stream.
async fn read(stream: &TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        stream.readable().await.ok()?;
        match stream.try_read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => {
                bytes.truncate(count);
                return Some(bytes);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        if stream.writable().await.is_err() {
            return false;
        }
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    true
}
