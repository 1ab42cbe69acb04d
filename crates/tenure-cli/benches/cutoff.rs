//! Measures how long a seat is idle when its leader is cut off from the store: from the end of the old command, as the kernel
//! reports it, to the start of the next one. Each candidate, a `tenure run`, reaches the server through a proxy of its own,
//! and in each round the proxy of the leader stops delivering anything. The command does not handle SIGTERM.
//!
//!   scripts/bench cutoff [redis|postgres|mysql|etcd|consul|kubernetes]…
//!     TENURE_BENCH_ROUNDS=40   the number of rounds

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod scene;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use tenure_testkit::figures::{
        BenchTarget, ConsulTarget, EtcdTarget, KubernetesTarget, MysqlTarget, PostgresTarget, RedisTarget, show,
    };
    use tenure_testkit::proxy::{Proxy, Way};

    use super::scene::{Scene, rounds};

    const LEASE: &str = "3s";

    pub(crate) fn main() {
        let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        type Start = fn() -> Box<dyn BenchTarget>;
        let targets: [(&str, Start); 8] = [
            ("redis", || Box::new(RedisTarget::start())),
            ("postgres", || Box::new(PostgresTarget::start("lease"))),
            ("postgres", || Box::new(PostgresTarget::start("session"))),
            ("mysql", || Box::new(MysqlTarget::start("lease"))),
            ("mysql", || Box::new(MysqlTarget::start("session"))),
            ("etcd", || Box::new(EtcdTarget::start())),
            ("consul", || Box::new(ConsulTarget::start())),
            ("kubernetes", || Box::new(KubernetesTarget::start())),
        ];
        println!("time without a command after a leader was cut off, lease {LEASE}");
        for (name, start) in targets {
            if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
                measure(&*start());
            }
        }
    }

    fn measure(target: &dyn BenchTarget) {
        let mut network = Network { target, scene: Scene::empty("tenure", "", LEASE), proxies: BTreeMap::new() };
        network.scene.expects_errors = true;
        network.add();
        let (mut leader, _) = network.scene.next();
        network.add();
        let mut idle = Vec::new();
        for _ in 0..rounds() {
            // Long enough for the follower to have seen a renewal.
            std::thread::sleep(Duration::from_secs(2));
            let command = command_of(network.scene.candidates[leader].1.id());
            let watcher = std::thread::spawn(move || ended(command));
            network.cut_off(leader);
            let (next, started) = network.scene.next();
            let ended = watcher.join().expect("the end of the command");
            // A next command that starts before the end of this one is an overlap, and the scene counts it.
            idle.push(started.saturating_duration_since(ended));
            network.remove(leader);
            leader = next - usize::from(next > leader);
            network.add();
        }
        show(&format!("{}, idle", target.name()), &mut idle);
        network.scene.assert_no_overlap();
    }

    /// Candidates that each reach the server through a proxy of their own.
    struct Network<'a> {
        target: &'a dyn BenchTarget,
        scene: Scene,
        /// By the name of the candidate.
        proxies: BTreeMap<String, Proxy>,
    }

    impl Network<'_> {
        fn add(&mut self) {
            let proxy = Proxy::start(self.target.address().expect("a server"));
            self.scene.store = self.target.url_at(&proxy.address().to_string());
            self.scene.add();
            let (name, _) = self.scene.candidates.last().expect("the new candidate");
            self.proxies.insert(name.clone(), proxy);
        }

        fn cut_off(&self, index: usize) {
            let proxy = &self.proxies[&self.scene.candidates[index].0];
            proxy.black_hole(Way::Up);
            proxy.black_hole(Way::Down);
        }

        fn remove(&mut self, index: usize) {
            let (name, mut candidate) = self.scene.candidates.remove(index);
            candidate.kill().expect("a running candidate");
            candidate.wait().expect("the end of the candidate");
            self.proxies.remove(&name);
        }
    }

    /// Returns the process of the command of a `tenure run`: the child of its guard.
    fn command_of(tenure: u32) -> Pid {
        let child = |pid: i32| -> i32 {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            children.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok()).expect("a child")
        };
        Pid::from_raw(child(child(tenure as i32))).expect("a process")
    }

    /// Returns when a process ends.
    fn ended(process: Pid) -> Instant {
        let pidfd = pidfd_open(process, PidfdFlags::empty()).expect("a running command");
        while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).is_err() {}
        Instant::now()
    }
}
