//! A store that reports its time, on a clock that runs at its own rate and can be set (Redis, SQL databases).

use tenure_protocol::{Life, Reading, StoreTime, Swap};

use super::{Model, Shelf, Write, Written};
use crate::clock::Time;

pub(super) struct Clocked {
    shelf: Shelf,
    ppm: i64,
    set_by: i128,
}

impl Clocked {
    pub(super) fn new(shelf: Shelf, ppm: i64) -> Self {
        Self { shelf, ppm, set_by: 0 }
    }

    fn time(&self, now: Time) -> i128 {
        i128::from(now) * i128::from(1_000_000 + self.ppm) / 1_000_000 + self.set_by
    }
}

impl Model for Clocked {
    fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    fn shelf_mut(&mut self) -> &mut Shelf {
        &mut self.shelf
    }

    fn read(&self, now: Time) -> Reading {
        let time = StoreTime::from_nanos(self.time(now));
        self.shelf.reading(now, |kept| Life::Clock { now: time, renewed: StoreTime::from_nanos(kept.written) })
    }

    fn swap(&mut self, now: Time, write: &Write) -> Written {
        let fits = self.shelf.expects_what_is_there(write);
        let time = self.time(now);
        Written::Answer(if fits { self.shelf.put(write, time) } else { Swap::Lost })
    }

    fn renew(&mut self, now: Time, write: &Write) -> Written {
        let fits = self.shelf.renewal_fits(write);
        let time = self.time(now);
        Written::Answer(if fits { self.shelf.put(write, time) } else { Swap::Lost })
    }

    fn step_clock(&mut self, by: i128) {
        self.set_by += by;
    }
}
