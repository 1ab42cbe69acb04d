//! Machines that are broken on purpose.
