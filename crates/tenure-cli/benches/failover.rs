//! How long it takes from the end of a leader to the start of the next one's command, measured from
//! outside, beside flock(1) in the same run; and what a `tenure run` costs that waits.
//!
//!   scripts/bench failover             on a file
//!   scripts/bench failover postgres    on a PostgreSQL server, in both modes; or redis
//!     TENURE_BENCH_STORE=URL           on a store that is there already
//!     TENURE_BENCH_LEASE=15s           3s where a killed leader is followed when its lease has lapsed
//!     TENURE_BENCH_ROUNDS=40           so many leaders are ended in each way
//!
//! The command is the same everywhere: it takes a lock on one file, tells so, and waits to be ended.

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::{self, BufRead, BufReader, PipeWriter};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};
    use tenure_testkit::figures::{FileGround, Ground, PostgresGround, RedisGround, number};

    const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
    pub(crate) fn main() {
        let named = |word: &str| std::env::args().skip(1).any(|argument| argument == word);
        let flock = measure(&mut Scene::new("flock", None), Signal::KILL);
        print("flock(1), its command killed", &flock.took, None);
        let url = std::env::var("TENURE_BENCH_STORE").ok();
        if named("postgres") {
            for mode in ["lease", "session"] {
                on(&PostgresGround::start(mode), &flock.took);
            }
        } else if named("redis") {
            on(&RedisGround::start(), &flock.took);
        } else if let Some(url) = url {
            on_store("tenure run", &url, &flock.took);
        } else {
            let ground = FileGround::new();
            let mut scene = on(&ground, &flock.took);
            waiting(&mut scene);
        }
    }

    fn rounds() -> usize {
        number("TENURE_BENCH_ROUNDS", 40).try_into().expect("not that many")
    }

    fn on(ground: &dyn Ground, flock: &[Duration]) -> Scene {
        on_store(&ground.name(), &ground.url(), flock)
    }

    fn on_store(name: &str, url: &str, flock: &[Duration]) -> Scene {
        println!("{name}: from the end of a leader to the start of the next one's command, {} rounds each", rounds());
        let mut scene = Scene::new("tenure", Some(url));
        let killed = measure(&mut scene, Signal::KILL);
        print("killed (-9)", &killed.took, Some(flock));
        if goes_by_leases(url) {
            print("killed (-9), past the lapse", &killed.past_the_lapse, None);
        }
        let asked = measure(&mut scene, Signal::TERM);
        print("asked to leave", &asked.took, Some(flock));
        println!("overlaps: {}", scene.overlaps);
        assert_eq!(scene.overlaps, 0);
        scene
    }

    /// Whether a leader that is gone is followed when its lease has lapsed, and never before.
    fn goes_by_leases(url: &str) -> bool {
        url.starts_with("redis") || (url.starts_with("postgres") && !url.contains("mode=session"))
    }

    /// Three candidates of one kind.
    struct Scene {
        folder: PathBuf,
        kind: &'static str,
        url: String,
        reports: PipeWriter,
        starts: Receiver<(String, Instant)>,
        candidates: Vec<(String, Child)>,
        number: u32,
        overlaps: u32,
    }

    impl Scene {
        fn new(kind: &'static str, url: Option<&str>) -> Self {
            let folder = std::env::temp_dir().join(format!("tenure-bench-{}-{kind}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let (reader, reports) = io::pipe().unwrap();
            let (tell, starts) = channel();
            std::thread::spawn(move || {
                for line in BufReader::new(reader).lines().map_while(Result::ok) {
                    let _ = tell.send((line, Instant::now()));
                }
            });
            let url = url.unwrap_or_default().to_owned();
            let candidates = Vec::new();
            let mut scene = Self { folder, kind, url, reports, starts, candidates, number: 0, overlaps: 0 };
            (0..3).for_each(|_| scene.add());
            scene
        }

        fn add(&mut self) {
            self.number += 1;
            let name = format!("candidate-{}", self.number);
            let probe = self.folder.join("probe");
            let mut command = if self.kind == "flock" {
                // It becomes the command, so that killing that frees the lock at once.
                let mut command = Command::new("flock");
                command.arg("--no-fork").arg(self.folder.join("lock")).env("TENURE_CANDIDATE", &name);
                command.env("TENURE_TERM", self.number.to_string());
                command
            } else {
                let mut command = Command::new(TENURE);
                let lease = std::env::var("TENURE_BENCH_LEASE").unwrap_or_else(|_| "15s".to_owned());
                command.args([
                    "run",
                    "--quiet",
                    "--lease",
                    &lease,
                    "--candidate",
                    &name,
                    "--store",
                    &self.url,
                    "bench",
                    "--",
                ]);
                command
            };
            command.args([TENURE, "__probe"]).arg(probe).stdin(Stdio::null());
            command.stdout(self.reports.try_clone().unwrap());
            self.candidates.push((name, command.spawn().unwrap()));
        }

        /// The next start of a command: whose, and when it was heard of.
        fn next(&mut self) -> (usize, Instant) {
            let (line, at) = self.starts.recv_timeout(Duration::from_secs(60)).expect("the next leader");
            self.overlaps += u32::from(!line.starts_with("alone "));
            let leader = line.rsplit(' ').next().unwrap_or_default();
            (self.candidates.iter().position(|(name, _)| name == leader).expect("one of ours"), at)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            for (_, child) in &mut self.candidates {
                let _ = child.kill();
                let _ = child.wait();
            }
            // The guards see to the rest, and leave.
            std::thread::sleep(Duration::from_millis(200));
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    #[derive(Default)]
    struct Measured {
        took: Vec<Duration>,
        /// The same, from when the store says that the lease is over.
        past_the_lapse: Vec<Duration>,
    }

    fn measure(scene: &mut Scene, signal: Signal) -> Measured {
        let mut measured = Measured::default();
        if scene.number == 3 {
            let (leader, _) = scene.next();
            scene.candidates.swap(0, leader);
        }
        let lapses = signal == Signal::KILL && goes_by_leases(&scene.url);
        for round in 0..rounds() {
            // Everybody has long settled; at any point between two renewals.
            std::thread::sleep(Duration::from_millis(150 + 37 * (round as u64 % 30)));
            let (_, mut leader) = scene.candidates.remove(0);
            let began = Instant::now();
            kill_process(Pid::from_child(&leader), signal).unwrap();
            let lapse = lapses.then(|| scene.lapse());
            let (next, at) = scene.next();
            measured.took.push(at - began);
            if let Some(lapse) = lapse {
                let past = at.checked_duration_since(lapse);
                measured.past_the_lapse.push(past.expect("followed before its lease had lapsed"));
            }
            leader.wait().unwrap();
            scene.candidates.swap(0, next);
            scene.add();
        }
        measured.took.sort();
        measured.past_the_lapse.sort();
        measured
    }

    impl Scene {
        /// When the lease of a leader that is gone lapses, by what the store says of it. A little early, as
        /// nothing tells how long the answer has taken.
        fn lapse(&self) -> Instant {
            let asked = Instant::now();
            let status =
                Command::new(TENURE).args(["status", "--json", "--store", &self.url, "bench"]).output().unwrap();
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("a status");
            let left = status["leader"]["expires_in_ms"].as_u64().expect("when it lapses");
            asked + Duration::from_millis(left)
        }
    }

    fn print(what: &str, took: &[Duration], beside: Option<&[Duration]>) {
        let at = |took: &[Duration], percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
        let (p50, p95) = (at(took, 50), at(took, 95));
        let ratio = beside.map(|beside| format!("   {:.1} times flock(1)", p50 / at(beside, 50)));
        println!("{what:<30} p50 {p50:6.2} ms   p95 {p95:6.2} ms{}", ratio.unwrap_or_default());
    }

    /// What a candidate costs that waits, with its guard.
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
        println!("\na tenure run that waits, lease 15 s");
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
