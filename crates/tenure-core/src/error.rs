//! The errors of elections and stores. Their texts say what to do.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Claim, EndReason, Fault, Stopped, TimingError, Token};

/// The error of a call about an election: it could not start, or a request failed.
///
/// The text is one line that says what failed and what to do. It never shows a password.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the election is empty, too long, or has control characters.
    #[error("the election name {name:?} {problem}")]
    BadName {
        /// The name, cut to its first 40 characters.
        name: String,
        /// The problem with the name, and its remedy.
        problem: &'static str,
    },
    /// The id of the candidate is empty, too long, or has control characters.
    #[error("the candidate id {id:?} {problem}")]
    BadCandidate {
        /// The refused id, cut to its first 40 characters.
        id: String,
        /// The problem with the id, and its remedy.
        problem: &'static str,
    },
    /// The durations contradict each other: renewals and retries do not fit into the lease.
    #[error(transparent)]
    Timing(#[from] TimingError),
    /// The store cannot do what the caller or an option asks for.
    #[error("the {store} store {problem}")]
    Unsupported {
        /// The name of the kind of store, such as `redis`.
        store: &'static str,
        /// The limit of the store that the request exceeds, and its remedy.
        problem: String,
    },
    /// An option is unknown or has an invalid value. The text names the option.
    #[error("{0}")]
    Option(String),
    /// The URL or the options of a store are not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A health score is not a number from 0 to 1. The report is ignored.
    #[error("a health score must be a number from 0 to 1, got {score}")]
    BadScore {
        /// The score that was reported and rejected.
        score: f64,
    },
    /// The metadata of a candidate is longer than 64 KiB.
    #[error("the metadata is too long ({bytes} bytes): use at most {} bytes", crate::Metadata::LONGEST)]
    MetadataTooLong {
        /// The length of all names and values together.
        bytes: usize,
    },
    /// The seat cannot be handed over to this candidate: it does not stand, is unhealthy, or already leads.
    #[error("the candidate {candidate:?} {problem}")]
    NoSuchHeir {
        /// The id or incarnation that the caller asked for.
        candidate: String,
        /// Why the candidate cannot take over, and which candidates exist.
        problem: String,
    },
    /// No leader can hand over: the seat is vacant, or the term is already ending.
    #[error("no leader of {election:?} can hand over: {reason}")]
    NoLeader {
        /// The name of the election without such a leader.
        election: String,
        /// Which of these two cases it is, as a phrase.
        reason: &'static str,
    },
    /// An election of this name already runs in this `Elections`.
    #[error("the election {name:?} already runs in this `Elections`; clone its handle, or stop it first")]
    AlreadyRunning {
        /// The name of the election that already runs.
        name: String,
    },
    /// The store failed or denied a call. [`StoreError::fault`] says whether the call took effect.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// A handler panicked or returned an error.
    #[error("the handler {handler} {problem}")]
    Handler {
        /// The method of the builder that registered the handler.
        handler: &'static str,
        /// Whether it panicked or failed, and the message of the panic or the error.
        problem: String,
    },
    /// An election did not end within the time of a `shutdown` call.
    #[error(
        "the election {election:?} still runs after {within:?}: its work has not returned, or the store does not answer"
    )]
    StillRunning {
        /// The name of the election that still runs.
        election: String,
        /// The time that the caller gave to `shutdown`.
        within: Duration,
    },
    /// All elections have ended and released their seats, but the store did not confirm within the time of a
    /// `shutdown` call that their candidates are removed from the lists of candidates.
    #[error(
        "all elections have ended, but their candidates are still listed after {within:?}, because the store does not \
         answer; the entries expire by themselves"
    )]
    StillListed {
        /// The time that the caller gave to `shutdown`.
        within: Duration,
    },
    /// The election has ended in this process, so the call cannot be answered.
    #[error("the election has ended in this process: {0}")]
    Ended(#[from] Ended),
    /// The process was forked after its engine had started.
    #[error(
        "the engine runs in the parent process, as a fork does not copy threads; make a new `Elections` after the fork"
    )]
    Forked,
    /// The operating system did not let the engine start.
    #[error("the engine could not start: {0}")]
    Engine(String),
}

impl Error {
    /// Returns more about the reason, in one line, for people who want to know why: the sum of the durations that do
    /// not fit together. `None` if the text of the error says it all.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Timing(error) => error.detail(),
            _ => None,
        }
    }

    /// Returns the error of the store, if this error came from the store.
    pub fn store_error(&self) -> Option<&Arc<StoreError>> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

