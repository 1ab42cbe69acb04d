//! `tenure once`: runs a command on one of many machines, once for each occasion.

use std::time::SystemTime;

use tenure::Occasion;

use super::run::{Task, raw_arguments, run_task};
use crate::args::{Global, OnLoss, Once};
use crate::failure::Failure;
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: Once) -> Result<u8, Failure> {
    args.job.reject_doubtful("once", &raw_arguments())?;
    if args.job.command().is_empty() {
        return Err(Failure::new(
            "no command; write: tenure once --slot SCHEDULE ELECTION -- CMD…; for hooks without CMD, use tenure run",
        ));
    }
    let options = setup.options(&args.job.election).overlaid(args.job.overrides());
    if args.resume && options.release_on_stop == Some(false) {
        // The release records that the command has ended.
        return Err(Failure::new(
            "--resume cannot be used without a release of the seat, because each candidate would run the command again; \
             leave out --no-release-on-stop, and release_on_stop in tenure.toml and in TENURE_RELEASE_ON_STOP",
        ));
    }
    let now = SystemTime::now();
    let occasion = match (&args.slot, args.within) {
        (Some(schedule), _) => Occasion::at(schedule.slot(now, args.skew)?),
        (None, span) => Occasion::within(now, span.unwrap_or_default()),
    };
    let task = Task {
        occasion: Some(if args.resume { occasion.resumable() } else { occasion }),
        // If it is not resumed, this candidate would find its own claim, and leave.
        on_loss: if args.resume { OnLoss::Stand } else { OnLoss::Exit },
        patience: args.wait.limit(),
        conflict_exit_code: args.conflict_exit_code,
        job: args.job,
    };
    run_task(global, setup, task).await
}
