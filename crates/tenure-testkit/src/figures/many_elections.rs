//! Many elections in one process, which is asked from another.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_core::{Election, Elections, Token};

use super::{Open, Usage};

const CROWD: &str = "TENURE_TEST_CROWD";
/// What the child's answers begin with: the harness of a test prints things, too.
const ANSWER: &str = "crowd> ";

/// A process of this very program that stands in many elections.
///
/// The program must call [`crowd_child`]: a test in a test of the name `crowd`, a bench first thing in
/// its `main`.
#[derive(Debug)]
pub struct ManyElections {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    count: u64,
    /// Its memory before the first election, in bytes.
    pub empty: u64,
}

/// How a crowd stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// In how many elections it leads.
    pub leading: u64,
    /// In how many it leads no more, or in another term than it was first elected for.
    pub lost: u64,
    /// Its resident memory, in bytes.
    pub memory: u64,
    /// Time it has spent on processors.
    pub processor: Duration,
}

impl ManyElections {
    /// Starts it: so many elections, called `crowd-0` and so on, over the store at this URL.
    ///
    /// # Panics
    /// If this program cannot be started again.
    pub fn start(url: &str, count: u64, lease: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["crowd", "--exact", "--nocapture"])
            .env(CROWD, format!("{count} {} {url}", lease.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let (asks, answers) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut crowd = Self { child, asks, answers: BufReader::new(answers), count, empty: 0 };
        crowd.empty = crowd.answer()[0];
        crowd
    }

    /// Waits until it has been elected in all of them, and returns how long that took from its start.
    ///
    /// # Panics
    /// If it is gone.
    pub fn elected(&mut self) -> Duration {
        Duration::from_micros(self.ask("elected")[0])
    }

    /// Waits until all its elections know a leader.
    ///
    /// # Panics
    /// If it is gone.
    pub fn follows(&mut self) {
        self.ask("follows");
    }

    /// How it stands now.
    ///
    /// # Panics
    /// If it is gone.
    pub fn standing(&mut self) -> Standing {
        let [leading, kept, memory, nanos] = self.ask("standing")[..] else { panic!("four numbers") };
        Standing { leading, lost: self.count - kept, memory, processor: Duration::from_nanos(nanos) }
    }

    /// Stops all its elections, and returns how long that took.
    ///
    /// # Panics
    /// If it does not leave in good order.
    pub fn stop(mut self) -> Duration {
        let took = Duration::from_micros(self.ask("stop")[0]);
        assert!(self.child.wait().expect("it is a child").success(), "it did not leave in good order");
        took
    }

    /// Kills it (SIGKILL).
    ///
    /// # Panics
    /// If it cannot be.
    pub fn kill(mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it is a child");
    }

    fn ask(&mut self, what: &str) -> Vec<u64> {
        writeln!(self.asks, "{what}").expect("the crowd is there");
        self.answer()
    }

    fn answer(&mut self) -> Vec<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.answers.read_line(&mut line).expect("a pipe");
            assert!(read > 0, "the crowd is gone");
            // A harness may have left its own line unfinished.
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

/// Runs as a crowd, if this process was started as one; returns whether it was.
///
/// # Panics
/// If it cannot start its elections.
pub fn crowd_child(open: Open) -> bool {
    let Ok(crowd) = std::env::var(CROWD) else { return false };
    // Not to outlive whoever asks, whatever becomes of it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("a signal");
    let mut parts = crowd.splitn(3, ' ');
    let mut part = || parts.next().expect("three parts");
    let (count, lease, url) = (part(), part(), part());
    let (count, lease): (u64, u64) = (count.parse().expect("a number"), lease.parse().expect("a number"));

    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    answer(&[Usage::of_this_process().memory]);
    let began = Instant::now();
    let elections = Elections::new(open(url));
    let start = |number| elections.election(format!("crowd-{number}")).lease(Duration::from_millis(lease)).start();
    let all: Vec<Election> = (0..count).map(|number| start(number).expect("all is fine")).collect();
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
            "standing" => {
                let leading = all.iter().filter(|election| election.is_leader()).count() as u64;
                let same =
                    |(election, token): &(&Election, &Token)| election.term().is_some_and(|t| t.token() == **token);
                let kept = all.iter().zip(&tokens).filter(same).count() as u64;
                let usage = Usage::of_this_process();
                let nanos = u64::try_from(usage.processor.as_nanos()).expect("less than 500 years");
                answer(&[leading, kept, usage.memory, nanos]);
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
