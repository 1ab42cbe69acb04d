//! The process of a server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Launch;

/// The time-out of waits for a server. It is long, because only a broken server needs that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The process of a server. Dropping it kills the process, and prints the end of its output if the test has failed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    launch: Launch,
    log: PathBuf,
}

impl Process {
    /// Starts a server, and appends its output to the file `log`.
    ///
    /// # Panics
    /// If it is not installed, with the command that installs it.
    pub fn spawn(launch: Launch, log: &Path) -> Self {
        launch.must_exist();
        let file = File::options().create(true).append(true).open(log).expect("a writable log");
        let mut command = launch.command();
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let child =
            spawn_on_permanent_thread(command).unwrap_or_else(|error| panic!("{}: {error}", launch.program.display()));
        Self { child, launch, log: log.to_owned() }
    }

    /// Polls until the server is ready; `what` names the condition.
    ///
    /// # Panics
    /// If the server exits or the wait times out, with the output of the server.
    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
        if let Err(why) = self.try_wait_until(&mut ready) {
            panic!("{} {why}, expected: {what}\n{}", self.launch.program.display(), self.output());
        }
    }

    /// Polls until the server is ready, like [`Process::wait_until`].
    ///
    /// # Errors
    /// If the server exits or the wait times out.
    pub fn try_wait_until(&mut self, ready: &mut dyn FnMut() -> bool) -> Result<(), String> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Err(format!("exited with {status}"));
            }
            if ready() {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("timed out after {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the process id of the server, as the system knows it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal to the process. Does nothing if the process has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Pauses the process (SIGSTOP): its connections stay open, but it does not answer.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the process (SIGCONT) after [`Process::pause`].
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process (SIGKILL), and waits until it has ended.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Sends this signal to the process, and waits until it has ended.
    pub fn end(&mut self, signal: Signal) {
        self.signal(signal);
        let _ = self.child.wait();
    }

    /// Kills the process, if it still runs, and starts it again with the same command.
    pub fn restart(&mut self) {
        self.kill();
        *self = Self::spawn(self.launch.clone(), &self.log);
    }

    /// Returns the output of the process so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let output = self.output();
            let shown: Vec<_> = output.lines().rev().take(30).collect();
            eprintln!("-- the end of the output of {}:", self.launch.program.display());
            shown.iter().rev().for_each(|line| eprintln!("   {line}"));
        }
    }
}

/// Spawns a child on a thread that lives as long as this process. The kernel signals the death of the parent when the
/// *thread* that spawned the child ends, and the threads of tests end early.
fn spawn_on_permanent_thread(command: std::process::Command) -> std::io::Result<Child> {
    type Order = (std::process::Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        let run = move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("servers".to_owned()).spawn(run).expect("a thread");
        orders
    });
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).expect("a running thread");
    answer.recv().expect("a running thread")
}
