//! Runs every law against Azurite, a stand-in for Azure Blob Storage: those about stores and elections, with notes, those
//! about networks and servers that fail, and scenarios that only this store has.
//!
//! The shortest lease of Azure is 15 s, so most of them wait for a long time. They all run at once, in one program.

mod faults;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;

use std::sync::{Arc, OnceLock};

use support::{LEASE, open};
use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_testkit::servers::{Azurite, free_port};
use tenure_testkit::{Kit, Subject};

/// The server that all tests share that neither pause nor kill it. A server ends with the thread that has started it, so
/// this is the main thread.
static AZURITE: OnceLock<Arc<Azurite>> = OnceLock::new();

fn azurite() -> Arc<Azurite> {
    AZURITE.get_or_init(|| Arc::new(Azurite::start())).clone()
}

fn main() {
    // Azurite has one thread. With more tests at once, a busy machine does not answer each call in time.
    let kit = Kit::new().concurrently(16).subject("azblob", Container { azurite: azurite() });
    scenarios::add_to(kit.faults::<faults::Server>()).run();
}

struct Container {
    azurite: Arc<Azurite>,
}

impl Container {
    fn url(&self) -> String {
        format!("{}&notes=true", self.azurite.url())
    }
}

/// There is no `delete`: a blob that is deleted by hand leaves no floor for tokens, as the promises say.
impl Subject for Container {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(open(&self.url()))
    }

    fn lease(&self) -> std::time::Duration {
        LEASE
    }

    /// Breaks the lease at once, as an operator can.
    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let blob = format!("tenure/seats/{}", seat.as_str().replace(' ', "~20"));
        let azurite = self.azurite.clone();
        Some(Box::pin(async move {
            let broken = move || azurite.lease(&blob, "break", &[("x-ms-lease-break-period", "0")]);
            assert_eq!(tokio::task::spawn_blocking(broken).await.expect("an answer"), 202);
        }))
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(open(&self.url().replace("/jobs?", "/jobs/tenure/2?"))))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(open(&Azurite::url_at(&format!("127.0.0.1:{}", free_port())))))
    }
}
