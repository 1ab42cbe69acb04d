//! The store with sessions and push from the guide for store authors passes every law.

#[path = "../examples/session_store/server.rs"]
mod server;
#[path = "../examples/session_store/store.rs"]
mod store;

use std::sync::{Arc, Weak};

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_testkit::Subject;

use crate::server::Server;
use crate::store::SessionStore;

struct Sessions {
    server: Arc<Server>,
    other: Arc<Server>,
}

impl Subject for Sessions {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(SessionStore::new(Arc::downgrade(&self.server)))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async move {
            let found = self.server.get(&[seat.as_str().to_owned()]).pop().flatten();
            let session = found.and_then(|(entry, _)| entry.session).expect("the seat is held");
            self.server.end_session(session);
        }))
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(SessionStore::new(Arc::downgrade(&self.other))))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(SessionStore::new(Weak::new())))
    }
}

fn main() {
    tenure_testkit::conformance(Sessions { server: Server::start(), other: Server::start() });
}
