//! A store that only shows that versions change (objects with an ETag, Kubernetes).

use tenure_protocol::{Life, Reading, Swap};

use super::{Model, Shelf, Write, Written};
use crate::clock::Time;

pub(super) struct Observed {
    shelf: Shelf,
}

impl Observed {
    pub(super) fn new(shelf: Shelf) -> Self {
        Self { shelf }
    }
}

impl Model for Observed {
    fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    fn shelf_mut(&mut self) -> &mut Shelf {
        &mut self.shelf
    }

    fn read(&self, now: Time) -> Reading {
        self.shelf.reading(now, |_| Life::Observe)
    }

    fn swap(&mut self, _now: Time, write: &Write) -> Written {
        let fits = self.shelf.expects_what_is_there(write);
        Written::Answer(if fits { self.shelf.put(write, 0) } else { Swap::Lost })
    }

    fn renew(&mut self, _now: Time, write: &Write) -> Written {
        let fits = self.shelf.renewal_fits(write);
        Written::Answer(if fits { self.shelf.put(write, 0) } else { Swap::Lost })
    }
}
