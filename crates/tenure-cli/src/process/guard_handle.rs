//! Tenure's side of a guard: starts the guard, sends it orders, and kills the command if the guard fails.
//!
//! The command has one guard, and the health command, if there is one, has another. A handle kills only what its
//! own guard guarded. The processes of a living guard are descendants of that guard. So a process that has become
//! a child of this one was left behind by a guard that is dead.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::Cgroup;
use super::family::Remaining;
use super::plan::Plan;
use super::wire::{GuardEvent, Order, Received};
use super::{GUARD, THIS_PROGRAM, family, now, wire};
use crate::supervisor;

/// A guard, its connection and its state.
pub(crate) struct GuardHandle {
    pid: Pid,
    /// Names the control group of the guard, together with its process id.
    stamp: OsString,
    /// The children that this process had before it started the guard.
    before: Vec<Pid>,
    socket: Arc<AsyncFd<OwnedFd>>,
    /// The process group of the command or hook, while it runs. Later another group can have its number.
    group: Arc<Mutex<Option<Pid>>>,
    /// Events that were received and not yet returned.
    inbox: VecDeque<GuardEvent>,
    /// The guard has closed its end of the connection.
    is_closed: bool,
    /// The number of deadlines in a row that the guard has not acknowledged, and when the first of them was sent.
    unacknowledged: u32,
    unacknowledged_since: u64,
}

/// A guard has failed if it leaves more than this many deadlines in a row unacknowledged, for at least this many
/// nanoseconds. A deadline is sent with each renewal, so every machine that renews in time meets this limit.
const PATIENCE: (u32, u64) = (2, 1_000_000_000);

/// The lowest descriptor for the connection to the guard: above those that a store opens.
const HIGH: i32 = 500;

/// Makes room for the connections to guards in the table of descriptors. Call this while the process has one thread: with
/// several, the kernel needs about 10 ms to enlarge the table (an RCU grace period).
pub(crate) fn make_room() {
    // If this fails, starting a guard takes longer.
    let _ = fcntl_dupfd_cloexec(io::stdin(), HIGH);
}

