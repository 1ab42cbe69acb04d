//! Laws about networks and servers that fail, for every store that has a server.
//!
//! ```text
//!  one   ──▶ [ faulty ] ──▶ server      the fault happens to one of two candidates,
//!  other ──▶ [ clear  ] ──▶             or to the server itself
//! ```
//!
//! A store describes its server once, as a [`Server`], and has every law as a test of its own:
//!
//! ```text
//! // tests/faults.rs
//! struct MyServer(servers::Redis);
//!
//! impl tenure_testkit::faults::Server for MyServer { … }
//!
//! mod laws {
//!     tenure_testkit::faults!(super::MyServer);
//! }
//! ```
//!
//! Whatever happens, no two candidates ever work at once: every law ends with that, by the moments at which work was
//! done. How long something takes is never measured, as the machine may be busy; a fault lasts for a part of a lease,
//! or until a candidate has noticed it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Builder, Clock, DynSeatStore, DynStore, Push, Record, SeatName, SingleSeat, Token};

use crate::candidate::PATIENCE;
use crate::failure::ensure;
use crate::kit::judge;
use crate::proxy::Proxy;
use crate::servers::connections;
use crate::{Failure, OverlapDetector, TestCandidate, Verdict};

/// A server that can be made to fail, and how a store gets to it.
pub trait Server: Send + Sync + 'static {
    /// Starts a server that can be used as a law wishes, or returns one that other tests use at the same time.
    fn start(wish: Wish) -> Self
    where
        Self: Sized;

    /// Where the server listens, as `host:port`. The laws put a proxy in front of it.
    fn address(&self) -> String;

    /// Opens a store that connects to this address instead, as another process would have it. It must not connect yet.
    fn open(&self, address: &str) -> Box<dyn DynStore>;

    /// The most connections to the server that so many processes, of which one leads, need.
    fn connections(&self, processes: usize) -> usize;

    /// Stops the server (SIGSTOP): its connections stay open, and it answers nothing.
    fn pause(&mut self);

    /// Lets the server go on (SIGCONT).
    fn resume(&mut self);

    /// Kills the server (SIGKILL) and starts it again at the same address, with everything it has confirmed.
    fn restart(&mut self);

    /// What the store promises if the server is restarted without its data. `None` if no test can do that to it.
    fn after_loss(&self) -> Option<AfterLoss> {
        None
    }

    /// Kills the server and starts it again at the same address without any data.
    fn restart_empty(&mut self) {}

    /// The lease of candidates. Long enough for calls to be answered on a busy machine (3 s).
    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// A lease within which the server can be killed and restarted.
    fn long_lease(&self) -> Duration {
        self.lease() * 5
    }

    /// How long to wait for what must happen.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Sets options of every candidate, such as `takeover`.
    fn configure(&self, election: Builder) -> Builder {
        election
    }

    /// Whether a seat is lost with the connection that it is held on, as with the lock of a database session. A
    /// broken connection may then cost the term.
    fn ends_with_its_connection(&self) -> bool {
        false
    }

    /// Whether a call that waits on a slow connection has its answer though other calls were given up on it. Otherwise
    /// it fails: the store closes the connection at once.
    fn waits_for_slow_answers(&self) -> bool {
        true
    }

    /// Bytes that are in a request that takes a seat, and in nothing that is sent before it; as they are on the wire,
    /// escaped if records travel inside of JSON.
    fn bid(&self) -> &'static str {
        "\"incarnation\""
    }

    /// Bytes by which to know the requests that keep a term. None if they cannot be told apart from others.
    fn renewals(&self) -> &'static [&'static str] {
        &["\"incarnation\""]
    }
}

/// What a law does to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The law stops or restarts the server, so nobody else may use it.
    pub alone: bool,
    /// The law looks for bytes in what is sent ([`Server::bid`], [`Server::renewals`]), so it must not be encrypted.
    pub plain: bool,
}

/// Whose tokens still rise after a server has lost its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Those of candidates that were there: they remember the last term.
    TokensOfWitnessesRise,
    /// Also those of candidates that are started later: the store's floor is above what it gave out before.
    AllTokensRise,
}

/// A law about faults.
#[derive(Clone, Copy)]
pub struct FaultLaw {
    /// What it says, as a sentence in the form of a name.
    pub name: &'static str,
    needs: &'static [Need],
    check: fn(Rig) -> BoxFuture<'static, Verdict>,
}

