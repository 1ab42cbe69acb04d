//! The laws about faults hold on a tiny server without flaws.

#[allow(dead_code, reason = "another test uses the flaws")]
mod tiny;

mod laws {
    tenure_testkit::faults!(crate::tiny::TinyServer);
}
