//! `tenure watch` without a name: all elections of the store, listed again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{Candidate, Elections, Leader, ListedElection, Token};

use super::{key, print_leader, report_failing, report_working};
use crate::args::Global;
use crate::failure::Failure;
use crate::setup::Setup;

/// How often to list the elections. Some stores go through all of their keys for it.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// Prints the leader of each election, and every change. An error of the first list ends the command.
pub(super) async fn print_changes(global: &Global, setup: &Setup) -> Result<u8, Failure> {
    let mut lister = Lister::new(setup)?;
    let mut listed = lister.list().await?;
    let (mut seen, mut failing) = (LastLeaders::default(), false);
    loop {
        for (election, leader) in seen.update(&listed) {
            print_leader(global, setup, &election, leader.as_ref(), true)?;
        }
        listed = loop {
            tokio::time::sleep(EVERY).await;
            match lister.list().await {
                Ok(listed) => break listed,
                Err(error) if !std::mem::replace(&mut failing, true) => report_failing(global, &error),
                Err(_) => {}
            }
        };
        if std::mem::take(&mut failing) {
            report_working(global);
        }
    }
}

/// Lists the elections of a store, whose database need not exist yet.
pub(super) struct Lister<'a> {
    setup: &'a Setup,
    elections: Elections,
    is_missing: bool,
}

impl<'a> Lister<'a> {
    pub(super) fn new(setup: &'a Setup) -> Result<Self, Failure> {
        Ok(Self { setup, elections: setup.elections_read_only()?, is_missing: setup.missing().is_some() })
    }

    pub(super) async fn list(&mut self) -> Result<Vec<ListedElection>, Failure> {
        if self.is_missing && self.setup.missing().is_none() {
            (self.elections, self.is_missing) = (self.setup.elections_read_only()?, false);
        }
        Ok(self.elections.list().await?)
    }
}

/// The leaders as last listed.
#[derive(Default)]
pub(super) struct LastLeaders(BTreeMap<String, Option<(Candidate, Token)>>);

impl LastLeaders {
    /// Takes in a list, and returns the elections whose leader has changed. An election that was forgotten is vacant; one
    /// whose record cannot be read has not changed.
    pub(super) fn update(&mut self, listed: &[ListedElection]) -> Vec<(String, Option<Leader>)> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.0);
        for election in listed {
            let name = election.name.as_str().to_owned();
            let last = before.remove(&name);
            let Ok(status) = &election.status else {
                self.0.extend(last.map(|last| (name, last)));
                continue;
            };
            let now = key(status.leader.as_ref());
            if last.as_ref() != Some(&now) {
                changes.push((name.clone(), status.leader.clone()));
            }
            self.0.insert(name, now);
        }
        changes.extend(before.into_iter().filter(|(_, last)| last.is_some()).map(|(name, _)| (name, None)));
        changes
    }
}
