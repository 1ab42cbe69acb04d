//! A minimal client of the Redis protocol, for tests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The reply of a Redis server to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A string, which the server sent as a simple or bulk string.
    Text(String),
    /// An error, with the message of the server.
    Error(String),
    /// An integer, such as the reply to `INCR`.
    Number(i64),
    /// A null reply, for a value that does not exist.
    Nil,
    /// An array of replies, such as the reply to `CLUSTER SLOTS`.
    List(Vec<Reply>),
}

impl Reply {
    /// Returns the text of a string or an error; empty for other replies.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Error(text) => text,
            _ => "",
        }
    }
}

/// Sends a command to a server on this machine, on a new connection.
pub(super) fn ask(port: u16, command: &[&str]) -> io::Result<Reply> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_nodelay(true)?;
    let mut request = format!("*{}\r\n", command.len());
    for word in command {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    (&stream).write_all(request.as_bytes())?;
    read(&mut BufReader::new(stream))
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "the reply does not follow the Redis protocol");
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or_else(bad)?;
    let number = || rest.parse::<i64>().map_err(|_| bad());
    Ok(match kind {
        "+" => Reply::Text(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Number(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                stream.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
        },
        "*" => match usize::try_from(number()?) {
            Err(_) => Reply::Nil,
            Ok(length) => Reply::List((0..length).map(|_| read(stream)).collect::<io::Result<_>>()?),
        },
        _ => return Err(bad()),
    })
}
