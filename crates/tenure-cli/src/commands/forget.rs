//! `tenure forget`: removes an election, keeps the number that its terms must stay above.

use serde_json::json;

use super::{leader_words, print};
use crate::args::{Forget, Global};
use crate::failure::Failure;
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Forget) -> Result<u8, Failure> {
    let elections = setup.elections_to_read()?;
    let look = elections.look(&args.election).await?;
    if let Some(leader) = &look.leader
        && !args.yes
    {
        let who = leader_words(leader);
        return Err(Failure::new(format!(
            "{who} leads {}: stop it first, or take its seat away with --yes",
            args.election
        )));
    }
    elections.forget(&args.election).await?;
    if global.json {
        print(json!({ "election": args.election, "forgotten": true, "token": look.token.get() }))?;
    } else if !global.quiet && look.token.get() == 0 {
        print(format!("nobody ever led {}: there was nothing to forget", args.election))?;
    } else if !global.quiet {
        print(format!(
            "{} is forgotten; should it be used again, its terms begin after {}",
            args.election, look.token
        ))?;
    }
    Ok(0)
}
