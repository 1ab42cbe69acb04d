//! A network that fails on demand: a TCP proxy between a store and its server, driven by a test.
//!
//! ```text
//!  store ──▶ [ proxy ] ──▶ server        up:   what is asked
//!        ◀──           ◀──               down: what is answered
//! ```
//!
//! ```
//! use tenure_testkit::proxy::{Proxy, Way};
//!
//! let proxy = Proxy::start("127.0.0.1:6379");
//! println!("connect to {}", proxy.address());
//! proxy.black_hole(Way::Down);    // asked and applied, never answered
//! proxy.pass();                   // what was held back goes on
//! proxy.refuse();                 // nobody listens any more
//! proxy.reset();                  // all connections are cut, now
//! ```
//!
//! It runs on a thread of its own, so a test may block as it likes.

mod pump;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use pump::{Pump, Side};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the store to the server.
    Up,
    /// From the server to the store.
    Down,
}

/// A proxy in front of one server. Ends with this, and all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: Arc<Control>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the connections go by.
#[derive(Debug)]
struct Control {
    rules: watch::Sender<Rules>,
    snags: Mutex<Snags>,
    /// How many snags have caught something.
    caught: watch::Sender<u64>,
    /// How many messages were handed over.
    delivered: AtomicU64,
}

/// How all connections are treated.
#[derive(Clone, Debug, Default)]
struct Rules {
    refuse: bool,
    hold_up: bool,
    hold_down: bool,
    delay_up: Duration,
    delay_down: Duration,
    /// Connections made before the last of these are cut.
    resets: u64,
    over: bool,
}

/// What is to happen to one message, the next of its kind.
#[derive(Debug, Default)]
struct Snags {
    /// The next message with these bytes is cut after as many, and its connection with it.
    cut: Option<(Way, Vec<u8>, usize)>,
    /// The next request with these bytes goes through, and its reply does not.
    drop_reply: Option<Vec<u8>>,
}

impl Proxy {
    /// Stands in front of a server that listens at this address.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(server: impl Into<String>) -> Self {
        let server = server.into();
        let control = Arc::new(Control {
            rules: watch::Sender::new(Rules::default()),
            snags: Mutex::default(),
            caught: watch::Sender::new(0),
            delivered: AtomicU64::new(0),
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

    /// Where to connect to instead of to the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets everything through again, what was held back first.
    pub fn pass(&self) {
        self.rule(|rules| {
            *rules = Rules { resets: rules.resets, ..Rules::default() };
        });
    }

    /// Takes no more connections: nobody listens. Those that are there stay.
    pub fn refuse(&self) {
        self.rule(|rules| rules.refuse = true);
    }

    /// Cuts all connections at once, as by a reset.
    pub fn reset(&self) {
        self.rule(|rules| rules.resets += 1);
    }

    /// Holds back everything that goes this way, without a word. New connections are taken, and held
    /// back, too.
    pub fn black_hole(&self, way: Way) {
        self.rule(|rules| match way {
            Way::Up => rules.hold_up = true,
            Way::Down => rules.hold_down = true,
        });
    }

    /// Delays everything that goes this way.
    pub fn delay(&self, way: Way, by: Duration) {
        self.rule(|rules| match way {
            Way::Up => rules.delay_up = by,
            Way::Down => rules.delay_down = by,
        });
    }

    /// Cuts the next message that goes this way and has these bytes in it, and its connection, after
    /// so many bytes of it. See [`Proxy::caught`].
    pub fn cut_in_the_middle(&self, way: Way, marker: impl Into<Vec<u8>>, after: usize) {
        self.control.snags().cut = Some((way, marker.into(), after));
    }

    /// Lets the next request with these bytes in it through, keeps the server's reply to itself, and
    /// cuts the connection. See [`Proxy::caught`].
    pub fn drop_reply_to(&self, marker: impl Into<Vec<u8>>) {
        self.control.snags().drop_reply = Some(marker.into());
    }

    /// Waits until so many messages have been cut or robbed of their reply.
    ///
    /// # Panics
    /// If it takes too long.
    pub async fn caught(&self, count: u64) {
        let mut caught = self.control.caught.subscribe();
        let wait = caught.wait_for(|caught| *caught >= count);
        tokio::time::timeout(Duration::from_secs(60), wait)
            .await
            .expect("the message that was waited for never came")
            .expect("the proxy is there");
    }

    /// Waits until nothing has been said for so long, either way: whatever was being set up is then there, if it is to
    /// be there at all.
    ///
    /// # Panics
    /// If it takes too long.
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
        tokio::time::timeout(Duration::from_secs(60), quiet).await.expect("there is always something to say");
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
                tokio::select! {
                    _ = rules.changed() => {}
                    Some(Ok((store, _))) = accept(listener.as_ref()) => {
                        tokio::task::spawn_local(connect(store, server.clone(), control.clone()));
                    }
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

/// One connection, from both ends to its end.
async fn connect(store: TcpStream, server: String, control: Arc<Control>) {
    let mut rules = control.rules.subscribe();
    let resets = rules.borrow().resets;
    let cut = async {
        let _ = rules.wait_for(|rules| rules.over || rules.resets > resets).await;
    };
    let serve = async {
        let Ok(server) = TcpStream::connect(server).await else { return };
        let _ = (store.set_nodelay(true), server.set_nodelay(true));
        let (robbed, _) = watch::channel(false);
        let side = |way| Side { way, control: &control, robbed: &robbed };
        let (from_store, from_server) =
            (Pump::new(&store, &server, side(Way::Up)), Pump::new(&server, &store, side(Way::Down)));
        // Whichever end hangs up first, the other is told, too.
        tokio::select! {
            () = from_store.run() => {}
            () = from_server.run() => {}
        }
    };
    tokio::select! {
        () = cut => {
            // Without lingering, closing is a reset.
            let _ = store.set_zero_linger();
        }
        () = serve => {}
    }
}
