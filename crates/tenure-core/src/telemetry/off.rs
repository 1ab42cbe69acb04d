//! Replaces `telemetry.rs` if the feature `metrics` is off. It measures nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::election::Shared;
use crate::{EventKind, Moment};

pub(crate) fn started(_: &Arc<Shared>) {}

pub(crate) fn count(_: &Arc<Shared>, _: &EventKind) {}

pub(crate) fn extended(_: &Arc<Shared>, _: Moment) {}

pub(crate) fn renewed(_: &Arc<Shared>, _: Duration, _: &'static str) {}

pub(crate) fn term_ended(_: &Arc<Shared>, _: Duration) {}

pub(crate) fn handed_over(_: &Arc<Shared>, _: Duration) {}