/// What a law needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// A server of its own, which it stops or restarts.
    Alone,
    /// Messages that can be told apart.
    Plain,
    /// Data that can be lost.
    Loss,
    /// A term that outlives a connection.
    OutlivesConnections,
    /// Requests that can be told apart from others.
    Renewals,
    Push,
}

impl FaultLaw {
    /// What it does to a server.
    pub fn wish(&self) -> Wish {
        Wish { alone: self.needs.contains(&Need::Alone), plain: self.needs.contains(&Need::Plain) }
    }

    /// Why this law does not apply to a server; `None` if it does.
    pub fn does_not_apply(&self, server: &dyn Server) -> Option<&'static str> {
        self.needs.iter().find_map(|need| {
            let (has, otherwise) = match need {
                Need::Alone | Need::Plain => (true, ""),
                Need::Loss => (server.after_loss().is_some(), "the server cannot be emptied"),
                Need::OutlivesConnections => (!server.ends_with_its_connection(), "a term ends with its connection"),
                Need::Renewals => (!server.renewals().is_empty(), "renewals cannot be told apart from other requests"),
                Need::Push => {
                    ((*server.open(&server.address())).promises().push != Push::None, "the store has no push")
                }
            };
            (!has).then_some(otherwise)
        })
    }

    /// Holds a store and its server to the law.
    ///
    /// # Errors
    /// How the law was broken.
    pub fn check_on(&self, server: Box<dyn Server>) -> Verdict {
        judge(server.patience() * 6, (self.check)(Rig::new(server)))
    }
}