/// The guards of this process. The lock is held while a guard is started, and while the children of this process are
/// searched for processes to kill. So no handle mistakes another handle's guard for a process that was left behind.
static GUARDS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn guards() -> MutexGuard<'static, Vec<Pid>> {
    lock(&GUARDS)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl GuardHandle {
    /// Starts a guard for this plan. The guard waits for orders and costs next to nothing meanwhile.
    ///
    /// Call this on a thread that lives as long as the guard is needed: the kernel signals the death of the parent
    /// when that thread ends.
    pub(crate) fn start_guard(plan: &Plan, variables: &[(&str, &str)]) -> io::Result<Self> {
        // If the guard dies, the processes that it guarded become children of this process.
        family::adopt_orphans()?;
        let mut guards = guards();
        let before = family::children();
        let stamp = OsString::from(now().to_string());
        let (here, there) = wire::pair()?;
        let mut program = Command::new(THIS_PROGRAM);
        for variable in supervisor::VARIABLES {
            program.env_remove(variable);
        }
        let child = program
            .arg0("tenure")
            .arg(GUARD)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(&stamp)
            .args(plan.to_args())
            // It can contain a password, which the command must not see.
            .env_remove("TENURE_STORE")
            .envs(variables.iter().copied())
            .stdin(Stdio::from(there))
            .stdout(Stdio::null())
            .spawn()?;
        let guard = Pid::from_child(&child);
        guards.push(guard);
        drop(guards);
        // When this process is killed, the kernel closes its descriptors from the highest down, and closing some
        // of them (inotify) is slow. With a high number the connection is closed early, so the guard reacts at once.
        let here = fcntl_dupfd_cloexec(&here, HIGH).unwrap_or(here);
        #[allow(
            deprecated,
            reason = "its replacement is unsafe, for types that can change their descriptor; an OwnedFd cannot"
        )]
        let socket = AsyncFd::with_interest(here, Interest::READABLE)?;
        Ok(Self::new(guard, stamp, before, socket))
    }

    fn new(pid: Pid, stamp: OsString, before: Vec<Pid>, socket: AsyncFd<OwnedFd>) -> Self {
        let inbox = VecDeque::new();
        Self {
            pid,
            stamp,
            before,
            socket: Arc::new(socket),
            group: Arc::default(),
            inbox,
            is_closed: false,
            unacknowledged: 0,
            unacknowledged_since: 0,
        }
    }

    /// Hands the last will of this candidate to the guard, which executes it if this process dies.
    pub(crate) fn keep_will(&self, will: BorrowedFd<'_>) {
        // If this fails, the seat of a dead process becomes free when its lease expires.
        let _ = wire::send(self.socket.get_ref(), &Order::KeepWill.to_string(), &[will]);
    }

    /// Tells the guard that no seat names this candidate any more, so there is no will to execute.
    pub(crate) fn settled(&self) {
        self.order(Order::Settled);
    }

    /// Tells the guard to prepare the command, so that it can start at once.
    pub(crate) fn prepare(&self) {
        self.order(Order::Prepare);
    }

    /// Starts the work of a term (`Order::Start`, or `Order::OnStop`), with these standard streams, and with the
    /// lifeline that keeps the seat. Returns whether the guard still works.
    #[must_use]
    pub(crate) fn start(
        &mut self,
        order: Order,
        streams: [BorrowedFd<'_>; 3],
        lifeline: Option<BorrowedFd<'_>>,
    ) -> bool {
        let descriptors: Vec<_> = streams.into_iter().chain(lifeline).collect();
        self.unacknowledged = 0;
        // A connection that is full or closed means that the guard has failed. If this were ignored, the term would
        // pass without a command.
        let is_sent = wire::send(self.socket.get_ref(), &order.to_string(), &descriptors).is_ok();
        self.wake();
        is_sent
    }

    /// Sets the deadline by which the guard kills everything. Returns whether the guard still works.
    #[must_use]
    pub(crate) fn kill_at(&mut self, moment: u64) -> bool {
        self.order(Order::KillAt(moment));
        self.collect();
        if self.unacknowledged == 0 {
            self.unacknowledged_since = now();
        }
        self.unacknowledged += 1;
        if self.unacknowledged > 1 {
            self.wake();
        }
        self.unacknowledged <= PATIENCE.0 || now() - self.unacknowledged_since < PATIENCE.1
    }

    /// Asks the command to end (SIGTERM).
    pub(crate) fn stop(&self) {
        self.order(Order::Stop);
        self.wake();
    }

    /// Asks the command to end, because the lease cannot be renewed. A command that does not handle SIGTERM works until
    /// its deadline.
    pub(crate) fn expire(&self) {
        self.order(Order::Expire);
        self.wake();
    }

    /// Kills the command. The hook for the end still runs.
    pub(crate) fn kill(&self) {
        self.order(Order::Kill);
        self.wake();
    }

    /// Forwards a signal to the command, if it runs.
    pub(crate) fn pass_on(&self, signal: i32) {
        self.orders().pass_on(signal);
    }

    /// Returns a sender of orders to this guard.
    pub(crate) fn orders(&self) -> Orders {
        Orders { socket: self.socket.clone(), group: self.group.clone() }
    }

    /// Returns whether the guard has closed its connection, which it does only when it ends.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_closed
    }

    /// Resumes the guard, in case it is stopped (SIGSTOP).
    pub(crate) fn wake(&self) {
        let _ = kill_process(self.pid, Signal::CONT);
    }

    /// Returns the guard's next event, or `None` if the guard is gone. Cancel safe: no event is lost if the future is
    /// dropped.
    pub(crate) async fn event(&mut self) -> Option<GuardEvent> {
        loop {
            if let Some(event) = self.inbox.pop_front() {
                return Some(event);
            }
            if self.is_closed {
                return None;
            }
            // Readiness is cleared before the events are read, so an event in between sets it again.
            self.socket.readable().await.ok()?.clear_ready();
            self.collect();
        }
    }

    /// Returns whether the guard has sent an event, or is gone. Unlike [`event`](Self::event), it does not depend on the
    /// reactor, which may not have noticed an event yet: for example after this process was stopped.
    pub(crate) fn has_event(&mut self) -> bool {
        self.collect();
        self.is_closed || !self.inbox.is_empty()
    }

    /// Reads all events that the guard has sent so far.
    fn collect(&mut self) {
        loop {
            match wire::next_event(self.socket.get_ref()) {
                Received::Nothing => return,
                Received::Closed => return self.is_closed = true,
                Received::Message(GuardEvent::Acknowledged, _) => self.unacknowledged = 0,
                Received::Message(event, _) => {
                    match event {
                        GuardEvent::Started { pid } => *lock(&self.group) = Pid::from_raw(pid),
                        GuardEvent::Exited(_)
                        | GuardEvent::HookEnded(..)
                        | GuardEvent::Failed { .. }
                        | GuardEvent::Gone => *lock(&self.group) = None,
                        _ => {}
                    }
                    self.inbox.push_back(event);
                }
            }
        }
    }

    /// Closes the connection and waits at most this long for the guard to exit. A guard that is stopped (SIGSTOP)
    /// exits when it is resumed.
    pub(crate) async fn close(&mut self, within: Duration) {
        if rustix::net::shutdown(self.socket.get_ref(), Shutdown::Write).is_ok() {
            let _ = tokio::time::timeout(within, async { while self.event().await.is_some() {} }).await;
        }
    }

    /// Kills the guard and every process that it guards, and returns when all of them are gone.
    pub(crate) async fn destroy(&self) {
        let _ = kill_process(self.pid, Signal::KILL);
        if let Some(group) = *lock(&self.group) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Dropping this removes the control group, which is empty by then.
        let cgroup = Cgroup::of_guard(self.pid.as_raw_nonzero().get().unsigned_abs(), &self.stamp);
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(cgroup) = &cgroup {
                cgroup.kill();
            }
            let remaining = family::reap(family::SMALL_BATCH, |_, _| {});
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

    /// Kills the guard and, once the guard is dead, the processes that it guarded. Returns whether there were any.
    ///
    /// These are the children of this process that are in another session, that are not another handle's guard, and
    /// that this process did not have before it started the guard: a shell that executes tenure leaves its children.
    fn kill_ours(&self, children: impl IntoIterator<Item = Pid>) -> bool {
        let mut guards = guards();
        let is_ours =
            |child: &Pid| !self.before.contains(child) && !guards.contains(child) && !family::is_in_my_session(*child);
        let mut ours = children.into_iter().filter(|child| *child == self.pid || is_ours(child)).peekable();
        let any = ours.peek().is_some();
        family::kill(ours);
        if !any {
            guards.retain(|guard| *guard != self.pid);
        }
        any
    }

    fn order(&self, order: Order) {
        self.orders().send(order);
    }
}

