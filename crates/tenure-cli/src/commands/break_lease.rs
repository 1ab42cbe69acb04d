//! `tenure break-lease`: breaks the lease that another program holds on the blob of an election.

use crate::args::{BreakLease, Global};
use crate::failure::Failure;
use crate::setup::Setup;

#[cfg(feature = "azure-blob")]
pub(crate) async fn run(global: &Global, setup: &Setup, args: &BreakLease) -> Result<u8, Failure> {
    use std::sync::Arc;

    use serde_json::json;
    use tenure::azure_blob::{AzureBlobStore, SCHEMES};
    use tenure::{Error, SeatName};

    use super::{leader_words, print};
    use crate::json::versioned;

    let election = &args.election;
    if !setup.url().split(':').next().is_some_and(|scheme| SCHEMES.contains(&scheme)) {
        return Err(no_leases(setup));
    }
    let seat = SeatName::new(election.as_str()).map_err(|error| Failure::new(error.to_string()))?;
    if !args.yes {
        let look = setup.elections_to_read()?.look(election).await;
        return Err(Failure::new(match look {
            Err(error) => match error.to_string().split_once("; stop that program") {
                Some((lease, _)) => format!("{lease}; if that program is gone, pass --yes to break its lease"),
                None => return Err(error.into()),
            },
            Ok(look) => match &look.leader {
                Some(leader) => {
                    let who = leader_words(leader);
                    format!("{who} leads {election}, and would lose its term; pass --yes to break its lease")
                }
                None => format!("no candidate leads {election}; pass --yes to break a lease of another program"),
            },
        }));
    }
    let store = AzureBlobStore::from_url(setup.url())?;
    let broken = store.break_lease(&seat).await.map_err(|error| Error::from(Arc::new(error)))?;
    if global.json {
        print(versioned(json!({ "election": election, "store": setup.shown(), "broken": broken })))?;
    } else if !global.quiet {
        print(match broken {
            true => format!("broke the lease on {election}; it ends within 60s"),
            false => format!("nothing to break: there is no lease on {election}"),
        })?;
    }
    Ok(0)
}

#[cfg(not(feature = "azure-blob"))]
pub(crate) async fn run(_: &Global, setup: &Setup, _: &BreakLease) -> Result<u8, Failure> {
    Err(no_leases(setup))
}

fn no_leases(setup: &Setup) -> Failure {
    Failure::new(format!("{} has no leases to break; only azblob:// stores have them", setup.shown()))
}
