//! The holder and the token of a record as a short text, for stores whose scripts and statements push it.

use tenure_core::{Incarnation, Token};

/// Parses `HOLDER TOKEN`, where `HOLDER` is an incarnation or, without a holder, `-`. The result is what
/// [`Record::names`](tenure_core::Record::names) returns.
///
/// ```
/// use tenure_core::{Incarnation, Token};
///
/// let names = (Some(Incarnation::from_bits(0xab)), Token::new(7));
/// assert_eq!(tenure_kit::parse_names("000000000000000000000000000000ab 7"), Some(names));
/// assert_eq!(tenure_kit::parse_names("- 7"), Some((None, Token::new(7))));
/// assert_eq!(tenure_kit::parse_names("someone 7"), None);
/// ```
#[must_use]
pub fn parse_names(text: &str) -> Option<(Option<Incarnation>, Token)> {
    let (holder, token) = text.split_once(' ')?;
    let holder = match holder {
        "-" => None,
        holder => Some(Incarnation::from_bits(u128::from_str_radix(holder, 16).ok()?)),
    };
    Some((holder, Token::new(token.parse().ok()?)))
}
