//! What a law is.

use std::future::Future;

use tenure_core::{BoxFuture, LifeKind, Promises, Push, SeatName};

use crate::{Bench, Subject, Verdict};

/// Something that must hold for every store that promises it.
#[derive(Clone, Copy)]
pub struct Law {
    /// What it says, as a sentence in the form of a name.
    pub name: &'static str,
    /// What a store must have for the law to apply.
    pub(crate) needs: &'static [Need],
    pub(crate) check: fn(Bench) -> BoxFuture<'static, Verdict>,
}

impl Law {
    /// Why this law does not apply to a subject, as the end of a sentence in the form of a name;
    /// `None` if it does.
    pub fn does_not_apply(&self, subject: &dyn Subject) -> Option<&'static str> {
        self.needs.iter().find_map(|need| need.missing(subject))
    }

    /// Holds a subject to the law.
    pub async fn check(&self, bench: Bench) -> Verdict {
        (self.check)(bench).await
    }
}

impl std::fmt::Debug for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Law").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a law needs of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    Sessions,
    NoSessions,
    SessionsOrLocks,
    SharedHeartbeat,
    Push,
    Notes,
    Delete,
    EndSession,
    Broken,
}

impl Need {
    fn missing(self, subject: &dyn Subject) -> Option<&'static str> {
        let store = subject.open();
        let promises: Promises = (*store).promises();
        let some_seat = || SeatName::new("tenure-testkit").expect("a name like any other");
        let (has, otherwise) = match self {
            Self::Sessions => (promises.life == LifeKind::Session, "it_has_no_sessions"),
            Self::NoSessions => (promises.life != LifeKind::Session, "a_session_is_not_taken_by_force"),
            Self::SessionsOrLocks => {
                (matches!(promises.life, LifeKind::Session | LifeKind::Lock), "it_has_no_sessions_or_locks")
            }
            Self::SharedHeartbeat => (promises.shared_heartbeat, "its_seats_share_no_heartbeat"),
            Self::Push => (promises.push != Push::None, "it_has_no_push"),
            Self::Notes => ((*store).notes().is_some(), "it_has_no_notes"),
            // Made, but not polled: only whether it can be done is of interest.
            Self::Delete => (subject.delete(&some_seat()).is_some(), "the_subject_cannot_delete_a_seat"),
            Self::EndSession => (subject.end_session(&some_seat()).is_some(), "the_subject_cannot_end_a_session"),
            Self::Broken => (subject.broken().is_some(), "the_subject_has_no_broken_connection"),
        };
        (!has).then_some(otherwise)
    }
}

/// Lets a check be written as a plain `async fn`.
pub(crate) fn boxed<F: Future<Output = Verdict> + Send + 'static>(check: F) -> BoxFuture<'static, Verdict> {
    Box::pin(check)
}

/// Lists laws by the modules that they stand in: the module's name is the law's.
macro_rules! laws {
    ($($law:ident),* $(,)?) => {
        $(mod $law;)*

        pub(crate) const LAWS: &[$crate::Law] = &[$($crate::Law {
            name: stringify!($law),
            needs: $law::NEEDS,
            check: |bench| $crate::law::boxed($law::check(bench)),
        }),*];
    };
}

pub(crate) use laws;
