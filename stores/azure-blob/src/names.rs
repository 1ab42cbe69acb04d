//! The names of blobs, tombstones of seats that were forgotten, and versions.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tenure_core::{Incarnation, Record, Token, Version};
use tenure_kit::url::{decoded, encoded};

/// Returns the last part of the name of a blob: the name with everything but letters, digits, `-` and `_` escaped, as `~20`
/// for a space. So a URL needs no escapes. A name that is too long for that is encoded in base64, after `~~`.
pub(crate) fn blob_name(name: &str) -> String {
    let readable = encoded(name, "-_").replace('%', "~");
    if readable.len() <= LONGEST_NAME { readable } else { format!("~~{}", URL_SAFE_NO_PAD.encode(name)) }
}

/// Reverses [`blob_name`]; `None` if no name has this blob.
pub(crate) fn name_of(blob: &str) -> Option<String> {
    match blob.strip_prefix("~~") {
        Some(base64) => String::from_utf8(URL_SAFE_NO_PAD.decode(base64).ok()?).ok(),
        None => decoded(&blob.replace('~', "%")).ok(),
    }
}

/// Returns the content of the blob of a seat that does not exist: it was forgotten, or is about to be taken for the first
/// time. It has a fixed length, and every record is longer, so a list of blobs shows which of them are seats.
pub(crate) fn tombstone(token: Token) -> String {
    format!("forgotten {:020} {:016x}", token.get(), rand::random::<u64>())
}

/// Returns the last token of a seat that does not exist; `None` if the content is not a tombstone.
pub(crate) fn forgotten(content: &str) -> Option<Token> {
    content.strip_prefix("forgotten ")?.split(' ').next()?.parse().ok().map(Token::new)
}

pub(crate) const TOMBSTONE_LENGTH: u64 = 47;

/// Long enough for any name in base64: 512 bytes become 683 characters. A blob's name has at most 1024.
const LONGEST_NAME: usize = 690;

/// A version of a seat: the ETag of its blob, and the holder that its record names, whose lease protects it.
///
/// As text, `0x8D4BCC2E4835CD0/HOLDER/`, with `-` for no holder. It is parsed only from its exact form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeatVersion {
    pub(crate) etag: String,
    pub(crate) holder: Option<Incarnation>,
}

impl SeatVersion {
    pub(crate) fn of(etag: &str, record: &Record) -> Self {
        let holder = record.holder.as_ref().map(|holder| holder.incarnation);
        Self { etag: etag.trim_matches('"').to_owned(), holder }
    }

    pub(crate) fn version(&self) -> Version {
        let holder = self.holder.map_or("-".to_owned(), |holder| format!("{:032x}", holder.to_bits()));
        Version::new(format!("{}/{holder}/", self.etag))
    }

    /// Parses a version; `None` if no seat can have it.
    pub(crate) fn parse(version: &Version) -> Option<Self> {
        let mut parts = version.as_str().split('/');
        let etag = parts.next().filter(|etag| !etag.is_empty())?.to_owned();
        let holder = match parts.next()? {
            "-" => None,
            bits => Some(Incarnation::from_bits(u128::from_str_radix(bits, 16).ok()?)),
        };
        let parsed = Self { etag, holder };
        let is_plain = parsed.etag.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
        (is_plain && parsed.version() == *version).then_some(parsed)
    }
}

/// Returns the id of the lease that a candidate takes: its incarnation, as a GUID. So a repeated acquisition by the same
/// candidate is no conflict, and every process knows the id of the lease that protects a record.
pub(crate) fn lease_id(holder: Incarnation) -> String {
    let hex = format!("{:032x}", holder.to_bits());
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::record;

    use super::*;

    #[test]
    fn a_tombstone_keeps_the_token_and_is_shorter_than_every_record() {
        for token in [0, 7, u64::MAX] {
            let text = tombstone(Token::new(token));
            assert_eq!(text.len() as u64, TOMBSTONE_LENGTH);
            assert_eq!(forgotten(&text), Some(Token::new(token)));
        }
        let smallest = record::to_json(&Record::new(None, Token::ZERO, Duration::ZERO));
        assert!(smallest.len() as u64 > TOMBSTONE_LENGTH, "{smallest}");
        assert_eq!(forgotten(&smallest), None);
    }

    #[test]
    fn names_are_readable_and_can_be_reversed() {
        let long = "选".repeat(170);
        for name in ["nightly-jobs", "a b/c", "~x", "~~x", "..", ".", "é", "%2F", &long] {
            let blob = blob_name(name);
            assert_eq!(name_of(&blob).as_deref(), Some(name), "{blob}");
            assert!(blob.len() <= LONGEST_NAME && !blob.contains(['/', '.', '%']), "{blob}");
        }
        assert_eq!(blob_name("a b"), "a~20b");
        assert!(blob_name(&long).starts_with("~~"));
    }

    #[test]
    fn a_version_is_parsed_only_in_its_exact_form() {
        for holder in [None, Some(Incarnation::from_bits(7)), Some(Incarnation::from_bits(u128::MAX))] {
            let one = SeatVersion { etag: "0x8D4".to_owned(), holder };
            let text = one.version();
            assert_eq!(SeatVersion::parse(&text), Some(one));
            for other in [format!("{}0", text.as_str()), text.as_str()[1..].replace('/', ""), String::new()] {
                assert_eq!(SeatVersion::parse(&Version::new(&*other)), None, "{other}");
            }
        }
        for text in ["0x8/-", "/-/", "0x8/7/", "0x8\r\n/-/", "0\"8/-/", "x"] {
            assert_eq!(SeatVersion::parse(&Version::new(text)), None, "{text:?}");
        }
        assert_eq!(lease_id(Incarnation::from_bits(7)), "00000000-0000-0000-0000-000000000007");
    }
}
