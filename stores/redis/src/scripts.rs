//! The scripts that the server runs, and why they are right.
//!
//! # Correctness argument of the swap
//!
//! A server runs one script at a time, and nothing else meanwhile. So between the comparison of the
//! nonce and the write nobody else writes: of all swaps that expect the same nonce, one is done. Every
//! write has a nonce of its own (64 random bits), so a nonce that was seen once never comes back, and
//! "the nonce is as expected" means "nothing was written since".
//!
//! What is published goes out before the write. If publishing is not permitted, the script ends there
//! and nothing was written; if the write is refused (no memory left), some look in vain. In no case is
//! the answer an error although the seat was written. Nobody can act on the message before the script
//! has ended.
//!
//! A nonce is only as good as the server that it was read from: one that was restarted or has taken
//! over may have lost writes, and shown the same nonce twice. Therefore versions name the server's
//! process (its `run_id`), and [`RedisStore`](crate::RedisStore) answers `Lost`, without asking, to a
//! swap whose version is another process's. A connection never outlives the process it was made to.
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
pub(crate) static PUT: Source = Source::new(include_str!("lua/put.lua"));
pub(crate) static ANNOUNCE: Source = Source::new(include_str!("lua/announce.lua"));
pub(crate) static ANNOUNCED: Source = Source::new("return redis.call('HGETALL', KEYS[1])");
pub(crate) static SWEEP: Source = Source::new(include_str!("lua/sweep.lua"));
pub(crate) static ATTEND: Source = Source::new(include_str!("lua/attend.lua"));
pub(crate) static ATTENDS: Source = Source::new("return redis.call('PTTL', KEYS[1])");
pub(crate) static REMOVE: Source = Source::new("return redis.call('HDEL', KEYS[1], ARGV[1])");
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

    /// The command that runs it by its hash, if the server knows it.
    pub(crate) fn by_hash(&self, keys: &[&str], arguments: &[&str]) -> redis::Cmd {
        let hash = self.hash.get_or_init(|| Script::new(self.text).get_hash().to_owned());
        command("EVALSHA", hash, keys, arguments)
    }

    /// The command that runs it, and has the server know it from then on.
    pub(crate) fn by_text(&self, keys: &[&str], arguments: &[&str]) -> redis::Cmd {
        command("EVAL", self.text, keys, arguments)
    }
}

fn command(name: &str, script: &str, keys: &[&str], arguments: &[&str]) -> redis::Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    command
}
