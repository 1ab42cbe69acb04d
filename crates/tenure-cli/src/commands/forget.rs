//! `tenure forget`: removes an election, but keeps the lower bound for its next token.

use serde_json::json;
use tenure::{Error, Fault, Token};

use super::{leader_words, print};
use crate::args::{Forget, Global};
use crate::failure::Failure;
use crate::json::versioned;
use crate::setup::Setup;

pub(crate) async fn run(global: &Global, setup: &Setup, args: &Forget) -> Result<u8, Failure> {
    let elections = setup.elections_to_read()?;
    let look = match elections.look(&args.election).await {
        Ok(look) => look,
        // A record that cannot be read can still be removed.
        Err(Error::Store(error)) if error.fault() == Fault::Denied && args.yes => {
            elections.forget(&args.election).await?;
            return print_forgotten(global, setup, args, None);
        }
        Err(Error::Store(error)) if error.fault() == Fault::Denied => {
            let election = &args.election;
            return Err(Failure::new(format!(
                "cannot read the seat of {election}: {error}; pass --yes to remove it anyway"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(leader) = &look.leader
        && !args.yes
    {
        let who = leader_words(leader);
        return Err(Failure::new(format!(
            "{who} leads {}; stop it first, or pass --yes to remove the election while it leads",
            args.election
        )));
    }
    elections.forget(&args.election).await?;
    print_forgotten(global, setup, args, Some(look.token.get()))
}

/// Prints that a seat was removed, with its last token, if that could be read.
fn print_forgotten(global: &Global, setup: &Setup, args: &Forget, token: Option<u64>) -> Result<u8, Failure> {
    let election = &args.election;
    if global.json {
        let store = setup.shown();
        print(versioned(json!({ "election": election, "store": store, "forgotten": true, "token": token })))?;
    } else if !global.quiet {
        print(match token {
            // Above the highest token there is none, so the floor is not kept.
            None => format!("removed {election}"),
            Some(token) if token == Token::MAX.get() => format!("removed {election}"),
            Some(0) => format!("nothing to remove: no candidate has led {election} yet"),
            Some(token) => format!("removed {election}; if it is used again, its terms start above {token}"),
        })?;
    }
    Ok(0)
}
