//! A network that fails on demand: a TCP proxy between a store and its server that a test controls.
//!
//! ```text
//!  store ──▶ [ proxy ] ──▶ server        up:   requests
//!        ◀──           ◀──               down: replies
//! ```
//!
//! ```
//! use tenure_testkit::proxy::{Proxy, Way};
//!
//! let proxy = Proxy::start("127.0.0.1:6379");
//! println!("connect to {}", proxy.address());
//! proxy.black_hole(Way::Down);    // requests are applied and never answered
//! proxy.pass();                   // delivers what was held back
//! proxy.refuse();                 // refuses new connections
//! proxy.reset();                  // resets all connections at once
//! proxy.freeze();                 // holds back everything on these connections; new ones work
//! proxy.freeze_after("SUBSCRIBE"); // the same, on connections whose last request has these bytes
//! ```
//!
//! The proxy runs on a thread of its own, so a test can block its own thread.

mod pump;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use pump::{Pump, Side};

/// The direction of bytes through a [`Proxy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the store to the server: calls and subscriptions.
    Up,
    /// From the server to the store: replies and notifications.
    Down,
}

/// A proxy in front of one server. Dropping it ends the proxy and all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: Arc<Control>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The state that all connections share.
#[derive(Debug)]
struct Control {
    rules: watch::Sender<Rules>,
    snags: Mutex<Snags>,
    /// The last request on each open connection, by the number of the connection.
    last_requests: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// The number of messages that were cut or whose reply was dropped.
    caught: watch::Sender<u64>,
    /// The number of messages that were delivered.
    delivered: AtomicU64,
    /// The number of connections that were accepted.
    accepted: AtomicU64,
}

/// The treatment of all connections.
#[derive(Clone, Debug, Default)]
struct Rules {
    refuse: bool,
    hold_up: bool,
    hold_down: bool,
    delay_up: Duration,
    delay_down: Duration,
    /// The number of resets. Connections from before the last reset are cut.
    resets: u64,
    /// The connections that are frozen, by their numbers.
    frozen: BTreeSet<u64>,
    over: bool,
}

/// The treatment of one message, the next one that matches.
#[derive(Debug, Default)]
struct Snags {
    /// Cuts the next message with these bytes after this many bytes, and its connection.
    cut: Option<(Way, Vec<u8>, usize)>,
    /// Delivers the next request with these bytes, and drops its reply.
    drop_reply: Option<Vec<u8>>,
}

