//! Runs every law in both modes: against the scripted peer, and against the server that `TENURE_TEST_SQLSERVER` names, if
//! it names one.

mod peer;

use std::sync::Arc;
use std::time::Duration;

use peer::{Peer, url_at};
use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_sqlserver::SqlServerStore;
use tenure_testkit::{Kit, Subject};

fn main() {
    let peer = Arc::new(Peer::start());
    let subject = |mode: &str| Model { peer: peer.clone(), mode: mode.to_owned() };
    let mut kit = Kit::new().subject("peer_lease", subject("lease")).subject("peer_session", subject("session"));
    match std::env::var("TENURE_TEST_SQLSERVER") {
        Ok(url) => {
            for mode in ["lease", "session"] {
                kit = kit.subject(mode, Real(url.clone(), mode.to_owned()));
            }
        }
        Err(_) => println!("skipped: the laws on a real SQL Server; TENURE_TEST_SQLSERVER names none"),
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

/// A real server: a URL or a connection string, and the mode.
struct Real(String, String);

impl Real {
    fn store(&self, more: &[(&str, &str)]) -> Box<dyn DynStore> {
        let with = |text: String, (name, value): &(&str, &str)| match text.contains("://") {
            true => format!("{text}{}{name}={value}", if text.contains('?') { '&' } else { '?' }),
            false => format!("{text};{name}={value}"),
        };
        let text = more.iter().fold(self.0.clone(), with);
        Box::new(SqlServerStore::from_url(&text).expect("TENURE_TEST_SQLSERVER is valid"))
    }
}

impl Subject for Real {
    fn open(&self) -> Box<dyn DynStore> {
        self.store(&[("mode", &self.1)])
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn ends_with_its_connection(&self) -> bool {
        self.1 == "session"
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(self.store(&[("mode", &self.1), ("schema", "tenure_other")]))
    }
}
