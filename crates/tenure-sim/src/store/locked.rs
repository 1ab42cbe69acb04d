//! A store that reports its time, and that knows by a lock whether the holder's process is gone (SQLite, for
//! the processes of one machine).
//!
//! A free lock proves that the holder is gone, with all its work. A lock that is held proves nothing beyond the
//! lease: a paused process keeps its lock, but its seat lapses.

use tenure_protocol::{Incarnation, Life, Reading};

use super::clocked::Clocked;
use super::{Model, Shelf, Write, Written};
use crate::clock::Time;

pub(super) struct Locked {
    clocked: Clocked,
    gone: Vec<Incarnation>,
}

impl Locked {
    pub(super) fn new(clocked: Clocked) -> Self {
        Self { clocked, gone: Vec::new() }
    }
}

impl Model for Locked {
    fn shelf(&self) -> &Shelf {
        self.clocked.shelf()
    }

    fn shelf_mut(&mut self) -> &mut Shelf {
        self.clocked.shelf_mut()
    }

    fn read(&self, now: Time) -> Reading {
        let mut reading = self.clocked.read(now);
        if let Some(seat) = &mut reading.seat
            && seat.record.holder.as_ref().is_some_and(|holder| self.gone.contains(&holder.incarnation))
        {
            seat.life = Life::Over;
        }
        reading
    }

    fn swap(&mut self, now: Time, write: &Write) -> Written {
        self.clocked.swap(now, write)
    }

    fn renew(&mut self, now: Time, write: &Write) -> Written {
        self.clocked.renew(now, write)
    }

    fn process_gone(&mut self, who: Incarnation) {
        self.gone.push(who);
    }
}
