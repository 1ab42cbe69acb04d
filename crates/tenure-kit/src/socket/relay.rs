//! A relay between a socket and a driver that reads from its stream only during a statement.

use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use socket2::Socket;
use tokio::io::{copy, split};
use tokio::task::AbortHandle;

use super::{Address, Duplex, Keepalive};
use crate::Liveness;

/// An open socket to a server, and the task that passes its bytes on to a driver. Dropping it closes the connection.
///
/// A driver that reads only during a statement does not notice that the server has ended the session. The relay always
/// reads, and closes the [`Liveness`] at once. It also keeps a handle on the socket, which a `lifeline` duplicates. TLS is
/// between the driver and the server; the relay sees only encrypted bytes.
#[derive(Debug)]
pub struct Relay {
    socket: Arc<Socket>,
    task: AbortHandle,
}

impl Relay {
    /// Connects to a server. `driver` resolves to the other end of the stream that the driver uses. `liveness` learns of
    /// the end of the connection.
    ///
    /// # Errors
    /// The error of the system; [`unreachable()`](super::unreachable()) describes it.
    pub async fn open<D: Duplex>(
        address: &Address,
        liveness: Arc<Liveness>,
        driver: impl Future<Output = io::Result<D>> + Send + 'static,
    ) -> io::Result<Self> {
        let (server, socket) = address.connect(&Keepalive::default()).await?;
        let closing = Closing { liveness, socket: socket.clone() };
        let task = tokio::spawn(async move {
            let _closing = closing;
            let Ok(driver) = driver.await else { return };
            let ((mut from_server, mut to_server), (mut from_driver, mut to_driver)) = (split(server), split(driver));
            // If one side ends, so does the other.
            tokio::select! {
                _ = copy(&mut from_server, &mut to_driver) => {}
                _ = copy(&mut from_driver, &mut to_server) => {}
            }
        });
        Ok(Self { socket, task: task.abort_handle() })
    }

    /// Closes the connection. The fate of a statement in flight is unknown.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Returns a duplicate of the socket.
    ///
    /// # Errors
    /// If the system refuses to duplicate it.
    #[cfg(unix)]
    pub fn lifeline(&self) -> io::Result<tenure_core::Lifeline> {
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
