//! Tells a supervisor how this process fares: systemd (`Type=notify`) through a socket, s6 through a descriptor.
//!
//! `tenure run` is ready when its candidate stands, which means that the store has answered. The status line names the
//! leader. Nothing here fails or blocks: a supervisor that does not listen gets no message.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tenure::{Candidate, EventKind};

use crate::commands::leader_words;
use crate::failure::{Failure, error_words};

/// The variables of systemd's protocol. They are removed from the environment of the command: its messages would be
/// taken for those of `tenure`.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The supervisor of this process, if it has one.
pub(crate) struct Supervisor {
    systemd: Option<(UnixDatagram, SocketAddr)>,
    /// The pipe that expects a newline.
    ready: Option<File>,
    is_ready: bool,
    /// The part of the status line about the leader.
    standing: String,
}

impl Supervisor {
    /// Finds the supervisor of this process.
    ///
    /// # Errors
    /// If the descriptor of `--ready-fd` is not open for writing.
    pub(crate) fn new(ready_fd: Option<u32>) -> Result<Self, Failure> {
        let ready = ready_fd.map(|fd| {
            // The program that started this one owns the descriptor, so this opens the same pipe again.
            // A file keeps what it has.
            File::options().append(true).open(format!("/proc/self/fd/{fd}")).map_err(|error| {
                Failure::new(format!(
                    "--ready-fd {fd} is not open for writing ({error}); pass the descriptor of a pipe"
                ))
            })
        });
        Ok(Self { systemd: systemd(), ready: ready.transpose()?, is_ready: false, standing: String::new() })
    }

    /// Reports that the candidate stands, once.
    pub(crate) fn ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.send("READY=1");
            if let Some(mut pipe) = self.ready.take() {
                let _ = pipe.write_all(b"\n");
            }
        }
    }

    /// Updates the status line. `me` is the candidate of this process.
    pub(crate) fn event(&mut self, event: &EventKind, me: &Candidate) {
        let standing = match event {
            EventKind::Error { error } => {
                return self.send_status(&format!("store error, retrying: {}", error_words(error)));
            }
            EventKind::Recovered => return self.send_status(&self.standing),
            EventKind::BecameLeader { term } => format!("leading (term {})", term.token()),
            EventKind::LeaderChanged { leader: Some(leader), .. } if leader.candidate == *me => return,
            EventKind::LeaderChanged { leader: Some(leader), .. } => format!("led by {}", leader_words(leader)),
            EventKind::LeaderChanged { leader: None, .. } => "no leader".to_owned(),
            _ => return,
        };
        self.standing = standing;
        self.send_status(&self.standing);
    }

    /// Reports that this process was asked to leave.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports at regular intervals that this process is alive, if systemd asks for it. Never returns.
    pub(crate) fn watchdog(&self) -> impl Future<Output = Infallible> + use<> {
        let watched = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        let interval = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let interval = interval.filter(|micros| watched && *micros > 0);
        let systemd =
            self.systemd.as_ref().and_then(|(socket, address)| Some((socket.try_clone().ok()?, address.clone())));
        async move {
            let (Some(interval), Some((socket, address))) = (interval.map(Duration::from_micros), systemd) else {
                return std::future::pending().await;
            };
            loop {
                let _ = socket.send_to_addr(b"WATCHDOG=1", &address);
                tokio::time::sleep(interval / 2).await;
            }
        }
    }

    fn send_status(&self, status: &str) {
        self.send(&format!("STATUS={}", status.replace('\n', " ")));
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.systemd {
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

/// Returns the socket of systemd, if it listens to this process.
fn systemd() -> Option<(UnixDatagram, SocketAddr)> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name).ok()?,
        None => SocketAddr::from_pathname(&name).ok()?,
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, address))
}
