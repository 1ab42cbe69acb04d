//! Waits for a term, for as long as the user is willing to.

use std::time::Duration;

use tenure::{Ended, EventKind, Term};

use super::exit_reason::ExitReason;
use super::{Runner, next};
use crate::failure::{Failure, error_words};
use crate::process::signals;

/// The result of waiting for a term.
pub(super) enum Waited {
    Elected(Term),
    Ended(Ended),
    /// Another candidate leads, or no candidate does, for longer than the user is willing to wait.
    InVain,
}

impl Runner {
    /// Waits for the next term, for as long as the user is willing to.
    pub(super) async fn wait(&mut self) -> Result<Waited, Failure> {
        if self.asked.is_none() {
            self.guard.prepare();
        }
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.on_signal(signal),
                // No command runs. Ctrl-C and Ctrl-\ ask this process to leave; other signals are ignored.
                signal = self.forwarded.next() => if signals::is_typed(signal) { self.on_signal(signal) },
                event = next(&mut self.events) => {
                    if self.is_in_vain(&event)? {
                        return Ok(Waited::InVain);
                    }
                    self.on_event(&event)?;
                }
                event = self.guard.event() => {
                    if event.is_none() {
                        self.replace_guard().await?;
                    }
                }
                term = self.election.elected() => return Ok(term.map_or_else(Waited::Ended, Waited::Elected)),
                () = sleep_until(self.give_up_at), if !self.gives_up_at_once() => return Ok(Waited::InVain),
            }
        }
    }

    /// Returns whether the user does not want to wait at all (`--no-wait`), and this candidate has never led.
    fn gives_up_at_once(&self) -> bool {
        self.give_up_at.is_some() && self.task.patience == Some(Duration::ZERO)
    }

    /// Returns whether this event shows that a user who does not want to wait would have to.
    ///
    /// # Errors
    /// If the store failed, so that it is unknown whether another candidate leads, or if this candidate is unhealthy, so
    /// that it does not bid.
    fn is_in_vain(&self, event: &EventKind) -> Result<bool, Failure> {
        match event {
            _ if !self.gives_up_at_once() => Ok(false),
            EventKind::Error { error } => Err(Failure::new(error_words(error))),
            EventKind::LeaderChanged { leader: Some(leader), .. } => Ok(leader.candidate != *self.election.candidate()),
            EventKind::HealthChanged { healthy: false } => Err(Failure::new(self.verdict.words())),
            _ => Ok(false),
        }
    }

    /// Returns the reason to leave after waiting in vain; `None` if this candidate has won meanwhile, or a signal asks it
    /// to leave.
    pub(super) async fn conflict(&mut self) -> Result<Option<ExitReason>, Failure> {
        // The wait can be shorter than the time that the store needs for its first answer.
        let leader = match self.election.leader() {
            None => tokio::select! {
                biased;
                signal = self.signals.next() => {
                    self.on_signal(signal);
                    self.give_up_at = None;
                    return Ok(None);
                }
                status = self.elections.look(&self.task.job.election) => status?.leader,
            },
            leader => leader,
        };
        Ok(Some(match leader {
            Some(leader) if leader.candidate == *self.election.candidate() => {
                self.give_up_at = self.task.patience.map(|patience| tokio::time::Instant::now() + patience);
                return Ok(None);
            }
            Some(leader) => {
                self.messages.led_by(&leader);
                ExitReason::Conflict { code: self.task.conflict_exit_code }
            }
            None if !self.verdict.text().is_empty() => ExitReason::NotExecuted(Failure::new(self.verdict.words())),
            None => {
                let problem = "no candidate leads yet, and the time of --wait is up; check `tenure candidates`";
                ExitReason::NotExecuted(Failure::new(problem))
            }
        }))
    }
}

/// Waits until this moment; without one, forever.
async fn sleep_until(moment: Option<tokio::time::Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
