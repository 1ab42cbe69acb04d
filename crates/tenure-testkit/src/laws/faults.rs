//! Laws about networks and servers that fail, for every store that has a server.
//!
//! ```text
//!  one   ──▶ [ faulty ] ──▶ server      the fault happens to one of two candidates,
//!  other ──▶ [ clear  ] ──▶             or to the server itself
//! ```
//!
//! A store author describes the server once, as a [`Server`], and gets every law as a separate test:
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
//! Every law also checks that no two candidates ever worked at once, by the recorded moments of their work. No law
//! measures how long something takes, because the machine may be busy. A fault lasts for a part of a lease, or until a
//! candidate has noticed it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, Builder, Clock, DynSeatStore, DynStore, Push, Record, SeatName, SingleSeat, Token};

use crate::candidate::PATIENCE;
use crate::failure::ensure;
use crate::kit::run_check;
use crate::proxy::Proxy;
use crate::servers::connections;
use crate::{Failure, OverlapDetector, TestCandidate, Verdict};

/// A server that a law can make fail, and the way in which a store connects to it.
pub trait Server: Send + Sync + 'static {
    /// Starts a server that meets the requirements of a law, or returns one that other tests use at the same time.
    fn start(wish: Wish) -> Self
    where
        Self: Sized;

    /// Returns the address of the server, as `host:port`. The laws put a proxy in front of it.
    fn address(&self) -> String;

    /// Opens a store that connects to this address, as another process would. It must not connect yet.
    fn open(&self, address: &str) -> Box<dyn DynStore>;

    /// Returns the largest number of connections to the server that this many processes need, if one of them leads.
    fn connections(&self, processes: usize) -> usize;

    /// Pauses the server (SIGSTOP): its connections stay open, but it does not answer.
    fn pause(&mut self);

    /// Resumes the server (SIGCONT) after [`Server::pause`].
    fn resume(&mut self);

    /// Kills the server (SIGKILL) and starts it again at the same address, with all data that it has confirmed.
    fn restart(&mut self);

    /// Returns whether [`Server::restart`] keeps the data. A cache loses it: then the laws about restarts that lose
    /// everything apply instead.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Returns what the store promises if the server restarts without its data. `None` if a test cannot do that.
    fn after_loss(&self) -> Option<AfterLoss> {
        None
    }

    /// Kills the server and starts it again at the same address without any data. Needed if [`Server::after_loss`]
    /// returns a promise.
    fn restart_empty(&mut self) {}

    /// Returns the lease of the candidates (default: 3 s): long enough for calls on a busy machine.
    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    /// Returns a lease in which the server can be killed and restarted (default: five leases).
    fn long_lease(&self) -> Duration {
        self.lease() * 5
    }

    /// Returns whether leases are so long that a law causes each kind of fault once, and not several times (default: if
    /// the lease is 10 s or more).
    fn is_slow(&self) -> bool {
        self.lease() >= Duration::from_secs(10)
    }

    /// Returns how many candidates stand at once in the law about many of them, each as another process would (default:
    /// 40).
    fn many_candidates(&self) -> usize {
        40
    }

    /// Returns how long a law waits for an event that must happen.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Sets options of every candidate, such as `takeover`. The default changes nothing.
    fn configure(&self, election: Builder) -> Builder {
        election
    }

    /// Returns whether a seat is lost together with its connection, like the lock of a database session. Then a broken
    /// connection may cost the term.
    fn ends_with_its_connection(&self) -> bool {
        false
    }

    /// Returns whether a call on a slow connection gets its answer although other calls on it have timed out. If not,
    /// the call fails, because the store closes the connection at once.
    fn waits_for_slow_answers(&self) -> bool {
        true
    }

    /// Returns bytes that occur in a request that takes a seat, and in no earlier request. These are the bytes on the
    /// wire, escaped if records are sent inside JSON.
    fn bid(&self) -> &'static str {
        "\"incarnation\""
    }

    /// Returns bytes that identify the requests that renew a term. Empty if they cannot be distinguished from others.
    fn renewals(&self) -> &'static [&'static str] {
        &["\"incarnation\""]
    }
}

/// The requirements of a law on its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The law pauses or restarts the server, so no other test may use it.
    pub alone: bool,
    /// The law searches the traffic for bytes ([`Server::bid`], [`Server::renewals`]), so it must not be encrypted.
    pub plain: bool,
}

