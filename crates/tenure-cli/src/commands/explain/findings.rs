//! Explains an election from its seat and its list of candidates: a list of findings, the most important first.
//!
//! One finding is one sentence or two about one fact, with the command to type next, if there is one. Its code is part
//! of the JSON form, so docs/json.md lists all codes.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tenure::{CandidateStatus, Crash, SeatStatus};

use crate::args::quoted;
use crate::commands::{leader_words, printable};
use crate::screen::{span, timestamp};

/// How far ahead of this machine's clock a time must be to show that the clocks differ.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// How far ahead an occasion may be: a machine that is early counts for the next one, by its `--skew`.
const OCCASION_SLACK: Duration = Duration::from_secs(60);

/// How many candidates to name at most, where all of them have the same problem.
const NAMED: usize = 5;

pub(super) struct Facts<'a> {
    pub(super) election: &'a str,
    /// The URL of the store, without secrets.
    pub(super) store: &'a str,
    /// The database of the store, if it does not exist.
    pub(super) missing: Option<&'a Path>,
    pub(super) seat: &'a SeatStatus,
    pub(super) candidates: &'a [CandidateStatus],
    /// The id or the incarnation of the candidate that the user asks about.
    pub(super) asked: Option<&'a str>,
    pub(super) now: SystemTime,
}

#[derive(Debug)]
pub(super) struct Finding {
    pub(super) code: &'static str,
    pub(super) text: String,
    /// The command to type next.
    pub(super) command: Option<String>,
}

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = vec![facts.headline()];
    if let Some(asked) = facts.asked {
        facts.about(asked, &mut found);
    }
    if facts.seat.leader.is_none() {
        facts.obstacles(&mut found);
    }
    facts.last_crash(&mut found);
    facts.occasion(&mut found);
    facts.leases(&mut found);
    facts.clocks(&mut found);
    if facts.seat.leader.is_none() {
        let unseen = "Candidates that cannot reach the store, and those whose first health check has not returned, are not \
                      listed, so nothing is known about them.";
        found.push(finding("unlisted", unseen));
    }
    found
}

fn finding(code: &'static str, text: impl Into<String>) -> Finding {
    Finding { code, text: text.into(), command: None }
}

impl Finding {
    fn then(mut self, command: String) -> Self {
        self.command = Some(command);
        self
    }
}

