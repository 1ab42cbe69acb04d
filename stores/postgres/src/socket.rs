//! The socket under a connection.
//!
//! The driver performs the TLS handshake and the log-in. This wrapper adds two things that it lacks. It checks
//! the first byte that the server sends: the driver takes a server of another protocol for one without TLS, or
//! waits for the rest of a message that never comes. And it shuts the socket down when it is dropped: the driver
//! closes only its own handle.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::Socket;
use tenure_kit::socket::Duplex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first reply that the client expects from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A message of the log-in, without encryption.
    Plain,
    /// `S` or `N`: whether the server supports TLS.
    MayEncrypt,
    /// `S`: the server must support TLS.
    MustEncrypt,
}

impl First {
    fn check(self, byte: u8) -> io::Result<()> {
        match (self, byte) {
            // Authentication, an error, a notice, a version.
            (Self::Plain, b'R' | b'E' | b'N' | b'v') => Ok(()),
            (Self::MayEncrypt | Self::MustEncrypt, b'S') | (Self::MayEncrypt, b'N') => Ok(()),
            (Self::MustEncrypt, b'N') => Err(io::ErrorKind::Unsupported.into()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, NOT_POSTGRES)),
        }
    }
}

/// The error if the server speaks another protocol.
pub(crate) const NOT_POSTGRES: &str = "the server does not speak the PostgreSQL protocol";

/// A socket that checks the first byte it receives.
pub(crate) struct CheckedSocket {
    stream: Box<dyn Duplex>,
    first: Option<First>,
    /// A second handle on the same socket.
    socket: Arc<Socket>,
}

impl CheckedSocket {
    pub(crate) fn new(stream: Box<dyn Duplex>, first: First, socket: Arc<Socket>) -> Self {
        Self { stream, first: Some(first), socket }
    }
}

impl Drop for CheckedSocket {
    fn drop(&mut self) {
        // If another process has a duplicate of the socket as a lifeline, closing the socket here would not end the
        // session. A shutdown does: the server notices at once that this process gave up the connection.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl AsyncRead for CheckedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(byte) = buf.filled().get(before)
            && let Some(Err(error)) = self.first.take().map(|first| first.check(*byte))
        {
            return Poll::Ready(Err(error));
        }
        polled
    }
}

impl AsyncWrite for CheckedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_another_protocol_is_detected_by_its_first_byte() {
        for answer in [&b"HTTP/1.1 400 Bad Request"[..], b"-ERR unknown command", b"\x15\x03\x01"] {
            for first in [First::Plain, First::MayEncrypt, First::MustEncrypt] {
                let error = first.check(answer[0]).unwrap_err();
                assert!(error.to_string().contains(NOT_POSTGRES), "{first:?} {answer:?}: {error}");
            }
        }
        assert!(First::Plain.check(b"SSH-2.0-x"[0]).is_err());
    }

    #[test]
    fn a_server_without_tls_is_rejected_where_tls_is_required() {
        assert!(First::MayEncrypt.check(b'N').is_ok() && First::MustEncrypt.check(b'S').is_ok());
        assert_eq!(First::MustEncrypt.check(b'N').unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
