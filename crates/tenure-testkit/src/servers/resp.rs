//! Just enough of Redis' protocol to ask a server something from a test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Text.
    Text(String),
    /// An error, in the server's words.
    Error(String),
    /// A number.
    Number(i64),
    /// Nothing.
    Nil,
    /// Several of these.
    List(Vec<Reply>),
}

impl Reply {
    /// The text of it, empty if it is none.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Error(text) => text,
            _ => "",
        }
    }
}

/// Asks a server on this machine.
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
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not Redis' protocol");
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
