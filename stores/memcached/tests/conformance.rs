//! Runs every law against a real memcached.

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_memcached::MemcachedStore;
use tenure_testkit::Subject;
use tenure_testkit::servers::Memcached;

fn main() {
    tenure_testkit::conformance(Server(Memcached::start()));
}

struct Server(Memcached);

impl Subject for Server {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(MemcachedStore::from_url(&self.0.url()).expect("the URL is valid"))
    }

    /// Has the same effect as an eviction.
    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async move { drop(self.0.ask(&format!("md tenure:{}", seat.as_str()))) }))
    }

    fn keeps_tokens_of_removed_seats(&self) -> bool {
        false
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let url = format!("{}?prefix=tenure2", self.0.url());
        Some(Box::new(MemcachedStore::from_url(&url).expect("the URL is valid")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let nowhere = tenure_testkit::servers::free_port();
        Some(Box::new(MemcachedStore::from_url(&format!("memcached://127.0.0.1:{nowhere}")).expect("the URL is valid")))
    }
}
