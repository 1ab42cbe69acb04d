//! The list of candidates of an election, as the store keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tenure_protocol::{Candidate, RosterEntry, Score};

use crate::leader::time;
use crate::{Error, Note, record};

/// A candidate in the list of candidates of an election. See
/// [`Election::candidates`](crate::Election::candidates).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CandidateStatus {
    /// The id and the incarnation of the candidate.
    pub candidate: Candidate,
    /// The health that the candidate last reported, from 0 to 1.
    pub score: f64,
    /// Whether the candidate is healthy enough to lead. After a bad report it takes a lease of good reports.
    pub healthy: bool,
    /// The priority: when the seat is free, the candidate with the highest one goes first.
    pub priority: i32,
    /// The metadata of the candidate's options, overlaid with the metadata of its last health report.
    pub metadata: BTreeMap<String, String>,
    /// When the candidate began to stand, by its own wall clock.
    pub since: Option<SystemTime>,
    /// When the candidate last changed its announcement, by its own wall clock. This is not a heartbeat: a listed
    /// candidate is alive, no matter how old its announcement is.
    pub updated: Option<SystemTime>,
    /// The lease that the candidate asks for; `None` if an older version of Tenure has announced it.
    pub lease: Option<Duration>,
    /// Until when the candidate leaves the seat to others, by its own wall clock, because it has stepped down. It stands
    /// again earlier if another candidate has led in the meantime.
    pub held_back_until: Option<SystemTime>,
    /// Whether this candidate held the seat when the list was read.
    pub is_leader: bool,
}

/// Pairs of text that a candidate publishes about itself: names and values.
///
/// `()` converts to an empty map; a `BTreeMap` and an array of pairs convert to these pairs.
///
/// ```
/// # use tenure_core::Metadata;
/// let metadata: Metadata = [("queue", "17"), ("zone", "east")].into();
/// assert_eq!(metadata.0["zone"], "east");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(pub BTreeMap<String, String>);

impl Metadata {
    /// The longest metadata: the bytes of all names and values together.
    pub const LONGEST: usize = 64 * 1024;

    pub(crate) fn check(map: &BTreeMap<String, String>) -> Result<(), Error> {
        let bytes: usize = map.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes <= Self::LONGEST {
            return Ok(());
        }
        Err(Error::MetadataTooLong { bytes })
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

/// The JSON form of a candidate on the board of its seat.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_back_until_ms: Option<u64>,
}

impl Announcement {
    /// Parses an announcement; `None` if the note has another form.
    pub(crate) fn read(note: &Note) -> Option<CandidateStatus> {
        let form: Self = serde_json::from_str(&note.value).ok()?;
        Some(CandidateStatus {
            candidate: Candidate { id: form.id.into(), incarnation: record::incarnation(&note.key)? },
            score: Score::new(form.score).unwrap_or(Score::ZERO).get(),
            healthy: form.healthy,
            priority: form.priority,
            metadata: form.metadata,
            since: time(form.since_ms),
            updated: time(form.updated_ms),
            lease: form.lease_ms.map(Duration::from_millis),
            held_back_until: time(form.held_back_until_ms),
            is_leader: false,
        })
    }
}

impl CandidateStatus {
    pub(crate) fn entry(self) -> RosterEntry {
        RosterEntry { candidate: self.candidate, priority: self.priority, fit: self.healthy }
    }
}

/// Returns the candidates whose process is listed as running.
pub(crate) fn present(candidates: &[Note], processes: &[Note]) -> Vec<CandidateStatus> {
    let processes: BTreeSet<_> = processes.iter().map(|process| &process.key).collect();
    candidates.iter().filter(|note| processes.contains(&note.key)).filter_map(Announcement::read).collect()
}

/// Sorts candidates: the leader first, then by priority, then by id.
pub(crate) fn sort(roster: &mut [CandidateStatus]) {
    roster.sort_by(|a, b| {
        (b.is_leader, b.priority).cmp(&(a.is_leader, a.priority)).then_with(|| a.candidate.cmp(&b.candidate))
    });
}

/// Finds the candidate with this id or incarnation, if it can take over.
pub(crate) fn heir(roster: &[CandidateStatus], named: &str, election: &str) -> Result<Candidate, Error> {
    let is_meant =
        |status: &&CandidateStatus| &*status.candidate.id == named || status.candidate.incarnation.to_string() == named;
    let meant: Vec<_> = roster.iter().filter(is_meant).collect();
    let refused = |problem: String| Error::NoSuchHeir { candidate: named.to_owned(), problem };
    if meant.is_empty() {
        let others: Vec<_> = roster.iter().take(10).map(|status| &*status.candidate.id).collect();
        let others = if others.is_empty() {
            "there are no candidates".to_owned()
        } else {
            format!("the candidates are: {}", others.join(", "))
        };
        return Err(refused(format!("does not stand for {election:?}; {others}")));
    }
    if meant.iter().any(|status| status.is_leader) {
        return Err(refused("already leads the election; choose another candidate".to_owned()));
    }
    match meant.iter().find(|status| status.healthy) {
        Some(status) => Ok(status.candidate.clone()),
        None => Err(refused(format!("is not healthy enough to lead (score {})", meant[0].score))),
    }
}
