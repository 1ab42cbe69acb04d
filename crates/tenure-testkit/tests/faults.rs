//! The laws about faults hold on a tiny server that does everything right.

#[allow(dead_code, reason = "flaws are for another test")]
mod tiny;

mod laws {
    tenure_testkit::faults!(crate::tiny::TinyServer);
}
