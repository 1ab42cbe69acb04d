//! The scripts that the server runs, and the argument why they are correct.
//!
//! # Correctness argument of the swap
//!
//! *One script has both the condition and the write.* A server runs one script at a time, and no other command
//! meanwhile. So no other client writes between the comparison of the nonce and the write, and of all swaps that
//! expect the same nonce, one is done. Every write has a nonce of its own (64 random bits), so a nonce never
//! returns after another write, and "the nonce is as expected" means "nothing was written since".
//!
//! *A seat that was removed* keeps the token of its last term as its floor, in the same hash. A seat that does not exist
//! is written only if the token is above the floor, and the script that compares them also writes. So a bid that was
//! sent before the removal, and arrives after it, is lost if a removed term had its token or a higher one.
//!
//! *A renewal* compares the holder and the token instead, in the same script. Tokens of a seat only rise. So a
//! seat that names this holder and this token has named them ever since it was won, and the leader is still in
//! its term, whichever of its renewals arrived last. If an answer is lost, the next renewal need not read the
//! seat first. A renewal that arrives late, after a release or a bid of another candidate, finds another holder
//! and is lost. If it arrives after a later renewal of the same term, the seat then has the nonce and the record
//! of the late one. This does not shorten the lease, as the time in the seat is that of the arrival. The next
//! renewal is not affected. A release that expects another nonce is lost; the leader then reads the seat and
//! releases it again.
//!
//! *The script publishes before it writes.* If the user is not allowed to publish, the script ends there, and
//! nothing is written. If the write of a bid is refused (no memory left), some candidates read the seat and find it
//! unchanged. In no case is the answer an error although the seat was written. No candidate can act on the
//! message before the script has ended.
//!
//! *A release is published only if it is written*, because a candidate does not read the seat after that message. If the
//! seat was then still held, it would look as if it had gone backwards, and candidates would leave it alone for a lease.
//! So the script first writes the field that it has compared, with the value that it has. A server that refuses writes
//! (no memory left, too few replicas, no disk, a replica) refuses the first write of a script, and no later one.
//!
//! *A condition is valid only for the server from which it was read.* A server that was restarted, or that took
//! over, may have lost writes, so the same nonce, or the same holder and token, may appear a second time.
//! Therefore a version contains the server's process (its `run_id`), and [`RedisStore`](crate::RedisStore)
//! answers `Lost`, without a call, to a write whose version is from another process. A connection never outlives
//! the process to which it was made.
//!
//! *The scripts of a call* are sent as one pipeline, not as a transaction. Each has its own condition and its own
//! answer, so the result of one does not depend on another. A call that is dropped before the send is never sent.
//! A call that was sent runs to its end, before all commands that are sent later on the same connection, so a
//! later read sees its effect. If the connection is replaced meanwhile, the call may arrive after that read. It
//! then still tests its own condition.
//!
//! *The time* in a seat is the server's own, taken in the script that wrote the seat. A read takes the server's time
//! before it reads the seat, so a seat never appears older than it is.

use std::sync::OnceLock;

use redis::Script;

/// A Lua script, and its hash once it is computed.
pub(crate) struct LuaScript {
    text: &'static str,
    hash: OnceLock<String>,
}

pub(crate) static SWAP: LuaScript = LuaScript::new(include_str!("lua/swap.lua"));
pub(crate) static READ: LuaScript = LuaScript::new(include_str!("lua/read.lua"));
pub(crate) static FORGET: LuaScript = LuaScript::new(include_str!("lua/forget.lua"));
pub(crate) static NOTE: LuaScript = LuaScript::new(include_str!("lua/note.lua"));
pub(crate) static LIST: LuaScript = LuaScript::new(include_str!("lua/list.lua"));

impl LuaScript {
    const fn new(text: &'static str) -> Self {
        Self { text, hash: OnceLock::new() }
    }

    /// Returns the command that loads the script into the server.
    pub(crate) fn load(&self) -> redis::Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    /// Returns the command that runs the script: by its hash if the server has loaded it, otherwise by its text,
    /// which loads it.
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
