//! The definition of a law.

use std::future::Future;

use tenure_core::{BoxFuture, LifeKind, Promises, Push, SeatName};

use crate::{Bench, Subject, Verdict};

/// A conformance test: a property that every store must have if it promises it.
#[derive(Clone, Copy)]
pub struct Law {
    /// The law as a sentence in snake case, which is also the name of its file and of its test.
    pub name: &'static str,
    /// The abilities that a store must have for the law to apply.
    pub(crate) needs: &'static [Need],
    pub(crate) check: fn(Bench) -> BoxFuture<'static, Verdict>,
}

impl Law {
    /// Returns why this law does not apply to a subject, as the end of a sentence in snake case. `None` if the law
    /// applies.
    pub fn does_not_apply(&self, subject: &dyn Subject) -> Option<&'static str> {
        self.needs.iter().find_map(|need| need.missing(subject))
    }

    /// Checks a subject against the law. Needs a tokio runtime; [`Law::check_on`] brings its own.
    ///
    /// # Errors
    /// If the store breaks the law: what was expected, and what happened instead.
    pub async fn check(&self, bench: Bench) -> Verdict {
        (self.check)(bench).await
    }
}

impl std::fmt::Debug for Law {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Law").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An ability that a law needs of a store.
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
    TokensOfRemovedSeats,
}

impl Need {
    fn missing(self, subject: &dyn Subject) -> Option<&'static str> {
        let store = subject.open();
        let promises: Promises = (*store).promises();
        let some_seat = || SeatName::new("tenure-testkit").expect("a valid name");
        let (has, otherwise) = match self {
            Self::Sessions => (promises.life == LifeKind::Session, "it_has_no_sessions"),
            Self::NoSessions => (promises.life != LifeKind::Session, "a_living_session_keeps_its_seat"),
            Self::SessionsOrLocks => {
                (matches!(promises.life, LifeKind::Session | LifeKind::Lock), "it_has_no_sessions_or_locks")
            }
            Self::SharedHeartbeat => (promises.shared_heartbeat, "its_seats_share_no_heartbeat"),
            Self::Push => (promises.push != Push::None, "it_has_no_push"),
            Self::Notes => ((*store).notes().is_some(), "it_has_no_notes"),
            // The future is created but not polled: the law only needs to know whether there is one.
            Self::Delete => (subject.delete(&some_seat()).is_some(), "the_subject_cannot_delete_a_seat"),
            Self::EndSession => (subject.end_session(&some_seat()).is_some(), "the_subject_cannot_end_a_session"),
            Self::Broken => (subject.broken().is_some(), "the_subject_has_no_broken_connection"),
            Self::TokensOfRemovedSeats => {
                (subject.keeps_tokens_of_removed_seats(), "it_keeps_no_token_of_a_removed_seat")
            }
        };
        (!has).then_some(otherwise)
    }
}

/// Boxes a check, so that it can be written as a plain `async fn`.
pub(crate) fn boxed<F: Future<Output = Verdict> + Send + 'static>(check: F) -> BoxFuture<'static, Verdict> {
    Box::pin(check)
}

/// Declares laws by their modules: the name of the module is the name of the law.
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
