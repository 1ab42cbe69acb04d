//! Measures what one `tenure run` costs over SQLite, beside `flock`: how long a command that does nothing takes, from
//! the start of `tenure` to its end, and how much memory a waiting candidate needs, with its guard and its shim.
//!
//!   scripts/bench startup
//!     TENURE_BENCH_ROUNDS=40    the number of rounds

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use tenure_testkit::figures::{number, show};

    const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

    pub(crate) fn main() {
        let folder = std::env::temp_dir().join(format!("tenure-bench-{}-startup", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let rounds = number("TENURE_BENCH_ROUNDS", 40);
        let lock = folder.join("lock");
        let flock = || Command::new("flock").arg(&lock).arg("true").status();
        let (mut with_flock, mut with_tenure) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            // In turns, so that both see the same machine.
            with_flock.push(time(flock));
            with_tenure.push(time(|| tenure(TENURE.as_ref(), &folder, &["true"]).status()));
        }
        show("flock FILE true", &mut with_flock);
        show("tenure run ELECTION -- true", &mut with_tenure);
        memory(&folder);
        let _ = fs::remove_dir_all(folder);
    }

    fn time(run: impl FnOnce() -> std::io::Result<std::process::ExitStatus>) -> Duration {
        let began = Instant::now();
        assert!(run().unwrap().success());
        began.elapsed()
    }

    fn tenure(program: &Path, folder: &Path, command: &[&str]) -> Command {
        let mut tenure = Command::new(program);
        tenure.args(["run", "--store"]).arg(format!("sqlite:{}", folder.join("seats.db").display()));
        tenure.args(["--quiet", "bench", "--"]).args(command).stdin(Stdio::null());
        tenure
    }

    /// Prints the memory of a candidate that waits. Its leader is a copy of the program, so that the two share no memory.
    fn memory(folder: &Path) {
        let copy = folder.join("tenure");
        fs::copy(TENURE, &copy).unwrap();
        let leader = tenure(&copy, folder, &["sleep", "1000"]).spawn().unwrap();
        // The leader's command runs.
        wait_for(|| tree(leader.id()).len() == 3 && name(tree(leader.id())[2]) == "sleep");
        let waiting = tenure(TENURE.as_ref(), folder, &["true"]).spawn().unwrap();
        wait_for(|| tree(waiting.id()).len() == 3);
        // Long enough for the candidate to be idle.
        std::thread::sleep(Duration::from_millis(500));
        let each: Vec<u64> = tree(waiting.id()).into_iter().map(memory_of).collect();
        let total = each.iter().sum::<u64>() as f64 / 1024.0;
        println!("memory of a waiting candidate: {total:.1} MB (tenure, guard and shim: {each:?} kB)");
        [waiting, leader].into_iter().for_each(end);
    }

    fn end(mut child: Child) {
        let _ = child.kill();
        let _ = child.wait();
    }

    fn wait_for(mut condition: impl FnMut() -> bool) {
        while !condition() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn name(process: u32) -> String {
        fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
    }

    /// Returns a process and its first child, grandchild and so on.
    fn tree(process: u32) -> Vec<u32> {
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        let child = children.split_ascii_whitespace().next().and_then(|child| child.parse().ok());
        std::iter::once(process).chain(child.map(tree).unwrap_or_default()).collect()
    }

    /// Returns the memory of a process in kB. Memory that it shares with others is divided among them.
    fn memory_of(process: u32) -> u64 {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}
