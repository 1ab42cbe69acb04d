//! Pseudo-random numbers from a seed, so that a run can be replayed.

use std::time::Duration;

/// A small pseudo-random number generator (splitmix64). It is not cryptographically secure.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator. The same seed always yields the same sequence of numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next random number, uniform over all of `u64`.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `end`, or zero if `end` is zero.
    pub const fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { ((self.roll() as u128 * end as u128) >> 64) as u64 }
    }

    /// Returns a random duration above zero and at most `longest`: full jitter for back-off.
    pub fn jitter(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(nanos).saturating_add(1))
    }

    /// Returns true with a probability of `per_mille` in a thousand.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}
