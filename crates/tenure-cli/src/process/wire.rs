//! The messages between tenure and the guard: one short text per packet, with file descriptors attached where a
//! message has any.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::WaitStatus;

use crate::profile;

/// An order from tenure to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Keep the last will of tenure's candidate, which the packet carries.
    KeepWill,
    /// The seat does not name this candidate, and will not: the last will is not to be executed.
    Settled,
    /// Prepare to run the command.
    Prepare,
    /// Run the hooks and the command, for the term with this token or outside of a term. `grace` is how long before
    /// `kill_at` the term ends for its work. The packet carries standard input, output and error, and the lifeline, if
    /// there is one.
    Start { token: Option<u64>, kill_at: u64, grace: u64 },
    /// Run only the hook for the end of this term, because the guard before this one has failed. The packet carries the
    /// same descriptors.
    OnStop { token: Option<u64>, kill_at: u64 },
    /// Kill everything by this moment.
    KillAt(u64),
    /// Ask the command to end.
    Stop,
    /// The lease cannot be renewed: ask the command to end, unless it can work until its deadline and still end in time.
    Expire,
    /// Kill the command now. The hook for the end still runs.
    Kill,
    /// Send this signal to the command.
    PassOn(i32),
}

/// An event that the guard reports to tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardEvent {
    /// The guard is running.
    Ready,
    /// The guard has received the last deadline.
    Acknowledged,
    /// The command's process exists, and leads the process group with this number.
    Started { pid: i32 },
    /// The command could not be executed.
    Failed { errno: i32 },
    /// The command has ended.
    Exited(Exit),
    /// A hook has ended. The end of the first hook is reported only if the command does not follow.
    HookEnded(Hook, Exit),
    /// The deadline has passed: the guard kills everything.
    TimeUp,
    /// The command and every process that it has started are gone.
    Gone,
}

/// A line of shell that is run at the start or the end of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    OnStart,
    OnStop,
}

impl Hook {
    /// Returns the name of its option, without the dashes.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OnStart => "on-start",
            Self::OnStop => "on-stop",
        }
    }
}

/// The way a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// Returns the exit code that a shell reports for it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited {code}"),
            Self::Signal(signal) => write!(f, "killed {signal}"),
        }
    }
}

impl From<WaitStatus> for Exit {
    fn from(status: WaitStatus) -> Self {
        match status.terminating_signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(status.exit_status().unwrap_or(0)),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeepWill => f.write_str("keep-will"),
            Self::Settled => f.write_str("settled"),
            Self::Prepare => f.write_str("prepare"),
            Self::Start { token, kill_at, grace } => write!(f, "start {} {kill_at} {grace}", text(*token)),
            Self::OnStop { token, kill_at } => write!(f, "on-stop {} {kill_at}", text(*token)),
            Self::KillAt(moment) => write!(f, "kill-at {moment}"),
            Self::Stop => f.write_str("stop"),
            Self::Expire => f.write_str("expire"),
            Self::Kill => f.write_str("kill"),
            Self::PassOn(signal) => write!(f, "pass-on {signal}"),
        }
    }
}

impl Order {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["keep-will"] => Self::KeepWill,
            ["settled"] => Self::Settled,
            ["prepare"] => Self::Prepare,
            ["start", of, kill_at, grace] => {
                Self::Start { token: token(of)?, kill_at: kill_at.parse().ok()?, grace: grace.parse().ok()? }
            }
            ["on-stop", of, kill_at] => Self::OnStop { token: token(of)?, kill_at: kill_at.parse().ok()? },
            ["kill-at", moment] => Self::KillAt(moment.parse().ok()?),
            ["stop"] => Self::Stop,
            ["expire"] => Self::Expire,
            ["kill"] => Self::Kill,
            ["pass-on", signal] => Self::PassOn(signal.parse().ok()?),
            _ => return None,
        })
    }
}

/// Formats a token, or the absence of one.
fn text(token: Option<u64>) -> String {
    token.map_or("-".to_owned(), |token| token.to_string())
}

/// Parses a token, or the absence of one. The outer `None` is an error.
fn token(text: &str) -> Option<Option<u64>> {
    if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
}

/// Parses the way a command has ended.
fn exit(word: &str, number: &str) -> Option<Exit> {
    let number = number.parse().ok()?;
    match word {
        "exited" => Some(Exit::Code(number)),
        "killed" => Some(Exit::Signal(number)),
        _ => None,
    }
}

impl fmt::Display for GuardEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Acknowledged => f.write_str("acknowledged"),
            Self::Started { pid } => write!(f, "started {pid}"),
            Self::Failed { errno } => write!(f, "failed {errno}"),
            Self::Exited(exit) => exit.fmt(f),
            Self::HookEnded(hook, exit) => write!(f, "{} {exit}", hook.name()),
            Self::TimeUp => f.write_str("time-up"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl GuardEvent {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["ready"] => Self::Ready,
            ["acknowledged"] => Self::Acknowledged,
            ["started", pid] => Self::Started { pid: pid.parse().ok()? },
            ["failed", errno] => Self::Failed { errno: errno.parse().ok()? },
            [word, number] => Self::Exited(exit(word, number)?),
            ["on-start", word, number] => Self::HookEnded(Hook::OnStart, exit(word, number)?),
            ["on-stop", word, number] => Self::HookEnded(Hook::OnStop, exit(word, number)?),
            ["time-up"] => Self::TimeUp,
            ["gone"] => Self::Gone,
            _ => return None,
        })
    }
}