impl Proxy {
    /// Starts a proxy in front of the server at this address. All bytes pass until the test says otherwise.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(server: impl Into<String>) -> Self {
        let server = server.into();
        let control = Arc::new(Control {
            rules: watch::Sender::new(Rules::default()),
            snags: Mutex::default(),
            last_requests: Mutex::default(),
            caught: watch::Sender::new(0),
            delivered: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
        });
        let listener = std::net::TcpListener::bind(("127.0.0.1", crate::ports::free_port())).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        listener.set_nonblocking(true).expect("it is a socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let of_thread = control.clone();
        let thread = std::thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || runtime.block_on(listen(address, listener, server, of_thread)))
            .expect("a thread");
        Self { address, control, thread: Some(thread) }
    }

    /// Returns the address that a store connects to in place of the server's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets all bytes pass again, starting with those that were held back.
    pub fn pass(&self) {
        self.rule(|rules| {
            *rules = Rules { resets: rules.resets, ..Rules::default() };
        });
    }

    /// Refuses new connections. Existing connections stay open.
    pub fn refuse(&self) {
        self.rule(|rules| rules.refuse = true);
    }

    /// Resets all connections at once. New connections are accepted.
    pub fn reset(&self) {
        self.rule(|rules| rules.resets += 1);
    }

    /// Silently holds back all bytes in this direction. New connections are accepted and held back as well.
    pub fn black_hole(&self, way: Way) {
        self.rule(|rules| match way {
            Way::Up => rules.hold_up = true,
            Way::Down => rules.hold_down = true,
        });
    }

    /// Silently holds back all bytes on the connections that are open now, as a firewall does that has forgotten
    /// them. New connections work.
    pub fn freeze(&self) {
        let accepted = self.control.accepted.load(Ordering::Relaxed);
        self.rule(|rules| rules.frozen = (1..=accepted).collect());
    }

    /// Silently holds back all bytes on the open connections whose last request contains these bytes, such as that of
    /// a watch. Returns whether there are any. All other connections work.
    pub fn freeze_after(&self, marker: &str) -> bool {
        let last = self.control.last_requests();
        let matching = last.iter().filter(|(_, request)| pump::has(request, marker.as_bytes()));
        let frozen: BTreeSet<_> = matching.map(|(number, _)| *number).collect();
        let found = !frozen.is_empty();
        drop(last);
        self.rule(|rules| rules.frozen = frozen);
        found
    }

    /// Delays all bytes in this direction, and keeps their order.
    pub fn delay(&self, way: Way, by: Duration) {
        self.rule(|rules| match way {
            Way::Up => rules.delay_up = by,
            Way::Down => rules.delay_down = by,
        });
    }

    /// Cuts the next message in this direction that contains these bytes after `after` bytes, together with its
    /// connection. Wait for it with [`Proxy::caught`].
    pub fn cut_in_the_middle(&self, way: Way, marker: impl Into<Vec<u8>>, after: usize) {
        self.control.snags().cut = Some((way, marker.into(), after));
    }

    /// Delivers the next request that contains these bytes, drops the server's reply, and cuts the connection. Wait for
    /// it with [`Proxy::caught`].
    pub fn drop_reply_to(&self, marker: impl Into<Vec<u8>>) {
        self.control.snags().drop_reply = Some(marker.into());
    }

    /// Waits until this many messages in total were cut or had their reply dropped.
    ///
    /// # Panics
    /// If the wait times out.
    pub async fn caught(&self, count: u64) {
        let mut caught = self.control.caught.subscribe();
        let wait = caught.wait_for(|caught| *caught >= count);
        tokio::time::timeout(Duration::from_secs(60), wait)
            .await
            .expect("timed out waiting for a message to cut")
            .expect("a running proxy");
    }

    /// Waits until no bytes have passed in either direction for this long, so that everything that was being set up is
    /// complete.
    ///
    /// # Panics
    /// If the wait times out.
    pub async fn quiet(&self, time: Duration) {
        let delivered = || self.control.delivered.load(Ordering::Relaxed);
        let quiet = async {
            loop {
                let before = delivered();
                tokio::time::sleep(time).await;
                if delivered() == before {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), quiet).await.expect("timed out waiting for silence");
    }

    fn rule(&self, change: impl FnOnce(&mut Rules)) {
        self.control.rules.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.rule(|rules| rules.over = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Control {
    fn snags(&self) -> MutexGuard<'_, Snags> {
        self.snags.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn last_requests(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        self.last_requests.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

async fn listen(address: SocketAddr, listener: std::net::TcpListener, server: String, control: Arc<Control>) {
    let mut rules = control.rules.subscribe();
    let mut listener = Some(TcpListener::from_std(listener).expect("a runtime"));
    let connections = tokio::task::LocalSet::new();
    connections
        .run_until(async {
            loop {
                let now = rules.borrow_and_update().clone();
                match &listener {
                    _ if now.over => return,
                    Some(_) if now.refuse => listener = None,
                    None if !now.refuse => listener = TcpListener::bind(address).await.ok(),
                    _ => {}
                }
                let is_missing = listener.is_none() && !now.refuse;
                tokio::select! {
                    _ = rules.changed() => {}
                    accepted = accept(listener.as_ref()) => if let Some(Ok((store, _))) = accepted {
                        tokio::task::spawn_local(connect(store, server.clone(), control.clone()));
                    },
                    // Another process has its port for the moment.
                    () = tokio::time::sleep(Duration::from_millis(10)), if is_missing => {}
                }
            }
        })
        .await;
}

async fn accept(listener: Option<&TcpListener>) -> Option<std::io::Result<(TcpStream, SocketAddr)>> {
    match listener {
        Some(listener) => Some(listener.accept().await),
        None => std::future::pending().await,
    }
}

/// Serves one connection until it ends.
async fn connect(store: TcpStream, server: String, control: Arc<Control>) {
    let mut rules = control.rules.subscribe();
    let resets = rules.borrow().resets;
    let number = control.accepted.fetch_add(1, Ordering::Relaxed) + 1;
    let cut = async {
        let _ = rules.wait_for(|rules| rules.over || rules.resets > resets).await;
    };
    let serve = async {
        let Ok(server) = TcpStream::connect(server).await else { return };
        let _ = (store.set_nodelay(true), server.set_nodelay(true));
        let (drop_reply, _) = watch::channel(false);
        let side = |way| Side { way, number, control: &control, drop_reply: &drop_reply };
        let (from_store, from_server) =
            (Pump::new(&store, &server, side(Way::Up)), Pump::new(&server, &store, side(Way::Down)));
        // When one end closes the connection, the other end is closed, too.
        tokio::select! {
            () = from_store.run() => {}
            () = from_server.run() => {}
        }
    };
    tokio::select! {
        () = cut => {
            // With a linger time of zero, closing sends a reset.
            let _ = store.set_zero_linger();
        }
        () = serve => {}
    }
    control.last_requests().remove(&number);
}
