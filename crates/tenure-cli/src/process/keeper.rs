//! Tenure's side of a guard: starts it, asks it, and stands in for it should it fail.
//!
//! There is one for the command, and one for the health command, if there is such a thing. Each kills
//! only what was its own guard's: what a living guard guards is below that guard, so whatever else has
//! come to this process was left by one that is dead.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::family::Remaining;
use super::wire::{Heard, News, Order};
use super::{GUARD, MYSELF, family, now, wire};

/// A guard, and what is known of it.
pub(crate) struct Keeper {
    guard: Pid,
    /// Names the control group of the guard, with its process id.
    stamp: OsString,
    /// Children that this process had before it.
    before: Vec<Pid>,
    line: AsyncFd<OwnedFd>,
    /// The process group of the command, while there is one.
    group: Option<Pid>,
    /// What it has told that was not asked for yet.
    inbox: VecDeque<News>,
    /// It is gone.
    over: bool,
    /// How many moments in a row were told and not heard, and when the first of them was.
    unheard: u32,
    unheard_since: u64,
}

/// So many moments in a row may go unheard before the guard counts as failed, and for so long. They come
/// with the renewals, so this is enough for any machine that can keep its leases.
const PATIENCE: (u32, u64) = (2, 1_000_000_000);

/// Above all that a store opens.
const HIGH: i32 = 500;

