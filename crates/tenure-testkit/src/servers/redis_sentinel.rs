//! A Redis server and its replica, monitored by three Sentinels.

use super::{Redis, RedisSetup};

/// A Redis master, its replica, and three Sentinels that fail over within a second or two. Dropping it ends them.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The two servers. [`RedisSentinel::master`] returns which of them is the master.
    pub servers: [Redis; 2],
    /// The three Sentinels, two of which must agree to fail over.
    pub sentinels: Vec<Redis>,
}

impl RedisSentinel {
    /// The name under which the Sentinels monitor the master.
    pub const NAME: &'static str = "tenure";

    /// Starts all processes, and waits until the replica follows the master and the Sentinels know each other.
    ///
    /// # Panics
    /// If Redis is not installed, or a process does not start.
    pub fn start() -> Self {
        let master = Redis::start();
        let port = master.port().to_string();
        let mut replica = RedisSetup::redis().with(["--replicaof", "127.0.0.1", &port]).start();
        let mut sentinels: Vec<_> = (0..3).map(|_| RedisSetup::redis().with(["--sentinel"]).start()).collect();
        for sentinel in &sentinels {
            sentinel.ask(&["SENTINEL", "MONITOR", Self::NAME, "127.0.0.1", &port, "2"]);
            for (setting, value) in [("down-after-milliseconds", "500"), ("failover-timeout", "3000")] {
                sentinel.ask(&["SENTINEL", "SET", Self::NAME, setting, value]);
            }
        }
        replica
            .process
            .wait_until("the replica follows the master", || master.info("replication", "connected_slaves") == "1");
        let follows = |replica: &Redis| replica.info("replication", "master_link_status") == "up";
        while !follows(&replica) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        for sentinel in &mut sentinels {
            let port = sentinel.port();
            sentinel.process.wait_until("the Sentinel knows the others", || {
                let known = super::resp::ask(port, &["SENTINEL", "CKQUORUM", Self::NAME]);
                let has_replica = super::resp::ask(port, &["INFO", "sentinel"])
                    .is_ok_and(|info| info.text().contains("slaves=1,sentinels=3"));
                has_replica && known.is_ok_and(|known| known.text().starts_with("OK 3"))
            });
        }
        Self { servers: [master, replica], sentinels }
    }

    /// Returns the URL of a store that names the Sentinels.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Redis::address).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::NAME)
    }

    /// Returns the index of the server that the Sentinels regard as the master.
    pub fn master(&self) -> Option<usize> {
        let reply =
            self.sentinels.iter().find_map(|s| s.try_ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME]).ok())?;
        let super::Reply::List(address) = reply else { return None };
        let port: u16 = address.get(1)?.text().parse().ok()?;
        self.servers.iter().position(|server| server.port() == port)
    }
}