/// The tokens that still rise after a server has lost its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Only the tokens of candidates that were running at the loss: they remember the last term.
    TokensOfWitnessesRise,
    /// Also the tokens of candidates that start later: the store's floor is above all tokens from before the loss.
    AllTokensRise,
}

/// A law about networks and servers that fail.
#[derive(Clone, Copy)]
pub struct FaultLaw {
    /// The law as a sentence in snake case, which is also the name of its file and of its test.
    pub name: &'static str,
    needs: &'static [Need],
    check: fn(Rig) -> BoxFuture<'static, Verdict>,
}

/// A requirement of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// A server of its own, which it pauses or restarts.
    Alone,
    /// Traffic that is not encrypted.
    Plain,
    /// Data that can be lost.
    Loss,
    /// Data that outlives the server's process.
    Durable,
    /// A term that outlives a connection.
    OutlivesConnections,
    /// Renewals that can be distinguished from other requests.
    Renewals,
    Push,
    /// A push that the store promises not to lose silently.
    ProvenPush,
}

impl FaultLaw {
    /// Returns the requirements of this law on its server.
    pub fn wish(&self) -> Wish {
        Wish { alone: self.needs.contains(&Need::Alone), plain: self.needs.contains(&Need::Plain) }
    }

    /// Returns why this law does not apply to a server; `None` if it applies.
    pub fn does_not_apply(&self, server: &dyn Server) -> Option<&'static str> {
        self.needs.iter().find_map(|need| {
            let (has, otherwise) = match need {
                Need::Alone | Need::Plain => (true, ""),
                Need::Loss => (server.after_loss().is_some(), "the server cannot be restarted without its data"),
                Need::Durable => (server.keeps_data(), "the server keeps nothing over a restart"),
                Need::OutlivesConnections => (!server.ends_with_its_connection(), "a term ends with its connection"),
                Need::Renewals => {
                    (!server.renewals().is_empty(), "renewals cannot be distinguished from other requests")
                }
                Need::Push => (push(server) != Push::None, "the store has no push"),
                Need::ProvenPush => (push(server) == Push::Proven, "pushes can be lost, so candidates poll"),
            };
            (!has).then_some(otherwise)
        })
    }

    /// Checks a store and its server against the law, on a tokio runtime of its own. Blocks the thread meanwhile.
    ///
    /// # Errors
    /// If the store breaks the law: what was expected, and what happened instead.
    pub fn check_on(&self, server: Box<dyn Server>) -> Verdict {
        run_check(server.patience() * 6, (self.check)(Rig::new(server)))
    }
}

