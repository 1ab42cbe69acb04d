//! What elections cost while another process keeps the server busy.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{BenchTarget, ManyElections, number};

/// A process that runs until this is dropped, or this process is gone.
#[derive(Debug)]
pub struct Load(Child);

impl Load {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(command: Command) -> Self {
        let mut tied = Command::new("setpriv");
        tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        let child = tied.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program())))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints what a thousand elections with a lease of 3 s cost in a process of their own, for as long as
/// `TENURE_BENCH_SECONDS` says (60), while another process keeps the server busy.
///
/// # Panics
/// If a term is lost: nothing was wrong.
pub fn beside_a_load(target: &dyn BenchTarget) {
    let (count, seconds) = (1000, number("TENURE_BENCH_SECONDS", 60));
    let mut crowd = ManyElections::start(&target.url(), count, Duration::from_secs(3));
    let elected = crowd.elected();
    let load = target.saturate();
    let (before, work) = (crowd.standing(), target.work());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, done) = (crowd.standing(), target.work());
    drop(load);
    let spent = after.processor - before.processor;
    println!(
        "{count} elections, lease 3 s, {seconds} s beside a process that keeps the server busy: {} lead, {} terms lost",
        after.leading, after.lost
    );
    print!("   elected within {elected:.2?}; ");
    if let Some(done) = done.zip(work).map(|(done, work)| done.since(work)) {
        print!("{:.1} commands/s, ", done.commands as f64 / seconds as f64);
    }
    println!(
        "{:.2} CPU-s per 30 s, {:.1} MB for all of the process, {:.1} MB more than before they started",
        spent.as_secs_f64() / seconds as f64 * 30.0,
        after.memory as f64 / 1e6,
        after.memory.saturating_sub(crowd.empty) as f64 / 1e6,
    );
    assert_eq!((after.leading, after.lost), (count, 0), "terms were lost though nothing was wrong");
}
