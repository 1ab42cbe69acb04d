//! `tenure demo`.

use crate::args::{Demo, Global};
use crate::failure::Failure;

pub(crate) fn run(_global: &Global, _args: &Demo) -> Result<u8, Failure> {
    Err(Failure::new("not yet"))
}
