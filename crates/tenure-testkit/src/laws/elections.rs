//! Laws about elections over a store, through the real engine and in real time.
//!
//! Nothing in them depends on luck: what must happen is waited for, with patience; what must never
//! happen is judged by moments that were noted, however busy the machine is.

use crate::law::laws;

laws![a_leader_that_stops_hands_over,];
