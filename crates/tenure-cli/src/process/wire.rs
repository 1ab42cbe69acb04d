//! What tenure and the guard say to each other: one short text a packet, with descriptors beside it
//! where there are any.

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

/// What tenure asks of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Get ready to run the command.
    Prepare,
    /// Run the command, for this term or for none. Standard input, output and error come with it, and the
    /// lifeline, if there is one.
    Start { token: Option<u64>, kill_at: u64 },
    /// Everything must be gone by this moment.
    KillAt(u64),
    /// Ask the command to end.
    Stop,
    /// Send this signal to the command.
    PassOn(i32),
}

/// What the guard tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It is there.
    Ready,
    /// The last moment was heard.
    Heard,
    /// The command's process is there, and leads the process group of this number.
    Started { pid: i32 },
    /// There is no command: it could not be executed.
    Failed { errno: i32 },
    /// The command has ended.
    Exited(Exit),
    /// Time is up: everything is being killed.
    Cut,
    /// Nothing is left of the command, nor of anything that it has started.
    Gone,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// The exit code that a shell would tell of it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code as u8,
            Self::Signal(signal) => 128u8.wrapping_add(signal as u8),
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
            Self::Prepare => f.write_str("prepare"),
            Self::Start { token: Some(token), kill_at } => write!(f, "start {token} {kill_at}"),
            Self::Start { token: None, kill_at } => write!(f, "start - {kill_at}"),
            Self::KillAt(moment) => write!(f, "kill-at {moment}"),
            Self::Stop => f.write_str("stop"),
            Self::PassOn(signal) => write!(f, "pass-on {signal}"),
        }
    }
}

impl Order {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["prepare"] => Self::Prepare,
            ["start", "-", kill_at] => Self::Start { token: None, kill_at: kill_at.parse().ok()? },
            ["start", token, kill_at] => {
                Self::Start { token: Some(token.parse().ok()?), kill_at: kill_at.parse().ok()? }
            }
            ["kill-at", moment] => Self::KillAt(moment.parse().ok()?),
            ["stop"] => Self::Stop,
            ["pass-on", signal] => Self::PassOn(signal.parse().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Heard => f.write_str("heard"),
            Self::Started { pid } => write!(f, "started {pid}"),
            Self::Failed { errno } => write!(f, "failed {errno}"),
            Self::Exited(Exit::Code(code)) => write!(f, "exited {code}"),
            Self::Exited(Exit::Signal(signal)) => write!(f, "killed {signal}"),
            Self::Cut => f.write_str("cut"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl News {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match words[..] {
            ["ready"] => Self::Ready,
            ["heard"] => Self::Heard,
            ["started", pid] => Self::Started { pid: pid.parse().ok()? },
            ["failed", errno] => Self::Failed { errno: errno.parse().ok()? },
            ["exited", code] => Self::Exited(Exit::Code(code.parse().ok()?)),
            ["killed", signal] => Self::Exited(Exit::Signal(signal.parse().ok()?)),
            ["cut"] => Self::Cut,
            ["gone"] => Self::Gone,
            _ => return None,
        })
    }
}

/// Two ends of a line. Neither is inherited by accident.
pub(crate) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Sends a packet. Never waits: a full line means that nobody listens at the other end.
pub(crate) fn send(line: impl AsFd, text: &str, descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| sendmsg(&line, &[IoSlice::new(text.as_bytes())], &mut control, flags)).map(drop)
}

/// A packet as it came in.
pub(crate) struct Packet {
    pub(crate) text: String,
    /// All of them or none: none if this process has too many files open for all.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Receives a packet; `None` when the other end is gone.
///
/// # Errors
/// `AGAIN` if there is none now and `flags` say not to wait.
pub(crate) fn receive(line: impl AsFd, flags: RecvFlags) -> rustix::io::Result<Option<Packet>> {
    let mut bytes = [0; 128];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message =
        rustix::io::retry_on_intr(|| recvmsg(&line, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags))?;
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
    Ok(Some(Packet { text: String::from_utf8_lossy(&bytes[..message.bytes]).into_owned(), descriptors }))
}

/// What came in from the other end of a line, without waiting.
pub(crate) enum Heard<T> {
    Nothing,
    PushDetail(T, Vec<OwnedFd>),
    /// The other end is gone, or does not speak this language.
    Over,
}

/// The next order, if there is one.
pub(crate) fn next_order(line: impl AsFd) -> Heard<Order> {
    next(line, Order::parse)
}

/// The next news, if there are any.
pub(crate) fn next_news(line: impl AsFd) -> Heard<News> {
    next(line, News::parse)
}

fn next<T>(line: impl AsFd, parse: impl Fn(&str) -> Option<T>) -> Heard<T> {
    match receive(line, RecvFlags::DONTWAIT) {
        Ok(Some(packet)) => parse(&packet.text).map_or(Heard::Over, |said| Heard::PushDetail(said, packet.descriptors)),
        Err(Errno::AGAIN) => Heard::Nothing,
        Ok(None) | Err(_) => Heard::Over,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let starts = [Some(7), None].map(|token| Order::Start { token, kill_at: u64::MAX });
        for order in [Order::Prepare, starts[0], starts[1], Order::KillAt(0), Order::Stop, Order::PassOn(10)] {
            assert_eq!(Order::parse(&order.to_string()), Some(order));
        }
        for news in [
            News::Ready,
            News::Heard,
            News::Started { pid: 4711 },
            News::Failed { errno: 2 },
            News::Exited(Exit::Code(3)),
            News::Exited(Exit::Signal(9)),
            News::Cut,
            News::Gone,
        ] {
            assert_eq!(News::parse(&news.to_string()), Some(news));
        }
        for text in ["", "start", "start x 1", "stop now", "kill-at"] {
            assert_eq!(Order::parse(text), None);
        }
    }

    #[test]
    fn descriptors_travel_along() {
        let (here, there) = pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(&here, &Order::Stop.to_string(), &[writer.as_fd()]).unwrap();
        drop(writer);
        let Heard::PushDetail(Order::Stop, mut descriptors) = next_order(&there) else { panic!("not heard") };
        std::fs::File::from(descriptors.pop().unwrap()).write_all(b"hello").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn the_end_of_the_other_side_is_heard_after_everything_it_said() {
        let (here, there) = pair().unwrap();
        assert!(matches!(next_order(&there), Heard::Nothing));
        send(&here, "stop", &[]).unwrap();
        drop(here);
        assert!(matches!(next_order(&there), Heard::PushDetail(Order::Stop, _)));
        assert!(matches!(next_order(&there), Heard::Over));
    }
}
