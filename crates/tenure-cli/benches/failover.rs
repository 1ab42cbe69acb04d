//! Measures the time from the end of a leader to the start of the next leader's command, from outside of tenure and
//! compared with flock(1) in the same run. Also measures the cost of a `tenure run` that waits.
//!
//! `TENURE_BENCH_STORE` selects a server that this bench starts, in each of its modes: `redis`, `postgres`, `mysql`, `etcd`,
//! `consul` or `kubernetes`. If the leader leaves, time is measured from the moment when the store shows the release. If
//! it is killed, time is measured from the kill: its guard executes the last will. If its guard is killed, too, and the
//! store has a clock, time is measured from the moment when the lease expires. `TENURE_BENCH_ROUNDS` is the number of
//! rounds (default: 40).
//!
//! The command is the same for all: it locks a file, reports its start, and waits to be killed. The same is measured for
//! programs that use the library with a companion: this executable, started again. Their work locks the file and reports.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod scene;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};
    use tenure::store::{Life, Push, Seat, SeatName, SeatStore, Seen};
    use tenure_testkit::figures::{
        BenchTarget, ConsulTarget, EtcdTarget, FileTarget, KubernetesTarget, MysqlTarget, PostgresTarget, RedisTarget,
    };

    use super::program;
    use super::scene::{PROGRAM, Scene, rounds};

    pub(crate) fn main() {
        let mut arguments = std::env::args().skip(1);
        if arguments.next().as_deref() == Some(PROGRAM) {
            return program::main(arguments);
        }
        println!("time from the end of a leader to the start of the next leader's command, {} rounds each", rounds());
        match std::env::var("TENURE_BENCH_STORE").as_deref() {
            Ok("redis") => on(&RedisTarget::start()),
            Ok("postgres") => {
                on(&PostgresTarget::start("lease"));
                on(&PostgresTarget::start("session"));
            }
            Ok("mysql") => {
                on(&MysqlTarget::start("lease"));
                on(&MysqlTarget::start("session"));
            }
            Ok("etcd") => on(&EtcdTarget::start()),
            Ok("consul") => on(&ConsulTarget::start()),
            Ok("kubernetes") => on(&KubernetesTarget::start()),
            Ok(other) => {
                panic!("TENURE_BENCH_STORE must be redis, postgres, mysql, etcd, consul or kubernetes, got {other:?}")
            }
            Err(_) => beside_flock(),
        }
    }

    fn beside_flock() {
        let flock = measure(&mut Scene::new("flock", "", ""), Signal::KILL, &Since::Signal);
        print("flock(1), its command killed", &flock, None);
        let target = FileTarget::new();
        let mut scene = Scene::new("tenure", &target.url(), "15s");
        let killed = measure(&mut scene, Signal::KILL, &Since::Signal);
        print("tenure run, killed (-9)", &killed, Some(&flock));
        let asked = measure(&mut scene, Signal::TERM, &Since::Signal);
        print("tenure run, asked to leave", &asked, Some(&flock));
        scene.assert_no_overlap();
        waiting(&mut scene);
        drop(scene);
        library(&target.url(), Some(&flock));
    }

    /// Measures programs that use the library with a companion.
    fn library(url: &str, beside: Option<&[Duration]>) {
        let mut scene = Scene::new("library", url, "15s");
        let killed = measure(&mut scene, Signal::KILL, &Since::Signal);
        print("library with a companion, killed (-9)", &killed, beside);
        scene.assert_no_overlap();
    }

    /// Measures a leader and two followers over a server.
    fn on(target: &dyn BenchTarget) {
        println!("{}, lease 15s", target.name());
        let since = Since::Release(target.url());
        let mut scene = Scene::new("tenure", &target.url(), "15s");
        let asked = measure(&mut scene, Signal::TERM, &since);
        print("asked to leave, from release", &asked, None);
        if Witness::new(&target.url()).polls() {
            println!("   this store has no push: followers find a release by a read every third of the lease, 5 s");
        }
        let killed = measure(&mut scene, Signal::KILL, &Since::Signal);
        print("killed (-9)", &killed, None);
        scene.assert_no_overlap();
        let is_clocked = matches!(Witness::new(&target.url()).life(), Some(Life::Clock { .. }));
        drop(scene);
        library(&target.url(), None);
        if is_clocked {
            println!("{}, lease 2s", target.name());
            let mut scene = Scene::new("tenure", &target.url(), "2s");
            let killed = measure(&mut scene, Signal::KILL, &Since::Lapse(target.url()));
            print("killed with its guard, after lease expiry", &killed, None);
            scene.assert_no_overlap();
        }
    }

    /// The moment from which time is measured.
    enum Since {
        Signal,
        /// The store shows that the holder of the seat has changed.
        Release(String),
        /// The lease has expired by the store's clock. The guard is killed as well, so that it executes no will.
        Lapse(String),
    }

    /// Reads the seat on a connection of its own.
    struct Witness {
        store: tenure::store::SingleSeat,
        seat: SeatName,
        runtime: tokio::runtime::Runtime,
    }

    impl Witness {
        fn new(url: &str) -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let store = tenure::store::SingleSeat::new(tenure::connect(url).unwrap());
            Self { store, seat: SeatName::new("bench").unwrap(), runtime }
        }

        fn life(&self) -> Option<Life> {
            self.runtime.block_on(SeatStore::read(&self.store, &self.seat)).unwrap().seat.map(|seat| seat.life)
        }

        /// Returns when the candidate's lease expires; `None` if the candidate does not hold the seat.
        fn lapses(&self, candidate: &str) -> Option<Instant> {
            let asked = Instant::now();
            let seat = self.runtime.block_on(SeatStore::read(&self.store, &self.seat)).unwrap().seat.expect("a seat");
            let Life::Clock { now, renewed } = seat.life else { panic!("no clock") };
            let is_its = seat.record.holder.is_some_and(|holder| *holder.id == *candidate);
            is_its.then(|| asked + seat.record.lease.saturating_sub(now.checked_since(renewed).unwrap_or_default()))
        }

        fn polls(&self) -> bool {
            SeatStore::promises(&self.store).push == Push::None
        }

        /// Resolves when the holder has changed.
        async fn changed(&self, seen: &Seen) {
            if !self.polls() {
                SeatStore::changed(&self.store, &self.seat, seen).await;
                return;
            }
            let holder = |seat: &Option<Seat>| seat.as_ref().and_then(|seat| seat.record.holder.clone());
            while holder(&SeatStore::read(&self.store, &self.seat).await.unwrap().seat) == holder(&seen.seat) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }

        /// Waits on a separate thread for the next change of the holder, and sends the moment.
        fn watch(url: &str) -> Receiver<(Instant, Self)> {
            let witness = Self::new(url);
            let ((sender, changes), (ready, is_ready)) = (channel(), channel());
            std::thread::spawn(move || {
                let at = witness.runtime.block_on(async {
                    let seat = SeatStore::read(&witness.store, &witness.seat).await.unwrap().seat;
                    let seen = Seen { seat, requests: false };
                    let changed = witness.changed(&seen);
                    let listens = tokio::time::sleep(Duration::from_millis(100));
                    let mut changed = std::pin::pin!(changed);
                    tokio::select! {
                        () = &mut changed => {}
                        () = listens => {
                            let _ = ready.send(());
                            changed.await;
                        }
                    }
                    Instant::now()
                });
                // The witness is kept for now, because closing its connections would disturb the measurement.
                let _ = sender.send((at, witness));
            });
            is_ready.recv().expect("the witness watches the seat");
            changes
        }
    }

    fn measure(scene: &mut Scene, signal: Signal, since: &Since) -> Vec<Duration> {
        let mut took = Vec::new();
        if scene.number == 3 {
            let (leader, _) = scene.next();
            scene.candidates.swap(0, leader);
        }
        for _ in 0..rounds() {
            // Long enough for all candidates to be idle.
            std::thread::sleep(Duration::from_millis(150));
            let released = if let Since::Release(url) = since { Some(Witness::watch(url)) } else { None };
            let witness = if let Since::Lapse(url) = since { Some(Witness::new(url)) } else { None };
            // Connects now: connecting takes longer than the time that is measured.
            witness.as_ref().map(Witness::life);
            scene.find_leader();
            let (name, mut leader) = scene.candidates.remove(0);
            // Stopped first, so that it cannot react to the death of tenure.
            let guard = matches!(since, Since::Lapse(_)).then(|| guard_of(leader.id()));
            if let Some(guard) = guard {
                kill_process(guard, Signal::STOP).unwrap();
            }
            let signalled = Instant::now();
            kill_process(Pid::from_child(&leader), signal).unwrap();
            if let Some(guard) = guard {
                kill_process(guard, Signal::KILL).unwrap();
            }
            let lapses = witness.map(|witness| witness.lapses(&name));
            let (next, at) = scene.next();
            let released = released.map(|released| released.recv().expect("the holder changed").0);
            match lapses {
                // The leader had lost its seat before it was killed, so there is no expiry to measure from.
                Some(None) => {}
                Some(Some(lapses)) => {
                    took.push(at.checked_duration_since(lapses).expect("a command started before the lease expired"));
                }
                // On a busy machine the next leader can be notified before the witness.
                None => took.push(at.saturating_duration_since(released.unwrap_or(signalled))),
            }
            leader.wait().unwrap();
            scene.candidates.swap(0, next);
            scene.add();
        }
        if took.len() < rounds() as usize {
            println!("{} rounds skipped: the leader had already lost its seat", rounds() as usize - took.len());
        }
        took.sort();
        took
    }

    /// Returns the process of a leader's guard.
    fn guard_of(tenure: u32) -> Pid {
        let children = fs::read_to_string(format!("/proc/{tenure}/task/{tenure}/children")).unwrap_or_default();
        let guard = children.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok());
        guard.and_then(Pid::from_raw).expect("a guard")
    }

    fn print(what: &str, took: &[Duration], beside: Option<&[Duration]>) {
        let at = |took: &[Duration], percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
        let (p50, p95) = (at(took, 50), at(took, 95));
        let ratio = beside.map(|beside| format!("   {:.1} times that of flock(1)", p50 / at(beside, 50)));
        println!("{what:<42} p50 {p50:6.2} ms   p95 {p95:6.2} ms{}", ratio.unwrap_or_default());
    }

    /// Prints the cost of a waiting candidate and its guard.
    fn waiting(scene: &mut Scene) {
        let child = |pid: u32| -> u32 {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            children.split_ascii_whitespace().next().expect("a child").parse().unwrap()
        };
        let tenure = scene.candidates[1].1.id();
        let guard = child(tenure);
        let shim = child(guard);
        let pss = |pid: u32| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or("0 kB").trim().to_owned();
            line.trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
        };
        let threads = |pid: u32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let wakes = |pid: u32| -> u64 {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            tasks
                .filter_map(|task| {
                    let status = fs::read_to_string(task.path().join("status")).ok()?;
                    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
                    line.trim().parse::<u64>().ok()
                })
                .sum()
        };
        std::thread::sleep(Duration::from_secs(2));
        println!("\ncost of a waiting tenure run, lease 15 s");
        let all = [tenure, guard, shim];
        let [of_tenure, of_guard, of_shim] = all.map(pss);
        let sum = of_tenure + of_guard + of_shim;
        println!("memory (PSS)   {sum:.1} MB: tenure {of_tenure:.1}, guard {of_guard:.1}, shim {of_shim:.1}");
        let [of_tenure, of_guard, of_shim] = all.map(threads);
        println!("threads        tenure {of_tenure}, guard {of_guard}, shim {of_shim}");
        let before = all.map(wakes);
        std::thread::sleep(Duration::from_secs(30));
        let [of_tenure, of_guard, of_shim] = [0, 1, 2].map(|at| wakes(all[at]) - before[at]);
        println!("wake-ups, 30 s tenure {of_tenure}, guard {of_guard}, shim {of_shim}");
    }
}
