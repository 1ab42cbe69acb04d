//! The meta commands that the store uses, and the replies of the server.
//!
//! ```text
//!  mg KEY v c                    VA SIZE cCAS, and the value; or EN: there is none
//!  ms KEY SIZE T0 c ME           HD cCAS: added; or NS: the key exists
//!  ms KEY SIZE T0 c CCAS         HD cCAS: written; EX: the key has another CAS; NF: there is none
//!  md KEY                        HD: deleted; or NF
//! ```

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// Commands that are sent in one piece. The server answers each of them, in this order.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
}

/// The condition of a write, which the server checks and writes in one step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// The key does not exist.
    Absent,
    /// The key has this CAS value.
    Cas(u64),
}

impl Commands {
    pub(crate) fn get(&mut self, key: &str) {
        self.line(&format!("mg {key} v c"));
    }

    /// Writes a value that never expires, on a condition.
    pub(crate) fn put(&mut self, key: &str, value: &str, condition: Condition) {
        let condition = match condition {
            Condition::Absent => "ME".to_owned(),
            Condition::Cas(cas) => format!("C{cas}"),
        };
        self.put_with(key, value, &format!("T0 c {condition}"));
    }

    /// Writes a value with other flags.
    pub(crate) fn put_with(&mut self, key: &str, value: &str, flags: &str) {
        self.line(&format!("ms {key} {} {flags}\r\n{value}", value.len()));
    }

    pub(crate) fn delete(&mut self, key: &str) {
        self.line(&format!("md {key}"));
    }

    /// Adds a command of another form that has one line as its answer.
    pub(crate) fn line(&mut self, command: &str) {
        self.bytes.extend_from_slice(command.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }
}

/// The reply to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `VA`: the value, and its CAS.
    Value { text: String, cas: u64 },
    /// `HD`: the command took effect. A write also returns the new CAS.
    Done { cas: u64 },
    /// `NS` or `EX`: the condition does not hold.
    NotStored,
    /// `EN` or `NF`: the key does not exist.
    Missing,
    /// `SERVER_ERROR`: the server could not execute the command. What follows are replies to later commands.
    Failed(String),
    /// Any other line. The server may have taken the value of a write for commands, so no later reply can be trusted.
    Strange(String),
}

/// Reads the next reply.
pub(crate) async fn read_reply(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Reply> {
    let mut line = Vec::new();
    let read = from.take(LONGEST_LINE).read_until(b'\n', &mut line).await?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
    let mut words = line.split(' ');
    let code = words.next().unwrap_or_default();
    let cas = |words: std::str::Split<'_, char>| {
        words.filter_map(|word| word.strip_prefix('c')).find_map(|cas| cas.parse().ok()).unwrap_or(0)
    };
    Ok(match code {
        "VA" => {
            let size = words.next().and_then(|size| size.parse().ok()).filter(|size| *size <= LARGEST_VALUE);
            let size: usize = size.ok_or(io::ErrorKind::InvalidData)?;
            let cas = cas(words);
            let mut value = vec![0; size + 2];
            from.read_exact(&mut value).await?;
            value.truncate(size);
            Reply::Value { text: String::from_utf8_lossy(&value).into_owned(), cas }
        }
        "HD" => Reply::Done { cas: cas(words) },
        "NS" | "EX" => Reply::NotStored,
        "EN" | "NF" => Reply::Missing,
        "SERVER_ERROR" => Reply::Failed(line),
        _ => Reply::Strange(line),
    })
}

/// A line of a reply is much shorter. A server that sends more is not memcached.
const LONGEST_LINE: u64 = 2048;

/// The largest value that a server can be configured to keep.
const LARGEST_VALUE: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    async fn parsed(text: &str) -> io::Result<Vec<Reply>> {
        let (mut from, mut replies) = (text.as_bytes(), Vec::new());
        while !from.is_empty() {
            replies.push(read_reply(&mut from).await?);
        }
        Ok(replies)
    }

    #[tokio::test]
    async fn replies_are_parsed_one_after_the_other() {
        let text =
            "VA 4 c17\r\na\r\nb\r\nHD c18\r\nEN\r\nNF c0\r\nEX c0\r\nNS\r\nHD\r\nSERVER_ERROR out of memory\r\nMN\r\n";
        let replies = parsed(text).await.unwrap();
        assert_eq!(replies[0], Reply::Value { text: "a\r\nb".to_owned(), cas: 17 });
        assert_eq!(replies[1..4], [Reply::Done { cas: 18 }, Reply::Missing, Reply::Missing]);
        assert_eq!(replies[4..7], [Reply::NotStored, Reply::NotStored, Reply::Done { cas: 0 }]);
        assert_eq!(replies[7], Reply::Failed("SERVER_ERROR out of memory".to_owned()));
        assert_eq!(replies[8], Reply::Strange("MN".to_owned()));
    }

    #[tokio::test]
    async fn a_reply_that_breaks_off_or_is_no_reply_is_an_error_and_never_a_panic() {
        for text in ["VA 4 c1\r\nab", "VA\r\n", "VA x c1\r\n", "VA 99999999999 c1\r\n"] {
            assert!(parsed(text).await.is_err(), "{text}");
        }
        let long = "x".repeat(5000);
        assert!(matches!(parsed(&long).await.unwrap()[0], Reply::Strange(_)));
    }
}
