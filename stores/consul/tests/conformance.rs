//! All laws, on real servers: one, and a cluster of three.

use std::sync::Arc;
use std::time::Duration;

use tenure_consul::{ConsulOptions, ConsulStore};
use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_testkit::servers::{Consul, ConsulCluster};
use tenure_testkit::{Kit, Subject};

/// Names another server to test as well, by its URL: `consul://host:8500/prefix?min_lease=2s`.
const OTHER_SERVER: &str = "TENURE_TEST_CONSUL";

fn main() {
    let server = Consul::start();
    let cluster = ConsulCluster::start();
    let mut kit = Kit::new()
        .subject("single", Servers { url: server.url(), servers: Arc::new(vec![server]) })
        .subject("three", Servers { url: cluster.url(), servers: Arc::new(cluster.servers) });
    if let Ok(url) = std::env::var(OTHER_SERVER) {
        kit = kit.subject("elsewhere", Servers { url, servers: Arc::default() });
    }
    kit.run();
}

struct Servers {
    url: String,
    /// The servers, if this program started them.
    servers: Arc<Vec<Consul>>,
}

impl Servers {
    /// Calls a server directly, on a thread that can block.
    fn act(&self, act: impl FnOnce(&Consul) + Send + 'static) -> Option<BoxFuture<'_, ()>> {
        let servers = self.servers.clone();
        (!servers.is_empty()).then(|| -> BoxFuture<'_, ()> {
            Box::pin(async move {
                tokio::task::spawn_blocking(move || act(&servers[0])).await.expect("the server answers");
            })
        })
    }
}

/// Returns the key of a seat, escaped for a URL. The seats that use this have simple names.
fn key(seat: &SeatName) -> String {
    format!("tenure/seats/{}/seat", seat.as_str().replace(' ', "%2520"))
}

impl Subject for Servers {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(ConsulStore::from_url(&self.url).expect("a valid URL"))
    }

    /// Leaves room for an answer within a fifteenth of it while a dozen laws make calls at once. Sessions end
    /// after up to twice as long.
    fn lease(&self) -> Duration {
        (*self.open()).promises().min_lease.max(Duration::from_secs(4))
    }

    fn pushes_releases(&self) -> bool {
        true
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let key = key(seat);
        self.act(move |server| drop(server.ask("DELETE", &format!("/v1/kv/{key}"), "")))
    }

    fn end_session<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        let key = key(seat);
        self.act(move |server| server.destroy_session_of(&key))
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let options = ConsulOptions::from_url(&self.url).expect("a valid URL");
        let options = ConsulOptions { prefix: "tenure2".to_owned(), ..options };
        Some(Box::new(ConsulStore::new(options).expect("valid options")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        Some(Box::new(ConsulStore::from_url("consul://127.0.0.1:1").expect("a valid URL")))
    }
}
