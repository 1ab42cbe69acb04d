//! The socket under a connection.
//!
//! The driver encrypts and logs in by itself. Two things it does not do: it takes the first word of another protocol for
//! a server that does not encrypt, or waits for the rest of a message that never comes; and it closes only its own
//! handle on the socket.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket of any kind.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// What the other end says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A message of a log-in in plain.
    Plain,
    /// `S` or `N`: whether it encrypts.
    MayEncrypt,
    /// The same, and `N` is not good enough.
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

/// What an error says if the other end speaks another protocol.
pub(crate) const NOT_POSTGRES: &str = "what answers there does not speak PostgreSQL's protocol";

/// A socket that is listened to until the other end has said its first word.
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
        // Another process may have the socket as a lifeline, and then closing it here would leave the session
        // to the server. Whenever this process itself gives up a connection, the server is told at once.
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
    fn another_protocol_is_noticed_at_its_first_word() {
        for answer in [&b"HTTP/1.1 400 Bad Request"[..], b"-ERR unknown command", b"\x15\x03\x01"] {
            for first in [First::Plain, First::MayEncrypt, First::MustEncrypt] {
                let error = first.check(answer[0]).unwrap_err();
                assert!(error.to_string().contains(NOT_POSTGRES), "{first:?} {answer:?}: {error}");
            }
        }
        assert!(First::Plain.check(b"SSH-2.0-x"[0]).is_err());
    }

    #[test]
    fn a_server_that_does_not_encrypt_is_refused_where_it_must() {
        assert!(First::MayEncrypt.check(b'N').is_ok() && First::MustEncrypt.check(b'S').is_ok());
        assert_eq!(First::MustEncrypt.check(b'N').unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
