//! The health of a candidate as a number.

use std::fmt;

/// The health that a candidate reports about itself, from 0 (unhealthy) to 1 (perfectly healthy).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score(u32);

impl Score {
    const WHOLE: u32 = 1_000_000;

    /// The lowest score: the candidate is not healthy at all.
    pub const ZERO: Self = Self(0);

    /// The highest score, which a candidate has until it reports another one.
    pub const FULL: Self = Self(Self::WHOLE);

    /// Returns the score of `percent` percent, which must be at most 100.
    pub(crate) const fn of_percent(percent: u32) -> Self {
        Self(percent * (Self::WHOLE / 100))
    }

    /// Returns the score for `number`, or `None` if `number` is not between 0 and 1 or is not a number.
    pub fn new(number: f64) -> Option<Self> {
        (0.0..=1.0).contains(&number).then(|| Self((number * f64::from(Self::WHOLE)).round() as u32))
    }

    /// Returns the score as a number from 0 to 1, with six decimal places.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl fmt::Debug for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Score;

    #[test]
    fn a_score_is_from_zero_to_one() {
        for bad in [-0.1, 1.000_001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Score::new(bad), None, "{bad}");
        }
        for (number, text) in [(0.0, "0"), (-0.0, "0"), (0.8, "0.8"), (1.0, "1")] {
            assert_eq!(Score::new(number).unwrap().to_string(), text);
        }
        assert!(Score::ZERO < Score::new(0.799_999).unwrap() && Score::new(0.8).unwrap() < Score::FULL);
    }
}
