//! TDS on the wire: packets, the requests of a client, and the tokens of an answer. Only what the store uses.

use std::io::{self, Read, Write};

/// The types of packets.
pub(crate) const BATCH: u8 = 1;
pub(crate) const RPC: u8 = 3;
pub(crate) const ANSWER: u8 = 4;
pub(crate) const LOGIN: u8 = 16;
pub(crate) const PRELOGIN: u8 = 18;

/// Encryption that a server announces: that it does not support it, or requires it.
pub(crate) const NOT_SUPPORTED: u8 = 2;
pub(crate) const REQUIRED: u8 = 3;

const PACKET: usize = 4096;

/// Reads a message: its type, and the content of its packets.
pub(crate) fn read_message(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut content = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header)?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let start = content.len();
        content.resize(start + length.saturating_sub(header.len()), 0);
        stream.read_exact(&mut content[start..])?;
        if header[1] & 1 == 1 {
            return Ok((header[0], content));
        }
    }
}

/// Sends a message in packets.
pub(crate) fn write_message(stream: &mut impl Write, kind: u8, spid: u16, content: &[u8]) -> io::Result<()> {
    let chunks: Vec<&[u8]> = content.chunks(PACKET - 8).collect();
    let mut bytes = Vec::new();
    for (place, chunk) in chunks.iter().enumerate() {
        let is_last = u8::from(place + 1 == chunks.len());
        bytes.extend([kind, is_last]);
        bytes.extend((chunk.len() as u16 + 8).to_be_bytes());
        bytes.extend(spid.to_be_bytes());
        bytes.extend([(place + 1) as u8, 0]);
        bytes.extend(*chunk);
    }
    stream.write_all(&bytes)
}

/// Returns the answer to a prelogin: a version, and whether the server encrypts.
pub(crate) fn prelogin(encryption: u8) -> Vec<u8> {
    let mut bytes = vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff];
    bytes.extend([16, 0, 0, 0, 0, 0, encryption]);
    bytes
}

/// A log-in: the user, the password, the database, and the access token.
#[derive(Debug, Default)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) database: String,
    pub(crate) token: Option<String>,
}

pub(crate) fn login(content: &[u8]) -> Login {
    let number = |at: usize| usize::from(u16::from_le_bytes([content[at], content[at + 1]]));
    let bytes = |at: usize| content[number(at)..number(at) + 2 * number(at + 2)].to_vec();
    let mut password = bytes(44);
    password.iter_mut().for_each(|byte| *byte = (*byte ^ 0xa5).rotate_left(4));
    // The sixth name is an offset to the list of extensions, of which 2 is the token.
    let extensions = number(56);
    let list =
        u32::from_le_bytes(content.get(extensions..extensions + 4).map_or([0; 4], |bytes| bytes.try_into().unwrap()));
    let token = (number(58) > 0).then(|| content[list as usize..].to_vec()).filter(|list| list[0] == 2).map(|list| {
        let length = u32::from_le_bytes(list[6..10].try_into().unwrap()) as usize;
        utf16(&list[10..10 + length])
    });
    Login { user: utf16(&bytes(40)), password: utf16(&password), database: utf16(&bytes(68)), token }
}

/// A batch of statements with its parameters.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) sql: String,
    pub(crate) want: String,
    pub(crate) session: i64,
    pub(crate) number: i64,
}

impl Request {
    pub(crate) fn parse(kind: u8, content: &[u8]) -> Self {
        // All headers begin with their length.
        let headers = u32::from_le_bytes(content[..4].try_into().unwrap()) as usize;
        if kind == BATCH {
            return Self { sql: utf16(&content[headers..]), ..Self::default() };
        }
        // The number of the procedure (sp_executesql) and its flags.
        let mut rest = &content[headers + 6..];
        let (mut texts, mut numbers) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let name = 1 + 2 * usize::from(rest[0]);
            rest = &rest[name + 1..];
            match rest[0] {
                0xe7 => texts.push(text(&mut rest)),
                0x26 => numbers.push(number(&mut rest)),
                other => panic!("a parameter has the type {other:#x}, which the peer does not know"),
            }
        }
        // The statement, the declarations of its parameters, and the parameters.
        let [sql, _, want] = <[String; 3]>::try_from(texts).expect("three texts");
        Self { sql, want, session: numbers[0], number: numbers[1] }
    }

    /// Returns the name of the batch, which its first comment has.
    pub(crate) fn name(&self) -> &str {
        let name = self.sql.strip_prefix("/* tenure: ").and_then(|rest| rest.split_once(" */"));
        name.map_or("", |(name, _)| name)
    }

    /// Returns the schema whose tables the batch uses.
    pub(crate) fn schema(&self) -> String {
        let table = ["].[seats]", "].[notes]", "].[floors]"].iter().find_map(|table| self.sql.find(table)).unwrap_or(0);
        let schema = self.sql[..table].rsplit('[').next().unwrap_or_default();
        schema.to_owned()
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(count);
    *rest = after;
    taken
}

fn text(rest: &mut &[u8]) -> String {
    let is_long = take(rest, 8)[1..3] == [0xff, 0xff];
    if !is_long {
        let length = u16::from_le_bytes(take(rest, 2).try_into().unwrap());
        return utf16(take(rest, length.into()));
    }
    take(rest, 8);
    let mut bytes = Vec::new();
    loop {
        let length = u32::from_le_bytes(take(rest, 4).try_into().unwrap());
        if length == 0 {
            return utf16(&bytes);
        }
        bytes.extend(take(rest, length as usize));
    }
}

fn number(rest: &mut &[u8]) -> i64 {
    let length = usize::from(take(rest, 3)[2]);
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(take(rest, length));
    i64::from_le_bytes(bytes)
}

fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    char::decode_utf16(units).map(|unit| unit.unwrap_or('\u{fffd}')).collect()
}