impl std::fmt::Debug for FaultLaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultLaw").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The one list of the laws: gives it to another macro, behind what that is given by itself.
#[doc(hidden)]
#[macro_export]
macro_rules! __faults_each {
    ([$($with:tt)*] $($then:tt)+) => {
        $($then)+ { [$($with)*]
            // The network.
            a_leader_that_is_cut_off_stops_before_another_starts,
            a_bid_whose_reply_is_lost_is_a_term_all_the_same,
            a_renewal_whose_reply_is_lost_costs_no_term,
            a_message_cut_in_the_middle_costs_no_term,
            connections_that_are_reset_cost_no_term,
            a_watch_that_is_cut_is_taken_up_again,
            a_connection_that_was_given_up_is_closed_though_it_answers_after_all,
            // The server.
            a_server_that_stops_for_a_moment_costs_no_term_and_for_long_costs_one,
            a_server_that_is_killed_and_restarted_has_forgotten_nothing,
            a_server_restarted_empty_is_waited_out_and_tokens_go_on_rising,
            faults_leave_no_connections_behind,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __faults_tests {
    ([$server:ty] $($law:ident,)*) => {
        $(
            #[test]
            fn $law() {
                $crate::faults::hold::<$server>(stringify!($law));
            }
        )*
    };
}

/// Makes every law about faults a test of a store: `faults!(MyServer)`, where `MyServer` is a
/// [`Server`](crate::faults::Server). To be put into a module of its own.
#[macro_export]
macro_rules! faults {
    ($server:ty) => {
        $crate::__faults_each! { [$server] $crate::__faults_tests! }
    };
}

macro_rules! fault_laws {
    ([] $($law:ident,)*) => {
        $(mod $law;)*

        const LAWS: &[FaultLaw] = &[$(FaultLaw {
            name: stringify!($law),
            needs: $law::NEEDS,
            check: |rig| Box::pin($law::check(rig)),
        }),*];
    };
}

crate::__faults_each! { [] fault_laws! }

/// All laws about faults.
pub fn all() -> Vec<FaultLaw> {
    LAWS.to_vec()
}

/// Holds a server to the law of this name. [`faults!`](crate::faults!) calls this.
///
/// # Panics
/// If the law is broken, or there is none of this name.
pub fn hold<S: Server>(law: &str) {
    let law = LAWS.iter().find(|one| one.name == law).unwrap_or_else(|| panic!("there is no law {law:?}"));
    let server: Box<dyn Server> = Box::new(S::start(law.wish()));
    if let Some(why) = law.does_not_apply(&*server) {
        println!("does not apply: {why}");
        return;
    }
    law.check_on(server).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Where a law is tried: a server, two ways to it, and a detector.
struct Rig {
    server: Box<dyn Server>,
    /// The way of the candidate that a fault happens to.
    faulty: Proxy,
    /// The way of everybody else.
    clear: Proxy,
    detector: OverlapDetector,
    seat: SeatName,
}

impl Rig {
    fn new(server: Box<dyn Server>) -> Self {
        let (faulty, clear) = (Proxy::start(server.address()), Proxy::start(server.address()));
        Self { server, faulty, clear, detector: OverlapDetector::new(), seat: new_seat() }
    }

    /// Has the candidates from now on stand for another seat, with another detector.
    fn begin_anew(&mut self) {
        (self.detector, self.seat) = (OverlapDetector::new(), new_seat());
    }

    fn lease(&self) -> Duration {
        self.server.lease()
    }

    /// A candidate on the way that fails, working whenever it leads.
    fn one(&self, lease: Duration) -> TestCandidate {
        self.stand(&self.faulty, "one", lease, |election| election)
    }

    /// A candidate that no fault of the network happens to, working whenever it leads.
    fn other(&self, lease: Duration) -> TestCandidate {
        self.stand(&self.clear, "other", lease, |election| election)
    }

    fn stand(
        &self,
        way: &Proxy,
        id: &str,
        lease: Duration,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> TestCandidate {
        let store = self.server.open(&way.address().to_string());
        let configure = |election: Builder| configure(self.server.configure(election.lease(lease).candidate(id)));
        let started = TestCandidate::start(store, self.seat.as_str(), self.server.patience(), |_| {}, configure);
        let candidate = started.unwrap_or_else(|error| panic!("{id} cannot stand: {error}"));
        candidate.reports_to(&self.detector);
        candidate
    }

    /// A store without an engine, on the way that this proxy is on.
    fn connect(&self, way: &Proxy) -> Arc<dyn DynSeatStore> {
        let store: Arc<dyn DynSeatStore> = Arc::new(SingleSeat::new(self.server.open(&way.address().to_string())));
        store.attach(&Clock::system());
        store
    }

    /// The record of the seat, as the server has it now.
    async fn record(&self) -> Result<Option<Record>, Failure> {
        let store = self.connect(&self.clear);
        Ok(self.within("a reading", store.read(&self.seat)).await??.seat.map(|seat| seat.record))
    }

    async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
        let patience = self.server.patience();
        let waited = tokio::time::timeout(patience, future).await;
        waited.map_err(|_| Failure::new(format!("waited {patience:?} in vain: {what}")))
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Verdict {
        self.within(what, async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Waits until somebody works in a term above this one.
    async fn works_above(&self, token: Token) -> Result<Token, Failure> {
        self.within("that somebody works in a later term", self.detector.acted_above(token)).await
    }

    /// Waits until a term was prolonged by a renewal that was sent from now on, and must not be lost. The first that
    /// succeeds may have been under way.
    async fn is_kept(&self, who: &TestCandidate, token: Token) -> Verdict {
        for _ in 0..2 {
            self.is_renewed(who, token).await?;
        }
        Ok(())
    }

    /// Waits until a term was prolonged, and must not be lost.
    async fn is_renewed(&self, who: &TestCandidate, token: Token) -> Verdict {
        let id = &who.election.candidate().id;
        let deadline = || who.election.term().filter(|term| term.token() == token).map(|term| term.deadline());
        let before = deadline();
        self.until(&format!("that the term of {id} is renewed"), || deadline().is_none() || deadline() != before)
            .await?;
        ensure!(deadline().is_some(), "the fault has cost {id} the term with token {token}");
        Ok(())
    }

    /// That there was one term and no other.
    fn led_once(&self) -> Verdict {
        let sittings = self.detector.work_spans();
        ensure!(sittings == 1, "the fault has cost a term: there were {sittings}");
        Ok(())
    }

    /// Ends a trial: waits until no fault has left connections behind, and judges whether two ever worked at once.
    async fn settles(&self, candidates: [TestCandidate; 2]) -> Verdict {
        let most = self.server.connections(candidates.len());
        let count = || connections(self.faulty.address().port()) + connections(self.clear.address().port());
        let settled = self.until("that no connections are left behind", || count() <= most).await;
        settled.map_err(|failure| Failure::new(format!("{failure}: {} connections, not {most}", count())))?;
        for one in &candidates {
            one.election.stop();
        }
        for one in &candidates {
            one.stopped().await;
        }
        self.detector.acts_do_not_overlap()
    }
}

/// A seat that no other law, and no other run of this one, uses.
fn new_seat() -> SeatName {
    SeatName::new(format!("faults-{:016x}", rand::random::<u64>())).unwrap_or_else(|error| panic!("{error}"))
}
