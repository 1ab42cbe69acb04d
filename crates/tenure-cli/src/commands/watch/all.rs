//! `tenure watch` without a name: all elections of the store, listed again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure::{Candidate, Crash, Elections, ListedElection, Token};

use super::{Change, key, print_crash, print_leader, report_failing, report_unreadable, report_working};
use crate::args::Global;
use crate::failure::Failure;
use crate::setup::Setup;

/// How often to list the elections. Some stores go through all of their keys for it.
pub(super) const EVERY: Duration = Duration::from_secs(2);

/// Prints the leader of each election, and every change. An error of the first list ends the command.
pub(super) async fn print_changes(global: &Global, setup: &Setup) -> Result<u8, Failure> {
    let mut lister = Lister::new(setup)?;
    let mut listed = lister.list().await?;
    let (mut seen, mut failing, mut unreadable) = (LastLeaders::default(), false, BTreeSet::new());
    loop {
        for ListedElection { name, status, .. } in &listed {
            match status {
                Ok(_) => drop(unreadable.remove(name)),
                Err(error) if unreadable.insert(name.clone()) => report_unreadable(global, name.as_str(), error),
                Err(_) => {}
            }
        }
        for (election, change) in seen.update(&listed) {
            match change {
                Change::Leader(leader) => print_leader(global, setup, &election, leader.as_ref(), true)?,
                Change::Crash(crash) => print_crash(global, setup, &election, &crash, true)?,
            }
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

/// The leaders and their crashes as last listed.
#[derive(Default)]
pub(super) struct LastLeaders(BTreeMap<String, Last>);

struct Last {
    leader: Option<(Candidate, Token)>,
    crash: Option<Arc<Crash>>,
}

impl LastLeaders {
    /// Takes in a list, and returns the changes. An election that was forgotten is vacant; one whose record cannot be
    /// read has not changed. The first list reports only a crash to which the seat is vacant.
    pub(super) fn update(&mut self, listed: &[ListedElection]) -> Vec<(String, Change)> {
        let mut changes = Vec::new();
        let mut before = std::mem::take(&mut self.0);
        for election in listed {
            let name = election.name.as_str().to_owned();
            let last = before.remove(&name);
            let Ok(status) = &election.status else {
                self.0.extend(last.map(|last| (name, last)));
                continue;
            };
            let now = Last { leader: key(status.leader.as_ref()), crash: status.crash.clone() };
            let is_news = match &last {
                Some(last) => last.crash != now.crash,
                None => status.leader.is_none() && now.crash.as_ref().is_some_and(|crash| crash.token == status.token),
            };
            if let Some(crash) = now.crash.clone().filter(|_| is_news) {
                changes.push((name.clone(), Change::Crash(crash)));
            }
            if last.is_none_or(|last| last.leader != now.leader) {
                changes.push((name.clone(), Change::Leader(status.leader.clone())));
            }
            self.0.insert(name, now);
        }
        let forgotten = before.into_iter().filter(|(_, last)| last.leader.is_some());
        changes.extend(forgotten.map(|(name, _)| (name, Change::Leader(None))));
        changes
    }
}
