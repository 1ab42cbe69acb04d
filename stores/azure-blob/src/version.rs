//! The versions of seats, and the ids of leases.

use tenure_core::{Incarnation, Record, Version};

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
    use super::*;

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
