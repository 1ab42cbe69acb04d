//! A separate process with many elections, controlled from this one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_core::{Election, Elections, Token};

use super::{Open, Usage};
use crate::wrap::{Counting, Counts};

const MANY_ELECTIONS: &str = "TENURE_TEST_MANY_ELECTIONS";
/// The prefix of the child's answers, because the harness of a test writes to the same stream.
const ANSWER: &str = "many elections> ";

/// A process of this program that stands in many elections.
///
/// The program must call [`many_elections_child`]: a test program in a test with the name `many_elections`, a bench at
/// the start of `main`.
#[derive(Debug)]
pub struct ManyElections {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    count: u64,
    /// The memory of the process before its first election, in bytes.
    pub empty: u64,
}

/// The state of a process with many elections.
#[derive(Clone, Copy, Debug)]
pub struct ProcessState {
    /// The number of elections in which the process leads.
    pub leading: u64,
    /// The number of elections in which it no longer leads, or leads in a later term than its first.
    pub lost: u64,
    /// The resident memory of the process, in bytes.
    pub memory: u64,
    /// The largest resident memory that the process has ever had, in bytes.
    pub peak: u64,
    /// The calls to the store that read or write seats.
    pub calls: u64,
    /// The renewals in these calls.
    pub renewals: u64,
    /// The CPU time that all threads of the process have used.
    pub processor: Duration,
}

impl ManyElections {
    /// Starts a process with `count` elections, named `election-0` and so on, over the store at this URL.
    ///
    /// # Panics
    /// If this program cannot be started again.
    pub fn start(url: &str, count: u64, lease: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["many_elections", "--exact", "--nocapture"])
            .env(MANY_ELECTIONS, format!("{count} {} {url}", lease.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started");
        let (asks, answers) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut process = Self { child, asks, answers: BufReader::new(answers), count, empty: 0 };
        process.empty = process.answer()[0];
        process
    }

    /// Waits until the process leads all of its elections, and returns how long that took from its start.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn elected(&mut self) -> Duration {
        Duration::from_micros(self.ask("elected")[0])
    }

    /// Waits until all elections of the process know a leader.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn follows(&mut self) {
        self.ask("follows");
    }

    /// Returns the current state of the process.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn state(&mut self) -> ProcessState {
        let [leading, kept, memory, peak, calls, renewals, nanos] = self.ask("state")[..] else {
            panic!("seven numbers")
        };
        let processor = Duration::from_nanos(nanos);
        ProcessState { leading, lost: self.count - kept, memory, peak, calls, renewals, processor }
    }

    /// Stops all elections of the process, and returns how long that took.
    ///
    /// # Panics
    /// If the process does not exit cleanly.
    pub fn stop(mut self) -> Duration {
        let took = Duration::from_micros(self.ask("stop")[0]);
        assert!(self.child.wait().expect("a child process").success(), "the process did not exit cleanly");
        took
    }

    /// Kills the process (SIGKILL) and waits until it is gone.
    ///
    /// # Panics
    /// If the process cannot be killed or waited for.
    pub fn kill(mut self) {
        self.child.kill().expect("a child process");
        self.child.wait().expect("a child process");
    }

    fn ask(&mut self, what: &str) -> Vec<u64> {
        writeln!(self.asks, "{what}").expect("a running process");
        self.answer()
    }

    fn answer(&mut self) -> Vec<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("a pipe");
            assert!(read > 0, "the process with many elections has ended");
            // The harness may have written an incomplete line before the answer.
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return answer.split_whitespace().map(|number| number.parse().expect("a number")).collect();
            }
        }
    }
}

impl Drop for ManyElections {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the elections if [`ManyElections`] has started this process, and returns whether it has.
///
/// # Panics
/// If an election does not start.
pub fn many_elections_child(open: Open) -> bool {
    let Ok(many) = std::env::var(MANY_ELECTIONS) else { return false };
    // This process dies with the one that controls it, however that ends.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a signal");
    let mut parts = many.splitn(3, ' ');
    let mut part = || parts.next().expect("three parts");
    let (count, lease, url) = (part(), part(), part());
    let (count, lease): (u64, u64) = (count.parse().expect("a number"), lease.parse().expect("a number"));

    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    answer(&[Usage::of_this_process().memory]);
    let began = Instant::now();
    let (store, counter) = Counting::new(open(url));
    let elections = Elections::new(store);
    let start = |number| elections.election(format!("election-{number}")).lease(Duration::from_millis(lease)).start();
    let all: Vec<Election> = (0..count).map(|number| start(number).expect("an election that starts")).collect();
    let mut tokens: Vec<Token> = Vec::new();
    for ask in std::io::stdin().lines().map_while(Result::ok) {
        match ask.as_str() {
            "elected" => {
                tokens.clear();
                for election in &all {
                    tokens.push(runtime.block_on(election.elected()).expect("it runs").token());
                }
                answer(&[micros(began)]);
            }
            "follows" => {
                runtime.block_on(async {
                    for election in &all {
                        let mut events = election.events();
                        while election.leader().is_none() {
                            events.next().await.expect("it runs");
                        }
                    }
                });
                answer(&[]);
            }
            "state" => {
                let leading = all.iter().filter(|election| election.is_leader()).count() as u64;
                let same =
                    |(election, token): &(&Election, &Token)| election.term().is_some_and(|t| t.token() == **token);
                let kept = all.iter().zip(&tokens).filter(same).count() as u64;
                let usage = Usage::of_this_process();
                let nanos = u64::try_from(usage.processor.as_nanos()).expect("less than 500 years");
                let Counts { calls, renewals, .. } = counter.counts();
                answer(&[leading, kept, usage.memory, usage.peak, calls, renewals, nanos]);
            }
            _ => {
                let began = Instant::now();
                elections.stop();
                runtime.block_on(elections.stopped());
                answer(&[micros(began)]);
                break;
            }
        }
    }
    true
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).expect("less than 500,000 years")
}

fn answer(numbers: &[u64]) {
    let text: Vec<_> = numbers.iter().map(u64::to_string).collect();
    println!("{ANSWER}{}", text.join(" "));
    std::io::stdout().flush().expect("a pipe");
}
