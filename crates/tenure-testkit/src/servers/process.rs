//! A server's process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Launch;

/// How long a server may take for what it usually does in a moment: only a broken one takes it all.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server's process. It is killed with this, at the latest.
#[derive(Debug)]
pub struct Process {
    child: Child,
    launch: Launch,
    log: PathBuf,
}

impl Process {
    /// Starts a server. What it prints goes to the end of `log`.
    ///
    /// # Panics
    /// If it is not installed, with the command that does.
    pub fn spawn(launch: Launch, log: &Path) -> Self {
        launch.must_exist();
        let file = File::options().create(true).append(true).open(log).expect("the log can be written");
        let mut command = launch.command();
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let child = nurse(command).unwrap_or_else(|error| panic!("{}: {error}", launch.program.display()));
        Self { child, launch, log: log.to_owned() }
    }

    /// Waits until the server says that it is ready.
    ///
    /// # Panics
    /// With what it said, if it ends or takes too long.
    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) {
        if let Err(why) = self.try_wait_until(&mut ready) {
            panic!("{} {why} before this: {what}\n{}", self.launch.program.display(), self.output());
        }
    }

    /// The same, told instead of a panic.
    ///
    /// # Errors
    /// If it ends or takes too long.
    pub fn try_wait_until(&mut self, ready: &mut dyn FnMut() -> bool) -> Result<(), String> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.ended() {
                return Err(format!("ended with {status}"));
            }
            if ready() {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("took more than {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends it a signal. None is sent to a process that has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Stops it (SIGSTOP): its connections stay open, and nothing is answered.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Kills it (SIGKILL), and waits until it is gone.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Sends it this signal, and waits until it is gone.
    pub fn end(&mut self, signal: Signal) {
        self.signal(signal);
        let _ = self.child.wait();
    }

    /// Starts it again as it was, after it has ended.
    pub fn restart(&mut self) {
        self.kill();
        *self = Self::spawn(self.launch.clone(), &self.log);
    }

    /// What it has printed so far.
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
            eprintln!("-- the end of what {} said:", self.launch.program.display());
            shown.iter().rev().for_each(|line| eprintln!("   {line}"));
        }
    }
}

/// Spawns on a thread that lives as long as this process. The signal at the death of a parent follows
/// the *thread* that spawned a child, and those of tests come and go.
fn nurse(command: std::process::Command) -> std::io::Result<Child> {
    type Order = (std::process::Command, mpsc::Sender<std::io::Result<Child>>);
    static NURSE: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let nurse = NURSE.get_or_init(|| {
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
    nurse.send((command, reply)).expect("the thread lives");
    answer.recv().expect("the thread lives")
}
