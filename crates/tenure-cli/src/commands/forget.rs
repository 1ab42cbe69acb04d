//! `tenure forget`: removes an election, keeps the number that its terms must stay above.

use serde_json::json;
use tenure::{Error, Fault};

use super::{leader_words, print};
use crate::args::{Forget, Global};
use crate::failure::Failure;
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Forget) -> Result<u8, Failure> {
    let elections = setup.elections_to_read()?;
    let look = match elections.look(&args.election).await {
        Ok(look) => look,
        // A record that cannot be read can still be removed.
        Err(Error::Store(error)) if error.fault() == Fault::Denied && args.yes => {
            elections.forget(&args.election).await?;
            return forgotten(global, args, None);
        }
        Err(Error::Store(error)) if error.fault() == Fault::Denied => {
            let election = &args.election;
            return Err(Failure::new(format!(
                "cannot read the seat of {election}: {error}; --yes removes it as it is"
            )));
        }
        Err(error) => return Err(error.into()),
    };
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
    forgotten(global, args, Some(look.token.get()))
}

/// Tells that a seat was removed, and its last token, if that could be read.
fn forgotten(global: &Global, args: &Forget, token: Option<u64>) -> Result<u8, Failure> {
    let election = &args.election;
    if global.json {
        print(json!({ "election": election, "forgotten": true, "token": token }))?;
    } else if !global.quiet {
        print(match token {
            None => format!("{election} is forgotten"),
            Some(0) => format!("nobody ever led {election}: there was nothing to forget"),
            Some(token) => format!("{election} is forgotten; should it be used again, its terms begin after {token}"),
        })?;
    }
    Ok(0)
}
