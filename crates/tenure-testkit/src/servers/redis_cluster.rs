//! A Redis Cluster of three masters.

use super::{Redis, RedisSetup, Reply};

/// A Redis Cluster of three masters on this machine. Dropping it ends the nodes.
#[derive(Debug)]
pub struct RedisCluster {
    /// The three nodes of the cluster. Each is a master.
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the nodes, assigns the slots to them, and waits until all of them see the whole cluster.
    ///
    /// # Panics
    /// If Redis is not installed, or a node does not start.
    pub fn start() -> Self {
        let setup = RedisSetup::redis().with([
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
            "--cluster-node-timeout",
            "2000",
        ]);
        let mut nodes: Vec<_> = (0..3).map(|_| setup.start()).collect();
        let slots = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (node, (from, to)) in nodes.iter().zip(slots) {
            must(node.ask(&["CLUSTER", "ADDSLOTSRANGE", from, to]));
        }
        for (number, node) in nodes.iter().enumerate() {
            must(node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]));
        }
        for node in &nodes[1..] {
            let bus = node.ask(&["CONFIG", "GET", "cluster-port"]);
            let Reply::List(pair) = bus else { panic!("{bus:?}") };
            must(nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), pair[1].text()]));
        }
        for node in &mut nodes {
            let port = node.port();
            node.process.wait_until("the node sees the whole cluster", || {
                let info = super::resp::ask(port, &["CLUSTER", "INFO"]);
                info.is_ok_and(|info| {
                    let text = info.text();
                    text.contains("cluster_state:ok") && text.contains("cluster_known_nodes:3")
                })
            });
        }
        Self { nodes }
    }

    /// Moves a key's slot and its contents to another node, as an operator does to rebalance a cluster.
    ///
    /// # Panics
    /// If a node refuses.
    pub fn move_key(&self, key: &str) {
        let Reply::Number(slot) = self.nodes[0].ask(&["CLUSTER", "KEYSLOT", key]) else { panic!("no slot") };
        let slot = slot.to_string();
        let is_there = |node: &&Redis| node.ask(&["EXISTS", key]) == Reply::Number(1);
        let from = self.nodes.iter().find(is_there).expect("the key is on a node");
        let to = self.nodes.iter().find(|node| node.port() != from.port()).expect("another node");
        let [from_id, to_id] = [from, to].map(|node| node.ask(&["CLUSTER", "MYID"]).text().to_owned());
        must(to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]));
        must(from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]));
        let Reply::List(keys) = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]) else { panic!("no keys") };
        for key in keys {
            must(from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key.text(), "0", "5000"]));
        }
        for node in [to, from].into_iter().chain(&self.nodes) {
            must(node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]));
        }
    }

    /// Returns the URL of a store that names all nodes.
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(Redis::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }
}

fn must(reply: Reply) {
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
}
