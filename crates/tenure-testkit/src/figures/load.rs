//! The cost of elections while another process keeps the server busy.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{BenchTarget, ManyElections, number};

/// A process that keeps a server busy. Dropping it, or the end of this process, kills it.
#[derive(Debug)]
pub struct Load(Child);

impl Load {
    /// Starts the process with this command, and discards its output.
    ///
    /// # Panics
    /// If the command does not start.
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

/// Measures the cost of a thousand elections with a lease of 3 s in a separate process, for `TENURE_BENCH_SECONDS`
/// (default: 60), while another process keeps the server busy. Prints it.
///
/// # Panics
/// If a term is lost.
pub fn beside_a_load(target: &dyn BenchTarget) {
    let (count, seconds) = (1000, number("TENURE_BENCH_SECONDS", 60));
    let mut process = ManyElections::start(&target.url(), count, Duration::from_secs(3));
    let elected = process.elected();
    let load = target.saturate();
    let (before, work) = (process.state(), target.work());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, done) = (process.state(), target.work());
    drop(load);
    let spent = after.processor - before.processor;
    println!(
        "{count} elections, lease 3 s, for {seconds} s on a busy server: {} lead, {} terms lost",
        after.leading, after.lost
    );
    print!("   elected within {elected:.2?}; ");
    if let Some(done) = done.zip(work).map(|(done, work)| done.since(work)) {
        print!("{:.1} commands/s, ", done.commands as f64 / seconds as f64);
    }
    println!(
        "{:.2} CPU-s per 30 s, {:.1} MB for the whole process, {:.1} MB more than without elections",
        spent.as_secs_f64() / seconds as f64 * 30.0,
        after.memory as f64 / 1e6,
        after.memory.saturating_sub(process.empty) as f64 / 1e6,
    );
    assert_eq!((after.leading, after.lost), (count, 0), "terms were lost without a fault");
}
