//! Runs every law against real servers: Redis alone, behind Sentinel and in a cluster, and Valkey.

use tenure_core::{BoxFuture, DynStore, SeatName};
use tenure_redis::RedisStore;
use tenure_testkit::servers::{Redis, RedisCluster, RedisSentinel, RedisSetup};
use tenure_testkit::{Kit, Subject};

fn main() {
    Kit::new()
        .subject("redis", Server::redis())
        .subject("valkey", Server::valkey())
        .subject("sentinel", Server::sentinel())
        .subject("cluster", Server::cluster())
        .run();
}

/// The servers of a store, and the nodes on which a key can be deleted.
struct Server {
    url: String,
    nodes: Vec<Redis>,
    _others: Vec<Redis>,
}

impl Server {
    fn redis() -> Self {
        let redis = Redis::start();
        Self { url: redis.url(), nodes: vec![redis], _others: Vec::new() }
    }

    fn valkey() -> Self {
        let valkey = RedisSetup::valkey().start();
        Self { url: valkey.url(), nodes: vec![valkey], _others: Vec::new() }
    }

    fn sentinel() -> Self {
        let trio = RedisSentinel::start();
        let url = format!("{}?min_replicas=1", trio.url());
        Self { url, nodes: trio.servers.into(), _others: trio.sentinels }
    }

    fn cluster() -> Self {
        let cluster = RedisCluster::start();
        Self { url: cluster.url(), nodes: cluster.nodes, _others: Vec::new() }
    }
}

impl Subject for Server {
    fn open(&self) -> Box<dyn DynStore> {
        Box::new(RedisStore::from_url(&self.url).expect("the URL is valid"))
    }

    fn pushes_releases(&self) -> bool {
        true
    }

    fn delete<'a>(&'a self, seat: &'a SeatName) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async move {
            // The node that has the key deletes it. The others answer with a redirection, or that they are replicas.
            let key = format!("tenure:{{{}}}:seat", seat.as_str());
            self.nodes.iter().for_each(|node| drop(node.ask(&["DEL", &key])));
        }))
    }

    fn elsewhere(&self) -> Option<Box<dyn DynStore>> {
        let mark = if self.url.contains('?') { '&' } else { '?' };
        Some(Box::new(RedisStore::from_url(&format!("{}{mark}prefix=tenure2", self.url)).expect("the URL is valid")))
    }

    fn broken(&self) -> Option<Box<dyn DynStore>> {
        let nowhere = tenure_testkit::servers::free_port();
        Some(Box::new(RedisStore::from_url(&format!("redis://127.0.0.1:{nowhere}")).expect("the URL is valid")))
    }
}
