//! Reserves tokens, so that a bid need not wait for the disk.
//!
//! A crash of the machine, or a power failure, can lose the last writes that were not synced. The next leader must not get a
//! token of a lost term. So tokens are reserved ahead, many at once, by a write that is synced.
//!
//! # Why no token is issued twice
//!
//! *Claim.* A bid that is answered before it is on disk has a token that no bid after a crash has. *Reasons.* Such a bid has a
//! token up to the reservation, and the reservation was synced before any process could read it: SQLite shows a commit to
//! other processes only after it was synced, and a process that opens the database alone first syncs what it finds
//! (`files.rs`). A process that opens the database for the first time after a boot finds the reservation of another boot, and
//! raises the floor of all tokens to it. Processes of the boot before are gone. A bid with a higher token is synced, together
//! with the next reservation.
//!
//! The tokens of all seats share the reservation, so after a crash they all continue above it. A token that no count of
//! terms reaches, for example one that was written by hand, is not reserved: it would use up the tokens of all other seats.
//! Nothing is reserved either if the boot id cannot be read, because then each process would skip the reserved tokens. All
//! bids that are not reserved are synced.

use rusqlite::Connection;
use tenure_core::Token;

use crate::boot::Boot;
use crate::database::{get_about, put_about};

/// How many tokens are reserved at once: one bid in so many is synced.
const BLOCK: u64 = 1000;

/// Higher tokens are not reserved, and all bids with them are synced.
const HIGHEST: Token = Token::new(1 << 62);

/// Returns the highest reserved token, and whether it was reserved in this boot of the machine.
pub(crate) fn read(connection: &Connection) -> rusqlite::Result<(Token, bool)> {
    let reserved = get_about(connection, "reserved")?.unwrap_or_default();
    let (token, boot) = reserved.split_once(' ').unwrap_or_default();
    Ok((Token::new(token.parse().unwrap_or_default()), boot == Boot::this().kernel))
}

/// Reserves the tokens that follow this one, if they are not reserved yet. Returns the highest reserved one. The transaction
/// must be synced before any of them is used.
pub(crate) fn reserve(connection: &Connection, above: Token) -> rusqlite::Result<Token> {
    let (reserved, _) = read(connection)?;
    if !is_reservable(above, Boot::this()) {
        return Ok(reserved);
    }
    let reserved = reserved.max(Token::new(above.get() + BLOCK));
    put_about(connection, "reserved", &format!("{} {}", reserved.get(), Boot::this().kernel))?;
    Ok(reserved)
}

fn is_reservable(above: Token, boot: &Boot) -> bool {
    above <= HIGHEST && boot.is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reserved_if_the_boot_id_cannot_be_read() {
        let (known, unknown) = (Boot::of("4711"), Boot::of(""));
        assert_ne!(unknown.kernel, Boot::of("").kernel, "it may be another boot");
        assert!(is_reservable(HIGHEST, &known) && !is_reservable(Token::MAX, &known));
        assert!(!is_reservable(Token::ZERO, &unknown));
    }
}