impl std::fmt::Debug for FaultLaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultLaw").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The list of the laws, passed to another macro together with that macro's own arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __faults_each {
    ([$($with:tt)*] $($then:tt)+) => {
        $($then)+ { [$($with)*]
            // The network.
            a_leader_that_is_cut_off_stops_before_another_starts,
            a_winning_bid_whose_reply_is_lost_still_leads_to_a_term,
            a_renewal_whose_reply_is_lost_costs_no_term,
            a_message_cut_in_the_middle_costs_no_term,
            connections_that_are_reset_cost_no_term,
            a_watch_that_is_cut_is_resumed,
            a_watch_that_falls_silent_is_replaced,
            an_abandoned_connection_is_closed_even_if_it_answers_later,
            // The server.
            a_server_paused_briefly_costs_no_term_and_paused_for_long_costs_one,
            a_server_that_is_killed_and_restarted_keeps_its_seats,
            after_a_server_restarts_empty_the_seat_is_waited_out_and_tokens_rise,
            faults_leave_no_connections_behind,
            of_many_candidates_one_leads_at_a_time,
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

/// Expands to one test for each law about faults: `faults!(MyServer)`, where `MyServer` is a
/// [`Server`](crate::faults::Server). Use it in a module of its own.
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

/// Returns all laws about networks and servers that fail.
pub fn all() -> Vec<FaultLaw> {
    LAWS.to_vec()
}

/// Checks a server against the law with this name. [`faults!`](crate::faults!) calls this.
///
/// # Panics
/// If the store breaks the law, or there is no law with this name.
pub fn hold<S: Server>(law: &str) {
    let law = LAWS.iter().find(|one| one.name == law).unwrap_or_else(|| panic!("there is no law {law:?}"));
    let server: Box<dyn Server> = Box::new(S::start(law.wish()));
    if let Some(why) = law.does_not_apply(&*server) {
        println!("does not apply: {why}");
        return;
    }
    law.check_on(server).unwrap_or_else(|failure| panic!("{failure}"));
}

/// The environment of a law: a server, two proxies in front of it, and a detector of overlaps.
struct Rig {
    server: Box<dyn Server>,
    /// The proxy of the candidate that a fault affects.
    faulty: Proxy,
    /// The proxy of all others.
    clear: Proxy,
    detector: OverlapDetector,
    seat: SeatName,
}

impl Rig {
    fn new(server: Box<dyn Server>) -> Self {
        let (faulty, clear) = (Proxy::start(server.address()), Proxy::start(server.address()));
        Self { server, faulty, clear, detector: OverlapDetector::new(), seat: new_seat() }
    }

    /// Uses another seat and another detector from now on.
    fn begin_anew(&mut self) {
        (self.detector, self.seat) = (OverlapDetector::new(), new_seat());
    }

    fn lease(&self) -> Duration {
        self.server.lease()
    }

    /// Starts a candidate behind the faulty proxy that works whenever it leads.
    fn one(&self, lease: Duration) -> TestCandidate {
        self.stand(&self.faulty, "one", lease, |election| election)
    }

    /// Starts a candidate behind the clear proxy that works whenever it leads.
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

    /// Opens a store without an engine, behind this proxy.
    fn connect(&self, way: &Proxy) -> Arc<dyn DynSeatStore> {
        let store: Arc<dyn DynSeatStore> = Arc::new(SingleSeat::new(self.server.open(&way.address().to_string())));
        store.attach(&Clock::system());
        store
    }

    /// Reads the current record of the seat.
    async fn record(&self) -> Result<Option<Record>, Failure> {
        let store = self.connect(&self.clear);
        Ok(self.within("a reading", store.read(&self.seat)).await??.seat.map(|seat| seat.record))
    }

    async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
        let patience = self.server.patience();
        let waited = tokio::time::timeout(patience, future).await;
        waited.map_err(|_| Failure::new(format!("timed out after {patience:?}, expected: {what}")))
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Verdict {
        self.within(what, async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// Waits until a candidate works in a term with a higher token.
    async fn works_above(&self, token: Token) -> Result<Token, Failure> {
        self.within("a candidate works in a later term", self.detector.acted_above(token)).await
    }

    /// Waits for a renewal of the term that was sent after this call. Fails if the term is lost. It waits for two
    /// renewals, because the first one may have been in flight.
    async fn is_kept(&self, who: &TestCandidate, token: Token) -> Verdict {
        for _ in 0..2 {
            self.is_renewed(who, token).await?;
        }
        Ok(())
    }

    /// Waits until the term is renewed. Fails if the term is lost.
    async fn is_renewed(&self, who: &TestCandidate, token: Token) -> Verdict {
        let id = &who.election.candidate().id;
        let deadline = || who.election.term().filter(|term| term.token() == token).map(|term| term.deadline());
        let before = deadline();
        self.until(&format!("the term of {id} is renewed"), || deadline().is_none() || deadline() != before).await?;
        ensure!(deadline().is_some(), "the fault has cost {id} the term with token {token}");
        Ok(())
    }

    /// Checks that there was only one term.
    fn led_once(&self) -> Verdict {
        let terms = self.detector.work_spans();
        ensure!(terms == 1, "the fault has cost a term: there were {terms} terms");
        Ok(())
    }

    /// Ends a trial: waits until no surplus connections are left, and checks that no two candidates worked at once.
    async fn settles(&self, candidates: [TestCandidate; 2]) -> Verdict {
        let most = self.server.connections(candidates.len());
        let count = || connections(self.faulty.address().port()) + connections(self.clear.address().port());
        let settled = self.until("no surplus connections are left", || count() <= most).await;
        settled.map_err(|failure| {
            Failure::new(format!("{failure}: there are {} connections, at most {most} are needed", count()))
        })?;
        for one in &candidates {
            one.election.stop();
        }
        for one in &candidates {
            one.stopped().await;
        }
        self.detector.acts_do_not_overlap()
    }
}

fn push(server: &dyn Server) -> Push {
    (*server.open(&server.address())).promises().push
}

/// Returns a seat that no other law, and no other run of this law, uses.
fn new_seat() -> SeatName {
    SeatName::new(format!("faults-{:016x}", rand::random::<u64>())).unwrap_or_else(|error| panic!("{error}"))
}