impl Facts<'_> {
    /// Says who leads, or how the last term ended.
    fn headline(&self) -> Finding {
        let (name, seat) = (self.name(), self.seat);
        if let Some(leader) = &seat.leader {
            let (who, lease) = (leader_words(leader), self.lease());
            return match seat.expires_in {
                _ if !seat.vouched => finding(
                    "leader_unconfirmed",
                    format!(
                        "{who} leads {name} as last recorded, but the store does not know whether it is alive. Another \
                         candidate takes over after a lease ({lease}) without a renewal."
                    ),
                )
                .then(format!("tenure watch {}", self.word())),
                Some(left) => finding(
                    "leader",
                    format!("{who} leads {name}. Its lease of {lease} expires in {} unless it is renewed.", span(left)),
                ),
                None => finding("leader", format!("{who} leads {name}, and the store knows that it is alive.")),
            };
        }
        if let Some(last) = &seat.lapsed {
            let (who, lease) = (leader_words(last), self.lease());
            let why = "it has died, hangs or cannot reach the store";
            return finding(
                "lapsed",
                format!("{name} has no leader: {who} has not renewed its lease of {lease}, so {why}."),
            );
        }
        match (seat.token.get(), self.missing) {
            (0, Some(path)) => {
                let text = format!("{name} has no leader: the database {} does not exist yet.", path.display());
                finding("no_database", text)
            }
            (0, None) => finding("never_led", format!("{name} has no leader: no candidate has led it yet.")),
            (token, _) => match self.crash() {
                Some(Crash { of, by, .. }) => {
                    let (of, by) = (printable(&of.id), printable(by));
                    let text = format!("{name} has no leader: {of} (term {token}) died, and {by} has freed the seat.");
                    finding("crashed", text)
                }
                None => finding(
                    "vacant",
                    format!("{name} has no leader: the leader of term {token} has released the seat."),
                ),
            },
        }
    }

    /// Returns the crash that ended the last term.
    fn crash(&self) -> Option<&Crash> {
        self.seat.crash.as_deref().filter(|crash| crash.token == self.seat.token)
    }

    /// Says which leader has crashed last, if its term was not the last one.
    fn last_crash(&self, found: &mut Vec<Finding>) {
        if let (None, Some(crash)) = (self.crash(), &self.seat.crash) {
            let (of, token, by) = (printable(&crash.of.id), crash.token, printable(&crash.by));
            let text =
                format!("The last leader that crashed was {of} (term {token}): it died, and {by} freed the seat.");
            found.push(finding("last_crash", text));
        }
    }

    /// Says why no candidate has taken the free seat.
    fn obstacles(&self, found: &mut Vec<Finding>) {
        let name = self.name();
        // A candidate that has died is listed for a while.
        let lapsed = self.seat.lapsed.as_ref().map(|last| last.candidate.incarnation);
        let is_dead = |status: &&CandidateStatus| Some(status.candidate.incarnation) == lapsed;
        let all: Vec<_> = self.candidates.iter().filter(|status| !is_dead(status)).collect();
        if all.is_empty() {
            let text = format!("No candidate stands for {name}.");
            let verb = if self.seat.claim.is_some() { "once --slot SCHEDULE" } else { "run" };
            found.push(finding("no_candidates", text).then(format!("tenure {verb} {} -- CMD", self.word())));
            let text = format!(
                "If candidates are running, they use another store or another name: this command has read {name} in {}.",
                self.store
            );
            found.push(finding("other_store", text));
            return;
        }
        let healthy: Vec<_> = all.iter().copied().filter(|status| status.healthy).collect();
        if healthy.is_empty() {
            let text = match all.len() {
                1 => "The only candidate is not healthy enough to lead.".to_owned(),
                more => format!("None of the {more} candidates is healthy enough to lead."),
            };
            found.push(finding("all_unhealthy", text).then(format!("tenure candidates {}", self.word())));
            return self.unhealthy(found);
        }
        if let Some(heir) = &self.seat.heir {
            let heir_stands = healthy.iter().any(|status| status.candidate == *heir);
            let rest = if heir_stands {
                ""
            } else {
                " It is not listed as healthy, so another candidate takes the seat then."
            };
            let (heir, head_start) = (printable(&heir.id), self.head_start());
            let text = format!("The seat is reserved for {heir} for {head_start} after it was released.{rest}");
            found.push(finding("reserved", text));
        }
        let (held, ready): (Vec<_>, Vec<_>) = healthy.into_iter().partition(|status| self.held_back(status).is_some());
        for status in held.iter().filter(|status| !self.is_asked(status)).take(NAMED) {
            found.extend(self.held_back(status).map(|text| finding("held_back", text)));
        }
        if ready.is_empty() {
            self.unhealthy(found);
        }
        let first = ready.iter().max_by_key(|status| status.priority);
        // Candidates without a priority consider those of others only if the seat says that there are any.
        if let (Some(first), None, true) = (first, &self.seat.heir, self.seat.ranked)
            && ready.iter().any(|status| status.priority < first.priority)
        {
            let (who, priority, head_start) = (shown(first), first.priority, self.head_start());
            let text = format!(
                "{who} goes first, because its priority ({priority}) is the highest. The others leave the seat to it for \
                 {head_start}."
            );
            found.push(finding("priority", text));
        }
        if !ready.is_empty() {
            let names: Vec<String> = ready.iter().take(NAMED).map(|status| shown(status)).collect();
            let wait = match self.seat.lapsed {
                Some(_) => format!("within a lease ({})", self.lease()),
                None => "in a moment".to_owned(),
            };
            let mut text = format!(
                "{} can take the seat, and {} leads {wait}. If the seat stays vacant, writes to the store fail: read the log \
                 of the candidate.",
                names.join(", "),
                if ready.len() == 1 { "it" } else { "one of them" },
            );
            if let Some(crash) = self.crash()
                && ready.iter().any(|status| status.candidate.id == crash.of.id)
            {
                // The record of a crash has no incarnation, so this can also be the next process with that id.
                let (of, lease) = (printable(&crash.of.id), self.lease());
                text.push_str(&format!(
                    " A candidate that died, like {of}, stays listed for up to two leases ({lease} each)."
                ));
            }
            found.push(finding("ready", text).then(format!("tenure watch {}", self.word())));
        }
    }

    /// Says which candidates are unhealthy, besides the one that the user asks about.
    fn unhealthy(&self, found: &mut Vec<Finding>) {
        let unhealthy = self.candidates.iter().filter(|status| !status.healthy && !self.is_asked(status));
        found.extend(unhealthy.take(NAMED).map(|status| finding("unhealthy", format!("{}.", health(status)))));
    }

    fn is_asked(&self, status: &CandidateStatus) -> bool {
        self.asked.is_some_and(|asked| is_named(status, asked))
    }

    /// Says why the candidate that the user asks about does not lead.
    fn about(&self, asked: &str, found: &mut Vec<Finding>) {
        let named: Vec<_> = self.candidates.iter().filter(|status| is_named(status, asked)).collect();
        let (asked, name) = (printable(asked), self.name());
        let leads =
            self.seat.leader.as_ref().is_some_and(|leader| {
                *leader.candidate.id == *asked || leader.candidate.incarnation.to_string() == asked
            });
        if named.is_empty() && !leads {
            let text = format!(
                "{asked} is not listed as a candidate of {name}: it does not run, uses another store or name, cannot reach the \
                 store, or waits for its first health check."
            );
            found.push(finding("not_listed", text).then(format!("tenure candidates {}", self.word())));
        }
        if named.len() > 1 {
            let text = format!("{} candidates have the id {asked}. Name one of them by its incarnation.", named.len());
            found.push(finding("same_id", text).then(format!("tenure candidates --json {}", self.word())));
        }
        for status in named.into_iter().take(NAMED) {
            self.about_listed(status, found);
        }
    }

    fn about_listed(&self, status: &CandidateStatus, found: &mut Vec<Finding>) {
        let who = shown(status);
        if status.is_leader {
            return found.push(finding("candidate_leads", format!("{who} is the leader.")));
        }
        if !status.healthy {
            let text = format!("{}. It stands again after a lease of healthy reports.", health(status));
            found.push(finding("candidate_unhealthy", text));
        }
        if let Some(text) = self.held_back(status) {
            found.push(finding("candidate_held_back", text));
        }
        let goes_first =
            |other: &&CandidateStatus| other.healthy && !other.is_leader && other.priority > status.priority;
        if let Some(other) = self.candidates.iter().filter(goes_first).max_by_key(|other| other.priority) {
            let (other, theirs, own) = (shown(other), other.priority, status.priority);
            let text = format!("{other} goes before {who} when the seat is free: its priority is {theirs}, not {own}.");
            found.push(finding("candidate_outranked", text));
        }
        let Some(leader) = self.seat.leader.as_ref().filter(|_| status.healthy) else { return };
        let leads = printable(&leader.candidate.id);
        let outranks = self.candidates.iter().any(|other| other.is_leader && other.priority < status.priority);
        let text = if outranks {
            let own = status.priority;
            format!(
                "{who} waits for {leads} to leave. Its priority ({own}) is higher, but only with --preempt does it ask."
            )
        } else {
            format!("{who} is healthy and waits for {leads} to leave.")
        };
        let heir = quoted(&status.candidate.id);
        found.push(finding("candidate_waits", text).then(format!("tenure step-down {} --to {heir}", self.word())));
    }

    /// Says which occasion of `tenure once` was claimed last.
    fn occasion(&self, found: &mut Vec<Finding>) {
        let Some(claim) = &self.seat.claim else { return };
        let (by, token) = (printable(&claim.by), claim.token);
        let Some(at) = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(claim.at_ms)) else { return };
        let end = match claim.done {
            true => "whose command has ended",
            false => "which has not recorded the end of its command: the command runs, or had to stop",
        };
        let text = format!(
            "`tenure once` does not run again for occasions up to {}: {by} (term {token}) took that one, {end}.",
            timestamp(at)
        );
        found.push(finding(if claim.done { "occasion_done" } else { "occasion_taken" }, text));
        if let Some(ahead) = ahead(at, self.now, OCCASION_SLACK) {
            let text = format!(
                "That occasion is {} ahead of this machine's clock, so the clock of {by} was fast, or this one is slow. \
                 Forgetting the election gives the occasion up.",
                span(ahead)
            );
            found.push(finding("occasion_ahead", text).then(format!("tenure forget {}", self.word())));
        }
    }

    /// Says that candidates have different leases.
    fn leases(&self, found: &mut Vec<Finding>) {
        let leases: BTreeSet<Duration> = self.candidates.iter().filter_map(|status| status.lease).collect();
        if let (Some(shortest), Some(longest), true) = (leases.first(), leases.last(), leases.len() > 1) {
            let text = format!(
                "The candidates have different leases, from {} to {}. The lease of the leader counts: give all of them the \
                 same --lease.",
                span(*shortest),
                span(*longest)
            );
            found.push(finding("leases_differ", text));
        }
    }

    /// Says which clocks are ahead of this machine's. A clock that is behind cannot be told from old news.
    fn clocks(&self, found: &mut Vec<Finding>) {
        let times = |status: &CandidateStatus| status.since.into_iter().chain(status.updated).max();
        let mut fast: Vec<_> = self
            .candidates
            .iter()
            .filter_map(|status| Some((shown(status), ahead(times(status)?, self.now, CLOCK_SLACK)?)))
            .collect();
        if let Some(leader) = self.seat.leader.as_ref()
            && let Some(ahead) = leader.since.and_then(|since| ahead(since, self.now, CLOCK_SLACK))
            && !fast.iter().any(|(who, _)| *who == printable(&leader.candidate.id))
        {
            fast.push((printable(&leader.candidate.id), ahead));
        }
        for (who, ahead) in fast.into_iter().take(NAMED) {
            let text = format!(
                "The clock of {who} is ahead of this machine's by at least {}. Leases do not depend on these clocks, but \
                 `tenure once` and all times shown do.",
                span(ahead)
            );
            found.push(finding("clock_ahead", text));
        }
    }

    /// Returns that a candidate holds back after it has stepped down, if it does.
    fn held_back(&self, status: &CandidateStatus) -> Option<String> {
        let left = status.held_back_until?.duration_since(self.now).ok()?;
        Some(format!("{} has stepped down, and leaves the seat to others for up to {}.", shown(status), span(left)))
    }

    fn name(&self) -> String {
        printable(self.election)
    }

    /// Returns the name of the election for a command line.
    fn word(&self) -> String {
        quoted(self.election)
    }

    fn lease(&self) -> String {
        self.seat.lease.map_or_else(|| "unknown length".to_owned(), span)
    }

    /// Returns how long the seat is left to one candidate.
    fn head_start(&self) -> String {
        let lease = self.seat.lease.map(|lease| format!(" ({})", span(lease * 2 / 5)));
        format!("two fifths of a lease{}", lease.unwrap_or_default())
    }
}

fn is_named(status: &CandidateStatus, name: &str) -> bool {
    &*status.candidate.id == name || status.candidate.incarnation.to_string() == name
}

fn shown(status: &CandidateStatus) -> String {
    printable(&status.candidate.id)
}

/// Says that a candidate is unhealthy, with the error of its last report.
fn health(status: &CandidateStatus) -> String {
    let error = status.metadata.get("error").map(|error| format!(", error: {}", printable(error)));
    let error = error.unwrap_or_default();
    format!("{} is not healthy enough to lead (score {:.2}{error})", shown(status), status.score)
}

/// Returns how far a time is ahead of `now`, if that is more than `slack`.
fn ahead(time: SystemTime, now: SystemTime, slack: Duration) -> Option<Duration> {
    time.duration_since(now).ok().filter(|ahead| *ahead > slack)
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
