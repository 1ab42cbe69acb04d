//! The socket of a connection, and the relay between it and the driver.
//!
//! The driver opens its socket itself, reads from it only during a statement, and does not expose it. This store must
//! notice at once that the server ended a session, must set time-outs on the socket, and must duplicate it for a
//! lifeline. So the store opens the socket, and passes its bytes on to the driver through a port of this machine that
//! accepts one connection. TLS is between the driver and the server; the relay sees only encrypted bytes. Another
//! process of this machine that connects to the port before the driver does gets a connection to the server, which it
//! could also open itself, and the attempt of this store fails. The port stays bound, so that no other process gets the
//! connection of the driver. A unix socket of the server is not relayed: there the server can take the user of this
//! process for proof of who it is.

use std::io;
use std::net::{Ipv4Addr, Shutdown};
use std::sync::Arc;

use socket2::Socket;
use tenure_kit::Liveness;
use tenure_kit::socket::{Address, Keepalive};
use tokio::io::{copy, split};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// An open socket to a server, and the task that relays its bytes. Dropping it closes the connection.
pub(crate) struct Relay {
    /// The port of this machine that the driver connects to.
    pub(crate) port: u16,
    socket: Arc<Socket>,
    task: AbortHandle,
}

impl Relay {
    /// Connects to a server. `liveness` learns of the end of the connection.
    pub(crate) async fn open(address: &Address, liveness: Arc<Liveness>) -> io::Result<Self> {
        let (server, socket) = address.connect(&Keepalive::default()).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let closing = Closing { liveness, socket: socket.clone() };
        let task = tokio::spawn(async move {
            let _closing = closing;
            let Ok((driver, _)) = listener.accept().await else { return };
            let _ = driver.set_nodelay(true);
            let ((mut from_server, mut to_server), (mut from_driver, mut to_driver)) = (split(server), split(driver));
            // If one side ends, so does the other.
            tokio::select! {
                _ = copy(&mut from_server, &mut to_driver) => {}
                _ = copy(&mut from_driver, &mut to_server) => {}
            }
        });
        Ok(Self { port, socket, task: task.abort_handle() })
    }

    /// Closes the connection. The fate of a statement in flight is unknown.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }

    #[cfg(unix)]
    pub(crate) fn lifeline(&self) -> io::Result<tenure_core::Lifeline> {
        Ok(self.socket.try_clone()?.into())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Closes the connection when the relay ends, for whatever reason. A shutdown closes it even if another process has a
/// duplicate of the socket.
struct Closing {
    liveness: Arc<Liveness>,
    socket: Arc<Socket>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.liveness.close();
    }
}
