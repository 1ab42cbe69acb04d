//! Every law, on a real cluster: of one member, of three, and behind a gRPC proxy.
//!
//! `TENURE_TEST_ETCD` names another cluster, such as one of a newer version: its URL, or several.

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
    /// Started here, so that it can be asked behind the store's back.
    server: Option<Arc<Etcd>>,
}

impl Cluster {
    fn of(server: Arc<Etcd>) -> Self {
        Self { url: server.url(), server: Some(server) }
    }

    /// Asks the cluster itself, out of the way of the runtime.
    fn ctl(&self, run: impl FnOnce(&Etcd) + Send + 'static) -> Option<BoxFuture<'_, ()>> {
        let server = self.server.clone()?;
        Some(Box::pin(async move {
            tokio::task::spawn_blocking(move || run(&server)).await.expect("it answers");
        }))
    }
}

fn seat_key(seat: &SeatName) -> String {
    format!("tenure/seats/{}", seat.as_str())
}

impl Subject for Cluster {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(EtcdStore::from_url(&self.url).expect("a URL that can be read"))
    }

    /// Room for several writes to disk within the time of one call while a dozen laws do so at once.
    fn lease(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let key = seat_key(seat);
        self.ctl(move |etcd| drop(etcd.ctl(&["del", "--", &key])))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let key = seat_key(seat);
        self.ctl(move |etcd| {
            let seat = etcd.ctl(&["get", "--print-value-only", "--", &key]);
            let lease = seat.lines().next().expect("the seat is there").trim_start_matches('0').to_owned();
            etcd.ctl(&["lease", "revoke", &lease]);
        })
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let options = EtcdOptions { endpoints: vec!["127.0.0.1:1".to_owned()], ..EtcdOptions::default() };
        Some(Box::new(EtcdStore::new(options).expect("options that can be")))
    }
}