/// An invalid URL, option or file of a store.
///
/// The text is one line that says what is wrong and what to do. It never shows a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    /// Creates an error from its message. The message must name the option, and must not show a value that can be
    /// secret.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl From<String> for ConfigError {
    fn from(message: String) -> Self {
        Self { message }
    }
}

impl From<&str> for ConfigError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

/// Why work ended without a result, or why an election ended in this process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The election was stopped in this process, by `stop()`, a token or the drop of all handles.
    #[error("it was stopped")]
    Stopped,
    /// The store failed for longer than `give_up_after`, and the candidate left the election.
    #[error("this candidate gave up after the store had failed for {after:.1?}")]
    GaveUp {
        /// How long the store had failed when the candidate gave up.
        after: Duration,
    },
    /// The term ended before the work returned, and the work was dropped.
    #[error("term {token} ended: {}", why.as_str())]
    TermEnded {
        /// The token of the term in which the work ran.
        token: Token,
        /// Why the term ended, such as a stop or a renewal that failed.
        why: EndReason,
    },
    /// A candidate has claimed the occasion of this election ([`Builder::occasion`](crate::Builder::occasion)), so
    /// there is nothing left to do for this one.
    #[error("the candidate {by} claimed this occasion in term {token}")]
    Claimed {
        /// The id of the candidate that claimed the occasion; it can be this candidate.
        by: String,
        /// The token of the term in which it claimed the occasion.
        token: Token,
        /// Whether the work of that term returned before the term ended, as far as this candidate has seen.
        done: bool,
    },
    /// This candidate does not lead at the moment of the call, so the work did not start.
    #[error("this candidate does not lead now")]
    NotLeading,
    /// The engine's thread has panicked, which is a bug in Tenure. No election of this `Elections` runs any more.
    #[error("the engine has ended unexpectedly; please report this as a bug")]
    EngineGone,
}

impl Ended {
    /// Returns why an election stopped in this process, given the claim that its seat last had.
    pub(crate) fn of(stopped: Stopped, claim: Option<&Claim>) -> Self {
        match (stopped, claim) {
            (Stopped::Claimed, Some(claim)) => {
                Self::Claimed { by: claim.by.to_string(), token: claim.token, done: claim.done }
            }
            (Stopped::Asked | Stopped::Claimed, _) => Self::Stopped,
            (Stopped::GaveUp { after }, _) => Self::GaveUp { after },
        }
    }
}

/// The error of a call to a store. Its [`Fault`] says whether the call took effect.
///
/// It is cheap to clone: all callers that share a call share its error.
///
/// ```
/// # use tenure_core::{Fault, StoreError};
/// let error = StoreError::unknown("the connection to db-1 was lost before it answered");
/// assert_eq!(error.fault(), Fault::Unknown); // the engine reads the seat before it bids again
/// ```
#[derive(Clone, Debug)]
pub struct StoreError {
    fault: Fault,
    message: Arc<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    caused_by_one: bool,
}

impl StoreError {
    /// Creates an error of a call that had no effect and can succeed later, such as a refused connection.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Fault::Refused, message.into())
    }

    /// Creates an error of a call that possibly took effect: a time-out, or a connection that was lost before the
    /// answer.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(Fault::Unknown, message.into())
    }

    /// Creates an error of a call that had no effect and cannot succeed before somebody intervenes: a missing
    /// permission, a wrong configuration.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(Fault::Denied, message.into())
    }

    /// Sets the error that caused this one. The message must not repeat the text of the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    fn new(fault: Fault, message: String) -> Self {
        Self { fault, message: message.into(), source: None, caused_by_one: false }
    }

    /// Marks the error of a call about several seats as possibly caused by one of them, such as a text that the
    /// database cannot store. The seats that were not answered are unchanged.
    ///
    /// The engine then splits the call into smaller calls, until only the call about that seat fails. The mark has no
    /// effect on an error of which the outcome is unknown.
    #[must_use]
    pub fn caused_by_one(mut self) -> Self {
        self.caused_by_one = true;
        self
    }

    /// Returns whether one seat or note of a call possibly caused the error, and the call had no effect on those
    /// without an answer.
    pub fn is_caused_by_one(&self) -> bool {
        self.caused_by_one && self.fault != Fault::Unknown
    }

    /// Returns whether the call took effect: no, possibly, or never until somebody intervenes.
    pub fn fault(&self) -> Fault {
        self.fault
    }
}

impl From<ConfigError> for StoreError {
    /// Turns wrong options, which a store finds at its first call, into a denied call.
    fn from(error: ConfigError) -> Self {
        Self::denied(error.message)
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
