//! What can go wrong, in words that say what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{EndReason, Fault, Stopped, TimingError, Token};

/// Why an election could not be started or asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the election cannot be used.
    #[error("the election name {name:?} {problem}")]
    BadName {
        /// The name, or the beginning of it.
        name: String,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// The candidate's id cannot be used.
    #[error("the candidate id {id:?} {problem}")]
    BadCandidate {
        /// The id, or the beginning of it.
        id: String,
        /// What is wrong with it, and what to do.
        problem: &'static str,
    },
    /// The durations do not fit together.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// The store cannot do what was asked of it.
    #[error("the {store} store {problem}")]
    Unsupported {
        /// The store's name.
        store: &'static str,
        /// What it cannot do, and what to do instead.
        problem: String,
    },
    /// An option is unknown or has a value that makes no sense.
    #[error("{0}")]
    Option(String),
    /// A report of health makes no sense.
    #[error("{0}")]
    BadHealth(String),
    /// The candidate cannot be handed over to.
    #[error("the candidate {candidate:?} {problem}")]
    NoSuchHeir {
        /// Whom it was meant to go to.
        candidate: String,
        /// Why it cannot, and who could.
        problem: String,
    },
    /// There is nobody to hand over.
    #[error("nobody leads {election:?} who could hand over: {reason}")]
    NoLeader {
        /// The election's name.
        election: String,
        /// What is known of it.
        reason: &'static str,
    },
    /// This election already runs here.
    #[error("the election {name:?} already runs in this `Elections`: clone its handle, or stop it first")]
    AlreadyRunning {
        /// Its name.
        name: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// The election has ended here.
    #[error("the election has ended here: {0}")]
    Ended(#[from] Ended),
    /// The process was forked after its engine had started.
    #[error(
        "the engine runs in the parent process, as a fork does not copy threads: make a new `Elections` after the fork"
    )]
    Forked,
    /// The operating system did not let the engine start.
    #[error("the engine could not start: {0}")]
    Engine(String),
}

/// Why there will be no term, or none any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The election was stopped here.
    #[error("it was stopped")]
    Stopped,
    /// The store failed for longer than `give_up_after`.
    #[error("gave up after the store had failed for {after:.1?}")]
    GaveUp {
        /// How long it failed.
        after: Duration,
    },
    /// The term ended before the work was done.
    #[error("term {token} ended: {}", why.as_str())]
    TermEnded {
        /// The term's number.
        token: Token,
        /// Why it ended.
        why: EndReason,
    },
    /// The engine is gone: its thread has panicked, which is a bug.
    #[error("the engine is gone; please report this as a bug")]
    EngineGone,
}

impl From<Stopped> for Ended {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Asked => Self::Stopped,
            Stopped::GaveUp { after } => Self::GaveUp { after },
        }
    }
}

/// How a call to a store failed. The [`Fault`] answers the one question that matters: did it
/// happen?
///
/// Cheap to clone: callers that share a call share its error, with the cause.
#[derive(Clone, Debug)]
pub struct StoreError {
    fault: Fault,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    caused_by_one: bool,
}

impl StoreError {
    /// It did not happen; it may the next time.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Fault::Refused, message.into())
    }

    /// It may have happened: a time-out, a connection lost in between.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(Fault::Unknown, message.into())
    }

    /// It did not happen and never will as things are: no permission, a bad configuration.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(Fault::Denied, message.into())
    }

    /// With the error that caused it. The message should not repeat its words.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    fn new(fault: Fault, message: String) -> Self {
        Self { fault, message: message.into(), source: None, caused_by_one: false }
    }

    /// Says of a call about several seats that nothing has happened, and that one of the seats may be to blame, such as
    /// by a text that the database cannot hold. The engine makes the call again in smaller ones, until only the call
    /// about that seat fails. An error that leaves open what has happened is never taken that way.
    #[must_use]
    pub fn caused_by_one(mut self) -> Self {
        self.caused_by_one = true;
        self
    }

    /// Whether one seat or note of a call may be to blame, and nothing has happened to those that are not answered for.
    pub fn is_caused_by_one(&self) -> bool {
        self.caused_by_one && self.fault != Fault::Unknown
    }

    /// Did it happen?
    pub fn fault(&self) -> Fault {
        self.fault
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}
