//! Runs the laws about faults of the network and the server in both modes, over the scripted peer, and those about the
//! network over the server that `TENURE_TEST_SQLSERVER` names, if it names one.

mod peer;
mod real;

use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use peer::{Peer, url_at};
use real::Real;
use tenure_core::{Builder, DynStore, Takeover};
use tenure_sqlserver::{Mode, SqlServerStore};
use tenure_testkit::faults::{self, AfterLoss, FaultLaw, Server, Wish};

fn main() {
    let mut trials = Vec::new();
    for law in faults::all() {
        trials.push(trial("peer_lease", law, |wish| Box::new(Database::<false>::start(wish))));
        trials.push(trial("peer_session", law, |wish| Box::new(Database::<true>::start(wish))));
        // A test cannot stop the real server.
        if real::options().is_some() && !law.wish().alone {
            trials.push(trial("lease", law, |_| Box::new(Real::new(Mode::Lease))));
            trials.push(trial("session", law, |_| Box::new(Real::new(Mode::Session))));
        }
    }
    if real::options().is_none() {
        println!("skipped: the laws about the network on a real SQL Server, as TENURE_TEST_SQLSERVER names none");
    }
    let mut arguments = Arguments::from_args();
    // Laws mostly wait, so more of them can run concurrently than there are cores.
    arguments.test_threads.get_or_insert(13);
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(name: &str, law: FaultLaw, start: fn(Wish) -> Box<dyn faults::Server>) -> Trial {
    Trial::test(format!("{name}::{}", law.name), move || {
        let server = start(law.wish());
        match law.does_not_apply(&*server) {
            Some(_) => Ok(()),
            None => law.check_on(server).map_err(|failure| Failed::from(failure.to_string())),
        }
    })
}

/// A peer, with candidates in session mode or in lease mode.
struct Database<const SESSIONS: bool>(Peer);

impl<const SESSIONS: bool> faults::Server for Database<SESSIONS> {
    fn start(_: Wish) -> Self {
        Self(Peer::start())
    }

    fn address(&self) -> String {
        self.0.address()
    }

    fn open(&self, address: &str) -> Box<dyn DynStore> {
        let mode = if SESSIONS { "session" } else { "lease" };
        Box::new(SqlServerStore::from_url(&format!("{}&mode={mode}", url_at(address))).unwrap())
    }

    /// As in the README: in session mode a leader has one connection, and a follower two.
    fn connections(&self, processes: usize) -> usize {
        if SESSIONS { 1 + 2 * (processes - 1) } else { processes }
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn pause(&mut self) {
        self.0.pause();
    }

    fn resume(&mut self) {
        self.0.resume();
    }

    fn restart(&mut self) {
        self.0.restart();
    }

    fn after_loss(&self) -> Option<AfterLoss> {
        Some(AfterLoss::TokensOfWitnessesRise)
    }

    fn restart_empty(&mut self) {
        self.0.restart_empty();
    }

    /// With `takeover=instant` two leaders may overlap until the old one notices that its session ended, as the
    /// promises say.
    fn configure(&self, election: Builder) -> Builder {
        election.takeover(Takeover::Safe)
    }

    fn ends_with_its_connection(&self) -> bool {
        SESSIONS
    }

    fn bid(&self) -> &'static str {
        real::BID
    }

    fn renewals(&self) -> &'static [&'static str] {
        real::renewals(if SESSIONS { Mode::Session } else { Mode::Lease })
    }
}