/// The guards of this process. Held while one is started, and while the children of this process are
/// looked through for what to kill: nobody takes another's guard for something left behind.
static GUARDS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn guards() -> MutexGuard<'static, Vec<Pid>> {
    GUARDS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Keeper {
    /// Starts a guard for this command. It waits, and costs next to nothing. To be called on a thread that
    /// lives as long as the guard is needed.
    pub(crate) fn start_guard(command: &[OsString], variables: &[(&str, &str)]) -> io::Result<Self> {
        // Should the guard die, what it guarded comes to this process.
        family::adopt_orphans()?;
        let mut guards = guards();
        let before = family::children();
        let stamp = OsString::from(now().to_string());
        let (here, there) = wire::pair()?;
        let child = Command::new(MYSELF)
            .arg0("tenure")
            .arg(GUARD)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(&stamp)
            .args(command)
            // It may hold a password, which is not the command's business.
            .env_remove("TENURE_STORE")
            .envs(variables.iter().copied())
            .stdin(Stdio::from(there))
            .stdout(Stdio::null())
            .spawn()?;
        let guard = Pid::from_child(&child);
        guards.push(guard);
        drop(guards);
        // When this process is killed, the kernel lets go of its descriptors from the highest down, and for
        // some (inotify) it takes its time. The guard shall hear of it at once.
        let here = fcntl_dupfd_cloexec(&here, HIGH).unwrap_or(here);
        #[allow(
            deprecated,
            reason = "its replacement is unsafe, for types that could change their descriptor; an OwnedFd cannot"
        )]
        let line = AsyncFd::with_interest(here, Interest::READABLE)?;
        Ok(Self::new(guard, stamp, before, line))
    }

    fn new(guard: Pid, stamp: OsString, before: Vec<Pid>, line: AsyncFd<OwnedFd>) -> Self {
        let inbox = VecDeque::new();
        Self { guard, stamp, before, line, group: None, inbox, over: false, unheard: 0, unheard_since: 0 }
    }

    /// Has the guard get ready, so that the command can start at once.
    pub(crate) fn prepare(&self) {
        self.order(Order::Prepare);
    }

    /// Has the command run: for a term, or for none; with these as its standard streams, and whatever tells
    /// others that it lives. Returns whether the guard can be counted on.
    #[must_use]
    pub(crate) fn start(
        &mut self,
        token: Option<u64>,
        kill_at: u64,
        streams: [BorrowedFd<'_>; 3],
        lifeline: Option<BorrowedFd<'_>>,
    ) -> bool {
        let descriptors: Vec<_> = streams.into_iter().chain(lifeline).collect();
        self.unheard = 0;
        // A line that is full or closed leads nowhere: without this the term would go by, and nothing run.
        let order = Order::Start { token, kill_at }.to_string();
        let is_sent = wire::send(self.line.get_ref(), &order, &descriptors).is_ok();
        self.wake();
        is_sent
    }

    /// Tells by when nothing may be left. Returns whether the guard can be counted on.
    #[must_use]
    pub(crate) fn kill_at(&mut self, moment: u64) -> bool {
        self.order(Order::KillAt(moment));
        self.collect();
        if self.unheard == 0 {
            self.unheard_since = now();
        }
        self.unheard += 1;
        if self.unheard > 1 {
            self.wake();
        }
        self.unheard <= PATIENCE.0 || now() - self.unheard_since < PATIENCE.1
    }

    /// Has the command asked to end.
    pub(crate) fn stop(&self) {
        self.order(Order::Stop);
        self.wake();
    }

    /// Has this signal sent to the command, if one runs.
    pub(crate) fn pass_on(&self, signal: i32) {
        self.order(Order::PassOn(signal));
    }

    /// Whether the guard is known to be gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.over
    }

    /// Has a guard go on that somebody may have stopped.
    pub(crate) fn wake(&self) {
        let _ = kill_process(self.guard, Signal::CONT);
    }

    /// What the guard tells next; `None` if it is gone. Nothing is lost if the future is dropped.
    pub(crate) async fn news(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.inbox.pop_front() {
                return Some(news);
            }
            if self.over {
                return None;
            }
            // First the word that there is something, then what it is: nothing slips in between.
            self.line.readable().await.ok()?.clear_ready();
            self.collect();
        }
    }

    /// Takes in all that the guard has told so far.
    fn collect(&mut self) {
        loop {
            match wire::next_news(self.line.get_ref()) {
                Heard::Nothing => return,
                Heard::Over => return self.over = true,
                Heard::PushDetail(News::Heard, _) => self.unheard = 0,
                Heard::PushDetail(news, _) => {
                    match news {
                        News::Started { pid } => self.group = Pid::from_raw(pid),
                        News::Exited(_) | News::Gone => self.group = None,
                        _ => {}
                    }
                    self.inbox.push_back(news);
                }
            }
        }
    }

    /// Lets go of the guard, and returns when it has left, or has not within so long: one that somebody has
    /// stopped leaves when it goes on.
    pub(crate) async fn part(&mut self, within: Duration) {
        if rustix::net::shutdown(self.line.get_ref(), Shutdown::Write).is_ok() {
            let _ = tokio::time::timeout(within, async { while self.news().await.is_some() {} }).await;
        }
    }

    /// Kills the guard and everything that it guards, and returns when nothing is left.
    pub(crate) async fn destroy(&self) {
        let _ = kill_process(self.guard, Signal::KILL);
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Removed when this is dropped, empty by then.
        let cgroup = Cgroup::of_guard(self.guard.as_raw_nonzero().get().unsigned_abs(), &self.stamp);
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(cgroup) = &cgroup {
                cgroup.kill();
            }
            let remaining = family::reap(family::FEW, |_, _| {});
            if remaining == Remaining::Unreaped {
                self.kill_ours(family::newest());
                tokio::task::yield_now().await;
                continue;
            }
            if !self.kill_ours(family::children()) {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Kills the guard and, once that is gone, what it guarded: those children of this process that have
    /// not been there before, as those of a shell that has become tenure were, are of another session, and
    /// are no other guard. Returns whether there was any.
    fn kill_ours(&self, children: impl IntoIterator<Item = Pid>) -> bool {
        let mut guards = guards();
        let is_ours =
            |child: &Pid| !self.before.contains(child) && !guards.contains(child) && !family::is_in_my_session(*child);
        let mut ours = children.into_iter().filter(|child| *child == self.guard || is_ours(child)).peekable();
        let any = ours.peek().is_some();
        family::kill(ours);
        if !any {
            guards.retain(|guard| *guard != self.guard);
        }
        any
    }

    fn order(&self, order: Order) {
        // A line that is full or closed shows in what is not answered.
        let _ = wire::send(self.line.get_ref(), &order.to_string(), &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// What tenure has of a guard whose end of the line is the other one.
    fn keeper() -> (Keeper, OwnedFd) {
        let (here, there) = wire::pair().unwrap();
        #[allow(deprecated, reason = "as above")]
        let line = AsyncFd::with_interest(here, Interest::READABLE).unwrap();
        (Keeper::new(getpid(), OsString::new(), Vec::new(), line), there)
    }

    fn start(keeper: &mut Keeper) -> bool {
        let streams = [io::stdin(), io::stdin(), io::stdin()];
        keeper.start(Some(7), 1, streams.each_ref().map(AsFd::as_fd), None)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_guard_that_is_gone_is_noticed_when_the_command_is_to_start() {
        let (mut keeper, guard) = keeper();
        assert!(start(&mut keeper));
        assert!(matches!(wire::next_order(&guard), Heard::PushDetail(Order::Start { token: Some(7), kill_at: 1 }, _)));
        drop(guard);
        assert!(!start(&mut keeper));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_guard_that_does_not_listen_is_noticed_when_the_command_is_to_start() {
        let (mut keeper, _guard) = keeper();
        while wire::send(keeper.line.get_ref(), &Order::Stop.to_string(), &[]).is_ok() {}
        assert!(!start(&mut keeper));
    }
}
