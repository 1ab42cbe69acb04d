//! All laws, on real clusters: one member, three members, and behind a gRPC proxy.
//!
//! `TENURE_TEST_ETCD` names another cluster to test as well, such as one of a newer version, by its URL.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_etcd::{EtcdOptions, EtcdStore};
use tenure_testkit::servers::{Etcd, EtcdSetup};
use tenure_testkit::{Kit, Subject};

fn main() {
    let one = Arc::new(Etcd::start());
    let proxy = one.proxy();
    let proxied = Cluster { url: proxy.url(), server: Some(one.clone()) };
    let three = Arc::new(EtcdSetup::new().members(3).start());
    let kit = Kit::new().subject("one", Cluster::of(one)).subject("three", Cluster::of(three));
    let mut kit = kit.subject("proxy", proxied);
    if let Ok(url) = std::env::var("TENURE_TEST_ETCD") {
        kit = kit.subject("other", Cluster { url, server: None });
    }
    kit.run();
}

struct Cluster {
    url: String,
    /// The server, if this program started it. It gives access to the data without the store.
    server: Option<Arc<Etcd>>,
}

impl Cluster {
    fn of(server: Arc<Etcd>) -> Self {
        Self { url: server.url(), server: Some(server) }
    }

    /// Runs `etcdctl` on a thread that can block.
    fn ctl(&self, run: impl FnOnce(&Etcd) + Send + 'static) -> Option<BoxFuture<'_, ()>> {
        let server = self.server.clone()?;
        Some(Box::pin(async move {
            tokio::task::spawn_blocking(move || run(&server)).await.expect("etcdctl succeeds");
        }))
    }
}

fn seat_key(seat: &SeatName) -> String {
    format!("tenure/seats/{}", seat.as_str())
}

impl Subject for Cluster {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(EtcdStore::from_url(&self.url).expect("a valid URL"))
    }

    /// Leaves room for several writes to disk within the time limit of one call, while a dozen laws write at
    /// once.
    fn lease(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn pushes_releases(&self) -> bool {
        true
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let key = seat_key(seat);
        self.ctl(move |etcd| drop(etcd.ctl(&["del", "--", &key])))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let key = seat_key(seat);
        self.ctl(move |etcd| {
            let seat = etcd.ctl(&["get", "--print-value-only", "--", &key]);
            let lease = seat.lines().next().expect("the seat exists").trim_start_matches('0').to_owned();
            etcd.ctl(&["lease", "revoke", &lease]);
        })
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let options =
            EtcdOptions { prefix: "tenure2".to_owned(), ..EtcdOptions::from_url(&self.url).expect("a valid URL") };
        Some(Box::new(EtcdStore::new(options).expect("valid options")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let options = EtcdOptions { endpoints: vec!["127.0.0.1:1".to_owned()], ..EtcdOptions::default() };
        Some(Box::new(EtcdStore::new(options).expect("valid options")))
    }
}
