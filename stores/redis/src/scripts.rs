//! The scripts that the server runs, and why they are right.
//!
//! # Correctness argument of the swap
//!
//! A server runs one script at a time, and nothing else meanwhile. So between the comparison of the
//! nonce and the write nobody else writes: of all swaps that expect the same nonce, one is done. Every
//! write has a nonce of its own (64 random bits), so a nonce that was seen once never comes back, and
//! "the nonce is as expected" means "nothing was written since".
//!
//! A renewal compares the holder and the token instead, in the same script. Tokens of a seat only rise, so a seat
//! that names this holder and this token has named them ever since it was won: the term is the leader's, whichever
//! of its renewals was the last to arrive. If an answer was lost, the next renewal need not find out first. A renewal
//! that arrives late, after a release or another's bid, finds another holder and is lost. If it arrives after a later
//! renewal of the same term, the seat has its nonce and its record again, and is held no shorter: the time in it is
//! that of its arrival. The next renewal is not affected, and a release that expects another nonce is lost, looked
//! into, and made again.
//!
//! What is published goes out before the write. If publishing is not permitted, the script ends there
//! and nothing was written; if the write is refused (no memory left), some look in vain. In no case is
//! the answer an error although the seat was written. Nobody can act on the message before the script
//! has ended.
//!
//! A nonce, or a holder and a token, is only as good as the server that it was read from: one that was restarted or
//! has taken over may have lost writes, and shown the same twice. Therefore versions name the server's
//! process (its `run_id`), and [`RedisStore`](crate::RedisStore) answers `Lost`, without asking, to a
//! write whose version is another process's. A connection never outlives the process it was made to.
//!
//! The scripts of a call go out as one pipeline, each with its own condition and answer, and in no transaction: what
//! becomes of one does not depend on another. A call that is dropped before it was sent never is. One that was sent
//! runs to its end, and before whatever is sent later on the same connection: a read that follows it sees what it has
//! written. Where the connection was given up meanwhile, it may arrive later, and finds its condition or does not.
//!
//! The time in a seat is the server's own, taken in the script that wrote it. A read takes the time
//! before it looks, so a seat is never shown as older than it is.

use std::sync::OnceLock;

use redis::Script;

/// A script.
pub(crate) struct Source {
    text: &'static str,
    hash: OnceLock<String>,
}

pub(crate) static SWAP: Source = Source::new(include_str!("lua/swap.lua"));
pub(crate) static READ: Source = Source::new(include_str!("lua/read.lua"));
pub(crate) static FORGET: Source = Source::new(include_str!("lua/forget.lua"));
pub(crate) static NOTE: Source = Source::new(include_str!("lua/note.lua"));
pub(crate) static LIST: Source = Source::new(include_str!("lua/list.lua"));

impl Source {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    /// The command that has the server know it.
    pub(crate) fn load(&self) -> redis::Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    /// The command that runs it: by its hash, if the server knows it, or by its text, and the server knows it from
    /// then on.
    pub(crate) fn command(&self, by_text: bool, keys: &[String], arguments: &[String]) -> redis::Cmd {
        let mut command = if by_text {
            let mut command = redis::cmd("EVAL");
            command.arg(self.text);
            command
        } else {
            let mut command = redis::cmd("EVALSHA");
            command.arg(self.hash.get_or_init(|| Script::new(self.text).get_hash().to_owned()));
            command
        };
        command.arg(keys.len()).arg(keys).arg(arguments);
        command
    }
}