/// Sends orders to a guard.
pub(crate) struct Orders {
    socket: Arc<AsyncFd<OwnedFd>>,
    group: Arc<Mutex<Option<Pid>>>,
}

impl Orders {
    /// Forwards a signal to the command, if it runs.
    pub(crate) fn pass_on(&self, signal: i32) {
        self.send(Order::PassOn(signal));
    }

    /// Returns whether the command or hook runs and is not stopped.
    pub(crate) fn command_runs(&self) -> bool {
        lock(&self.group).is_some_and(family::runs)
    }

    fn send(&self, order: Order) {
        // If the connection is full or closed, the missing acknowledgement shows it.
        let _ = wire::send(self.socket.get_ref(), &order.to_string(), &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::wire::{Exit, Hook};
    use super::*;

    /// Returns a handle, and the guard's end of its connection.
    fn handle() -> (GuardHandle, OwnedFd) {
        let (here, there) = wire::pair().unwrap();
        #[allow(deprecated, reason = "as above")]
        let socket = AsyncFd::with_interest(here, Interest::READABLE).unwrap();
        (GuardHandle::new(getpid(), OsString::new(), Vec::new(), socket), there)
    }

    const ORDER: Order = Order::Start { token: Some(7), kill_at: 1, grace: 0 };

    fn start(handle: &mut GuardHandle) -> bool {
        let streams = [io::stdin(), io::stdin(), io::stdin()];
        handle.start(ORDER, streams.each_ref().map(AsFd::as_fd), None)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_group_of_a_hook_that_has_ended_is_not_killed_later() {
        let (mut handle, guard) = handle();
        for (event, group) in [
            (GuardEvent::Started { pid: 4711 }, Pid::from_raw(4711)),
            (GuardEvent::HookEnded(Hook::OnStart, Exit::Code(0)), None),
            (GuardEvent::Started { pid: 4712 }, Pid::from_raw(4712)),
            (GuardEvent::Failed { errno: 2 }, None),
        ] {
            wire::send(&guard, &event.to_string(), &[]).unwrap();
            handle.collect();
            assert_eq!(*lock(&handle.group), group, "{event:?}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_event_counts_although_the_reactor_has_not_noticed_it() {
        let (mut handle, guard) = handle();
        assert!(!handle.has_event());
        wire::send(&guard, &GuardEvent::Gone.to_string(), &[]).unwrap();
        assert!(handle.has_event());
        assert_eq!(handle.event().await, Some(GuardEvent::Gone));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn starting_the_command_fails_if_the_guard_is_gone() {
        let (mut handle, guard) = handle();
        assert!(start(&mut handle));
        assert!(matches!(wire::next_order(&guard), Received::Message(ORDER, _)));
        drop(guard);
        assert!(!start(&mut handle));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn starting_the_command_fails_if_the_guard_does_not_read_its_orders() {
        let (mut handle, _guard) = handle();
        while wire::send(handle.socket.get_ref(), &Order::Stop.to_string(), &[]).is_ok() {}
        assert!(!start(&mut handle));
    }
}
