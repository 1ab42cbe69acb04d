//! The candidates of an election, as the store has them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenure_protocol::{Candidate, Score, Standing};

use crate::{Error, Note, record};

/// A candidate as it stands on the roster of an election. See
/// [`Election::candidates`](crate::Election::candidates).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CandidateStatus {
    /// Who it is.
    pub candidate: Candidate,
    /// How well it is, from 0 to 1.
    pub score: f64,
    /// Whether it is well enough to lead: it has been for a while, if it was not before.
    pub healthy: bool,
    /// The higher, the sooner its turn when the seat is free.
    pub priority: i32,
    /// What it says about itself: its options first, then what it last reported.
    pub metadata: BTreeMap<String, String>,
    /// When it began to stand, by its own wall clock, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// When it last told of itself, by its own wall clock, in milliseconds since 1970. It tells when
    /// something has changed; that it is listed says that it is there.
    pub updated_ms: Option<u64>,
    /// Whether it leads.
    pub is_leader: bool,
}

/// What candidates tell about themselves: names and values.
///
/// `()` is nothing; pairs, a map and an array of pairs can be turned into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub BTreeMap<String, String>);

impl Metadata {
    /// No more than this many bytes of names and values.
    pub const LONGEST: usize = 64 * 1024;

    pub(crate) fn check(map: &BTreeMap<String, String>) -> Result<(), Error> {
        let bytes: usize = map.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes <= Self::LONGEST {
            return Ok(());
        }
        Err(Error::BadHealth(format!("the metadata is too long ({bytes} bytes): use at most {}", Self::LONGEST)))
    }
}

impl From<()> for Metadata {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<BTreeMap<String, String>> for Metadata {
    fn from(map: BTreeMap<String, String>) -> Self {
        Self(map)
    }
}

impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for Metadata {
    fn from(pairs: [(K, V); N]) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// A candidate as it is written on the board of its seat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) id: String,
    pub(crate) score: f64,
    pub(crate) healthy: bool,
    #[serde(default)]
    pub(crate) priority: i32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) since_ms: Option<u64>,
    pub(crate) updated_ms: Option<u64>,
}

impl Announcement {
    /// `None` if it is not one of ours.
    pub(crate) fn read(note: &Note) -> Option<CandidateStatus> {
        let form: Self = serde_json::from_str(&note.value).ok()?;
        Some(CandidateStatus {
            candidate: Candidate { id: form.id.into(), incarnation: record::incarnation(&note.key)? },
            score: Score::new(form.score).unwrap_or(Score::ZERO).get(),
            healthy: form.healthy,
            priority: form.priority,
            metadata: form.metadata,
            since_ms: form.since_ms,
            updated_ms: form.updated_ms,
            is_leader: false,
        })
    }
}

impl CandidateStatus {
    pub(crate) fn standing(self) -> Standing {
        Standing { candidate: self.candidate, priority: self.priority, fit: self.healthy }
    }
}

/// Candidates whose process is there.
pub(crate) fn present(candidates: &[Note], processes: &[Note]) -> Vec<CandidateStatus> {
    let processes: BTreeSet<_> = processes.iter().map(|process| &process.key).collect();
    candidates.iter().filter(|note| processes.contains(&note.key)).filter_map(Announcement::read).collect()
}

/// In the order in which they are of interest: the leader, then by priority, then by name.
pub(crate) fn sort(roster: &mut [CandidateStatus]) {
    roster.sort_by(|a, b| {
        (b.is_leader, b.priority).cmp(&(a.is_leader, a.priority)).then_with(|| a.candidate.cmp(&b.candidate))
    });
}

/// The candidate that is meant, among those that stand.
pub(crate) fn heir(roster: &[CandidateStatus], named: &str, election: &str) -> Result<Candidate, Error> {
    let is_meant =
        |status: &&CandidateStatus| &*status.candidate.id == named || status.candidate.incarnation.to_string() == named;
    let meant: Vec<_> = roster.iter().filter(is_meant).collect();
    let refused = |problem: String| Error::NoSuchHeir { candidate: named.to_owned(), problem };
    if meant.is_empty() {
        let others: Vec<_> = roster.iter().take(10).map(|status| &*status.candidate.id).collect();
        let others =
            if others.is_empty() { "nobody does".to_owned() } else { format!("these do: {}", others.join(", ")) };
        return Err(refused(format!("does not stand for {election:?}; {others}")));
    }
    if meant.iter().any(|status| status.is_leader) {
        return Err(refused("leads already".to_owned()));
    }
    match meant.iter().find(|status| status.healthy) {
        Some(status) => Ok(status.candidate.clone()),
        None => Err(refused(format!("is not well enough to lead (score {})", meant[0].score))),
    }
}