/// Creates a connection and returns its two ends. Child processes do not inherit them.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a packet without blocking. It fails if the connection is full, which means that the other end does not read.
pub(crate) fn send(socket: impl AsFd, text: &str, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    profile::step("sends", text);
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(text.as_bytes())], &mut control, flags)).map(drop)
}

/// A received packet.
pub(crate) struct Packet {
    pub(crate) text: String,
    /// All descriptors of the packet, or none if this process has too many open files to receive all of them.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Receives a packet; `None` if the other end is closed.
///
/// # Errors
/// `AGAIN` if there is no packet and `flags` contain `DONTWAIT`.
pub(crate) fn receive(socket: impl AsFd, flags: RecvFlags) -> rustix::io::Result<Option<Packet>> {
    let mut bytes = [0; 128];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut receive =
        || rustix::io::retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags));
    let message = match receive() {
        // The other end was closed before it had read all packets. The kernel reports that once, and ahead of the packets
        // that are still to be read here.
        Err(Errno::CONNRESET) => receive()?,
        received => received?,
    };
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    let cut = message.flags.contains(ReturnFlags::CTRUNC);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if cut {
        descriptors.clear();
    }
    let text = String::from_utf8_lossy(&bytes[..message.bytes]).into_owned();
    profile::step("receives", &text);
    Ok(Some(Packet { text, descriptors }))
}

/// The result of receiving from a connection without blocking.
pub(crate) enum Received<T> {
    Nothing,
    Message(T, Vec<OwnedFd>),
    /// The other end is closed, or sent a message that is not understood.
    Closed,
}

/// Receives the next order, without blocking.
pub(crate) fn next_order(socket: impl AsFd) -> Received<Order> {
    next(socket, Order::parse)
}

/// Receives the next event, without blocking.
pub(crate) fn next_event(socket: impl AsFd) -> Received<GuardEvent> {
    next(socket, GuardEvent::parse)
}

fn next<T>(socket: impl AsFd, parse: impl Fn(&str) -> Option<T>) -> Received<T> {
    match receive(socket, RecvFlags::DONTWAIT) {
        Ok(Some(packet)) => {
            parse(&packet.text).map_or(Received::Closed, |said| Received::Message(said, packet.descriptors))
        }
        Err(Errno::AGAIN) => Received::Nothing,
        Ok(None) | Err(_) => Received::Closed,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn packets_are_received_although_the_other_end_was_closed_with_packets_unread() {
        let (tenure, guard) = pair().unwrap();
        send(&tenure, &Order::Settled.to_string(), &[]).unwrap();
        send(&guard, &GuardEvent::Ready.to_string(), &[]).unwrap();
        drop(tenure);
        assert!(matches!(next_order(&guard), Received::Message(Order::Settled, _)));
        assert!(matches!(next_order(&guard), Received::Closed));
    }

    #[test]
    fn every_message_is_parsed_as_it_was_written() {
        let starts = [Some(7), None].map(|token| Order::Start { token, kill_at: u64::MAX, grace: 3 });
        let on_stop = Order::OnStop { token: Some(7), kill_at: 9 };
        for order in [
            Order::KeepWill,
            Order::Settled,
            Order::Prepare,
            starts[0],
            starts[1],
            on_stop,
            Order::KillAt(0),
            Order::Stop,
            Order::Expire,
            Order::Kill,
            Order::PassOn(10),
        ] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for event in [
            GuardEvent::Ready,
            GuardEvent::Acknowledged,
            GuardEvent::Started { pid: 4711 },
            GuardEvent::Failed { errno: 2 },
            GuardEvent::Exited(Exit::Code(3)),
            GuardEvent::Exited(Exit::Signal(9)),
            GuardEvent::HookEnded(Hook::OnStart, Exit::Code(1)),
            GuardEvent::HookEnded(Hook::OnStop, Exit::Signal(9)),
            GuardEvent::TimeUp,
            GuardEvent::Gone,
        ] {
            assert_eq!(GuardEvent::parse(&event.to_string()), Some(event));
        }
        for text in ["", "start", "start x 1 1", "start 1 1", "stop now", "kill-at"] {
            assert_eq!(Order::parse(text), None);
        }
    }

    #[test]
    fn descriptors_are_sent_with_a_message() {
        let (here, there) = pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(&here, &Order::Stop.to_string(), &[writer.as_fd()]).unwrap();
        drop(writer);
        let Received::Message(Order::Stop, mut descriptors) = next_order(&there) else {
            panic!("no order was received")
        };
        std::fs::File::from(descriptors.pop().unwrap()).write_all(b"hello").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn the_close_of_the_other_end_is_received_after_all_its_messages() {
        let (here, there) = pair().unwrap();
        assert!(matches!(next_order(&there), Received::Nothing));
        send(&here, "stop", &[]).unwrap();
        drop(here);
        assert!(matches!(next_order(&there), Received::Message(Order::Stop, _)));
        assert!(matches!(next_order(&there), Received::Closed));
    }
}
