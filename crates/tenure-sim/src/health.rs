//! How well a candidate is, counted anew from what it reported: the machine has its own idea.

use tenure_protocol::{Moment, Rules, Score};

/// What a candidate has reported of its health.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    /// Since when it has not been well enough, by the reports that were taken in.
    unwell: Option<Unwell>,
    /// When it was last fit again.
    fit_since: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Unwell {
    since: Moment,
    /// When it reported to be well for the first time since it last reported not to be.
    well_since: Option<Moment>,
}

impl Health {
    pub(crate) fn report(&mut self, now: Moment, score: Score, rules: &Rules) {
        if self.is_fit(now, rules) {
            (self.fit_since, self.unwell) = (self.fit_since(rules), None);
        }
        if score < rules.min_health {
            let since = self.unwell.map_or(now, |unwell| unwell.since);
            self.unwell = Some(Unwell { since, well_since: None });
        } else if let Some(unwell) = &mut self.unwell {
            unwell.well_since.get_or_insert(now);
        }
    }

    /// Whether it is well enough to lead: it is to begin with, and again once it has been well for
    /// long enough.
    pub(crate) fn is_fit(self, now: Moment, rules: &Rules) -> bool {
        self.unwell.is_none() || self.fit_since(rules).is_some_and(|at| now >= at)
    }

    /// When it fell ill; past and gone if it is fit.
    pub(crate) fn unfit_since(self) -> Option<Moment> {
        self.unwell.map(|unwell| unwell.since)
    }

    /// When it became or becomes fit again, if it was not and goes on like this.
    pub(crate) fn fit_since(self, rules: &Rules) -> Option<Moment> {
        match self.unwell {
            Some(unwell) => unwell.well_since.map(|since| since + rules.timing.recovery()),
            None => self.fit_since,
        }
    }
}
