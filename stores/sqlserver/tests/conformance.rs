//! Runs every law in both modes: over the scripted peer, and over the server that `TENURE_TEST_SQLSERVER` names, if it names
//! one.

mod peer;
mod real;

use std::sync::Arc;
use std::time::Duration;

use peer::{Peer, url_at};
use real::Real;
use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_sqlserver::{Mode, SqlServerStore};
use tenure_testkit::{Kit, Subject};

fn main() {
    let peer = Arc::new(Peer::start());
    let subject = |mode: &str| Model { peer: peer.clone(), mode: mode.to_owned() };
    let mut kit = Kit::new().subject("peer_lease", subject("lease")).subject("peer_session", subject("session"));
    match real::options() {
        Some(_) => kit = kit.subject("lease", Real::new(Mode::Lease)).subject("session", Real::new(Mode::Session)),
        None => println!("skipped: all laws on a real SQL Server, as TENURE_TEST_SQLSERVER names none"),
    }
    kit.run();
}

/// The model of a server.
struct Model {
    peer: Arc<Peer>,
    mode: String,
}

impl Model {
    fn store(&self, more: &str) -> Box<dyn DynStore> {
        let url = format!("{}&mode={}{more}", self.peer.url(), self.mode);
        Box::new(SqlServerStore::from_url(&url).expect("the URL is valid"))
    }
}

impl Subject for Model {
    fn open(&self) -> Box<dyn DynStore> {
        self.store("")
    }

    /// Long enough to open a connection within the time of one call while a dozen laws do the same.
    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async {
            self.peer.state().tables("tenure").unwrap().seats.remove(seat.as_str().as_bytes());
        }))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        (self.mode == "session").then(|| -> BoxFuture<'a, ()> {
            Box::pin(async {
                let mut state = self.peer.state();
                let session = state.tables("tenure").unwrap().seats[seat.as_str().as_bytes()].session.unwrap();
                let holder = state.holder_of(&format!("tenure:{session}")).unwrap();
                state.kill(holder);
            })
        })
    }

    fn ends_with_its_connection(&self) -> bool {
        self.mode == "session"
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(self.store("&schema=other"))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(SqlServerStore::from_url(&url_at("127.0.0.1:1")).expect("the URL is valid")))
    }
}
