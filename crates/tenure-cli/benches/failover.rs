//! How long it takes from the end of a leader to the start of the next one's command, measured from
//! outside, beside flock(1) in the same run; and what a `tenure run` costs that waits.
//!
//! `TENURE_BENCH_STORE` names another store than a file, and `TENURE_BENCH_LEASE` another lease than
//! 15 s: on a store that goes by leases, a killed leader is followed when that has lapsed.
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

    const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
    const ROUNDS: usize = 40;

    pub(crate) fn main() {
        println!("from the end of a leader to the start of the next one's command, {ROUNDS} rounds each");
        let flock = measure(&mut Scene::new("flock"), Signal::KILL);
        print("flock(1), its command killed", &flock, None);
        let mut scene = Scene::new("tenure");
        let killed = measure(&mut scene, Signal::KILL);
        print("tenure run, killed (-9)", &killed, Some(&flock));
        let asked = measure(&mut scene, Signal::TERM);
        print("tenure run, asked to leave", &asked, Some(&flock));
        println!("overlaps: {}", scene.overlaps);
        assert_eq!(scene.overlaps, 0);
        waiting(&mut scene);
    }

    /// Three candidates of one kind.
    struct Scene {
        folder: PathBuf,
        kind: &'static str,
        reports: PipeWriter,
        starts: Receiver<(String, Instant)>,
        candidates: Vec<(String, Child)>,
        number: u32,
        overlaps: u32,
    }

    impl Scene {
        fn new(kind: &'static str) -> Self {
            let folder = std::env::temp_dir().join(format!("tenure-bench-{}-{kind}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let (reader, reports) = io::pipe().unwrap();
            let (tell, starts) = channel();
            std::thread::spawn(move || {
                for line in BufReader::new(reader).lines().map_while(Result::ok) {
                    let _ = tell.send((line, Instant::now()));
                }
            });
            let mut scene = Self { folder, kind, reports, starts, candidates: Vec::new(), number: 0, overlaps: 0 };
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
                let file = format!("sqlite:{}", self.folder.join("seats.db").display());
                let store = std::env::var("TENURE_BENCH_STORE").unwrap_or(file);
                let lease = std::env::var("TENURE_BENCH_LEASE").unwrap_or_else(|_| "15s".to_owned());
                command.args([
                    "run",
                    "--quiet",
                    "--lease",
                    &lease,
                    "--candidate",
                    &name,
                    "--store",
                    &store,
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

    fn measure(scene: &mut Scene, signal: Signal) -> Vec<Duration> {
        let mut took = Vec::new();
        if scene.number == 3 {
            let (leader, _) = scene.next();
            scene.candidates.swap(0, leader);
        }
        for _ in 0..ROUNDS {
            // Everybody has long settled.
            std::thread::sleep(Duration::from_millis(150));
            let (_, mut leader) = scene.candidates.remove(0);
            let began = Instant::now();
            kill_process(Pid::from_child(&leader), signal).unwrap();
            let (next, at) = scene.next();
            took.push(at - began);
            leader.wait().unwrap();
            scene.candidates.swap(0, next);
            scene.add();
        }
        took.sort();
        took
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
