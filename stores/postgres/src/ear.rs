//! Hears which process the other end says it is.
//!
//! A PostgreSQL server tells every new connection the id of the process that serves it. A pooler in
//! between makes one up. So, if that id is not what `pg_backend_pid()` says, statements may be served
//! by one session now and by another the next time. The driver keeps the id to itself; here it is
//! heard on its way in.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A stream that is plain or already encrypted.
pub(crate) trait Duplex: TlsStream + Send + Unpin {}

impl<S: TlsStream + Send + Unpin> Duplex for S {}

/// The process that the other end says it is, once it has.
pub(crate) type ProcessId = Arc<OnceLock<i32>>;

/// A stream that is listened to until the other end has said which process it is.
pub(crate) struct Ear {
    stream: Box<dyn Duplex>,
    messages: Option<Messages>,
    process: ProcessId,
    socket: Arc<Socket>,
}

impl Ear {
    /// `socket` is a second handle on the socket of the stream.
    pub(crate) fn new(stream: Box<dyn Duplex>, socket: Arc<Socket>) -> (Self, ProcessId) {
        let process = ProcessId::default();
        (Self { stream, messages: Some(Messages::default()), process: process.clone(), socket }, process)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // Another process may have the socket as a lifeline, and then closing it here would leave the session
        // to the server. Whenever this process itself gives up a connection, the server is told at once.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// For the driver, encryption is done already.
impl<S> TlsConnect<S> for Ear {
    type Stream = Self;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self>>;

    fn connect(self, _: S) -> Self::Future {
        std::future::ready(Ok(self))
    }
}

impl TlsStream for Ear {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

impl AsyncRead for Ear {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let (Poll::Ready(Ok(())), Some(messages)) = (&polled, &mut self.messages) {
            match messages.hear(&buf.filled()[before..]) {
                Heard::More => {}
                Heard::Process(process) => {
                    let _ = self.process.set(process);
                    self.messages = None;
                }
                Heard::Nonsense => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, NOT_POSTGRES)));
                }
            }
        }
        polled
    }
}

/// What an error says if the other end speaks another protocol.
pub(crate) const NOT_POSTGRES: &str = "what answers there does not speak PostgreSQL's protocol";

impl AsyncWrite for Ear {
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

/// A stream in plain.
pub(crate) struct Plain<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Plain<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Plain<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Plain<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The messages of a start-up, byte by byte: a letter, a length of four bytes that counts itself, and
/// a body.
#[derive(Default)]
struct Messages {
    head: Vec<u8>,
    /// Bytes of the body that are still to come.
    left: u32,
    body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    More,
    Process(i32),
    Nonsense,
}

impl Messages {
    fn hear(&mut self, bytes: &[u8]) -> Heard {
        for &byte in bytes {
            if self.head.len() < 5 {
                self.head.push(byte);
                // Authentication, an error, a notice, a setting, a version; then the key, then ready.
                if !b"RENSvKZ".contains(&self.head[0]) {
                    return Heard::Nonsense;
                }
                let Some(length) = self.head[1..].first_chunk() else { continue };
                let length = u32::from_be_bytes(*length);
                if !(4..1 << 20).contains(&length) {
                    return Heard::Nonsense;
                }
                self.left = length - 4;
            } else {
                self.left -= 1;
                if self.head[0] == b'K' {
                    self.body.push(byte);
                }
            }
            if self.left == 0 {
                if let Some(process) = self.body.first_chunk() {
                    return Heard::Process(i32::from_be_bytes(*process));
                }
                self.head.clear();
            }
        }
        Heard::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &[u8] = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x09a\0b\0\0K\0\0\0\x0c\0\0\x10\x01abcdZ\0\0\0\x05I";

    #[test]
    fn the_process_is_heard_however_the_bytes_come_in() {
        for size in 1..START.len() {
            let mut messages = Messages::default();
            let heard = START.chunks(size).map(|bytes| messages.hear(bytes)).find(|heard| *heard != Heard::More);
            assert_eq!(heard, Some(Heard::Process(0x1001)), "{size} bytes at a time");
        }
    }

    #[test]
    fn another_protocol_is_noticed_at_its_first_words() {
        for answer in [&b"HTTP/1.1 400 Bad Request"[..], b"-ERR unknown command", b"SSH-2.0-x", b"\x15\x03\x01"] {
            assert_eq!(Messages::default().hear(answer), Heard::Nonsense, "{answer:?}");
        }
    }
}
