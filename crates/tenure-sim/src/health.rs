//! The health of a candidate, computed from its reports independently of the machine.

use tenure_protocol::{Moment, Rules, Score};

/// The health reports of a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    /// Since when it has been unhealthy, according to the reports that were processed.
    unhealthy: Option<Unhealthy>,
    /// When it last became fit again.
    fit_since: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Unhealthy {
    since: Moment,
    /// When it first reported good health after its last bad report.
    healthy_since: Option<Moment>,
}

impl Health {
    pub(crate) fn report(&mut self, now: Moment, score: Score, rules: &Rules) {
        if self.is_fit(now, rules) {
            (self.fit_since, self.unhealthy) = (self.fit_since(rules), None);
        }
        if score < rules.min_health {
            let since = self.unhealthy.map_or(now, |unhealthy| unhealthy.since);
            self.unhealthy = Some(Unhealthy { since, healthy_since: None });
        } else if let Some(unhealthy) = &mut self.unhealthy {
            unhealthy.healthy_since.get_or_insert(now);
        }
    }

    /// Returns whether it is healthy enough to lead: from the start, and again after it has been healthy for
    /// long enough.
    pub(crate) fn is_fit(self, now: Moment, rules: &Rules) -> bool {
        self.unhealthy.is_none() || self.fit_since(rules).is_some_and(|at| now >= at)
    }

    /// Returns when it became unhealthy. The result is outdated if it is fit again.
    pub(crate) fn unfit_since(self) -> Option<Moment> {
        self.unhealthy.map(|unhealthy| unhealthy.since)
    }

    /// Returns when it became or becomes fit again, if its health stays good.
    pub(crate) fn fit_since(self, rules: &Rules) -> Option<Moment> {
        match self.unhealthy {
            Some(unhealthy) => unhealthy.healthy_since.map(|since| since + rules.timing.recovery()),
            None => self.fit_since,
        }
    }
}
