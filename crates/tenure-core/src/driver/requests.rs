//! Requests to the leader and the list of candidates.

use std::collections::VecDeque;

use futures_util::FutureExt;
use futures_util::future::{try_join, try_join3};
use serde::{Deserialize, Serialize};
use tenure_protocol::{Candidate, Input, Request, Token};
use tokio::sync::oneshot;

use super::calls::{Answer, log_failed, read_one};
use super::notes::notes_of;
use super::{Driver, ElectionId};
use crate::record::HolderForm;
use crate::roster;
use crate::{Board, CandidateStatus, DynStore, Error, Leader, Note, NoteWrite, SeatName, SeatStatus, StoreError};

impl Driver {
    /// Reads the requests to the leader, which is this candidate. `take_requests` removes them from the board.
    pub(super) fn read_board(&mut self, election: ElectionId, inputs: &mut VecDeque<Input>) {
        if self.store.notes().is_none() {
            return inputs.push_back(Input::Requests(Vec::new()));
        }
        self.subscriptions.board_sent(election);
        let seat = self.seat(election);
        let list = self.list_board(election, Board::Requests(seat.clone()));
        let board = self.call(election, async move {
            Answer::Requests(list.await.unwrap_or_else(|error| {
                log_failed(seat, error, "requests to the leader could not be read");
                Vec::new()
            }))
        });
        self.entries.get_mut(&election).expect("it is being stepped").board = Some(Box::new(board));
    }

    /// Removes requests that were read, and returns them. The leader obeys them without waiting for the removal, even
    /// if it fails. A request to a later term is not removed: this leader has been replaced while it read.
    pub(super) fn take_requests(&mut self, election: ElectionId, notes: Vec<Note>) -> Vec<Request> {
        let requests: Vec<_> = notes.iter().map(|note| RequestForm::parse(&note.value)).collect();
        let board = Board::Requests(self.seat(election));
        let term = self.entries.get(&election).and_then(|entry| Some(entry.shared.state().term.as_ref()?.token()));
        let is_for_later =
            |request: &Option<Request>| request.as_ref().is_some_and(|request| Some(request.token()) > term);
        for (Note { key, .. }, request) in notes.into_iter().zip(&requests) {
            if is_for_later(request) {
                continue;
            }
            self.remove_request(election, &board, key);
        }
        requests.into_iter().flatten().collect()
    }

    /// Reads the list of candidates, to find out which candidate goes first.
    pub(super) fn read_roster(&mut self, election: ElectionId, inputs: &mut VecDeque<Input>) {
        if self.store.notes().is_none() {
            return inputs.push_back(Input::Roster(Vec::new()));
        }
        let name = self.seat(election);
        let candidates = self.list_board(election, Board::Candidates(name.clone()));
        let processes = self.list_board(election, Board::Processes);
        let roster = self.call(election, async move {
            let roster = match try_join(candidates, processes).await {
                Ok((candidates, processes)) => roster::present(&candidates, &processes),
                Err(error) => {
                    log_failed(name, error, "the list of candidates could not be read");
                    Vec::new()
                }
            };
            Answer::Roster(roster.into_iter().map(CandidateStatus::entry).collect())
        });
        self.entries.get_mut(&election).expect("it is being stepped").roster = Some(Box::new(roster));
    }

    /// Writes a request to the leader. If it is lost, the machine sends it again.
    pub(super) fn ask(&mut self, election: ElectionId, request: &Request) {
        if self.store.notes().is_none() {
            return;
        }
        let name = self.seat(election);
        let put = self.put_request(election, RequestForm::of(request, &self.entries[&election].shared.candidate));
        tokio::spawn(async move {
            if let Err(error) = put.await {
                log_failed(name, error, "a request to the leader could not be written");
            }
        });
    }

    pub(super) fn request_step_down(
        &mut self,
        election: ElectionId,
        reply: oneshot::Sender<Result<Option<Leader>, Error>>,
    ) {
        let Some(entry) = self.entries.get(&election) else { return };
        if let Some(error) = self.unsupported() {
            return drop(reply.send(Err(error)));
        }
        let Some(leader) = entry.shared.state().leader.clone() else { return drop(reply.send(Ok(None))) };
        let request = Request::StepDown { token: leader.token, to: None };
        let put = self.put_request(election, RequestForm::of(&request, &entry.shared.candidate));
        tokio::spawn(async move {
            let answer = put.await.map(|()| Some(leader)).map_err(|error| Error::Store(error.into()));
            let _ = reply.send(answer);
        });
    }

    /// Reads the leader and the candidates. `on_heir` continues when both are known.
    pub(super) fn transfer(&mut self, election: ElectionId, to: String, reply: oneshot::Sender<Result<(), Error>>) {
        if !self.entries.contains_key(&election) {
            return;
        }
        if let Some(error) = self.unsupported() {
            return drop(reply.send(Err(error)));
        }
        let (store, seat) = (self.store.clone(), self.seat(election));
        let name = seat.clone();
        let look = self.in_time(election, async move { look(&*store, &seat).await });
        let heir = self.call(election, async move {
            let heir = match look.await {
                Err(error) => Err(Error::Store(error.into())),
                Ok((None, _)) => Err(Error::NoLeader { election: name.to_string(), reason: "the seat is vacant" }),
                Ok((Some(leader), roster)) => {
                    roster::heir(&roster, &to, name.as_str()).map(|heir| (heir, leader.token))
                }
            };
            Answer::Heir(heir, reply)
        });
        self.entries.get_mut(&election).expect("it was there").heirs.push(heir);
    }

    pub(super) fn on_heir(
        &mut self,
        election: ElectionId,
        heir: Result<(Candidate, Token), Error>,
        reply: oneshot::Sender<Result<(), Error>>,
    ) {
        let (heir, token) = match heir {
            Ok(found) => found,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let Some(entry) = self.entries.get(&election) else { return };
        if entry.machine.term(self.clock.now()) == Some(token) {
            self.step(election, Input::Transfer(heir));
            return drop(reply.send(Ok(())));
        }
        if entry.shared.state().term.as_ref().is_some_and(|term| term.token() == token) {
            let (election, reason) = (entry.shared.name.to_string(), "its term is already ending");
            return drop(reply.send(Err(Error::NoLeader { election, reason })));
        }
        let request = Request::StepDown { token, to: Some(heir) };
        let put = self.put_request(election, RequestForm::of(&request, &entry.shared.candidate));
        tokio::spawn(async move {
            let _ = reply.send(put.await.map_err(|error| Error::Store(error.into())));
        });
    }

    pub(super) fn candidates(&self, seat: SeatName, reply: oneshot::Sender<Result<Vec<CandidateStatus>, Error>>) {
        if let Some(error) = self.unsupported() {
            return drop(reply.send(Err(error)));
        }
        let store = self.store.clone();
        self.one_off(reply, async move { look(&*store, &seat).await.map(|(_, roster)| roster) });
    }

    fn unsupported(&self) -> Option<Error> {
        let problem = || "keeps no notes, so it has no list of candidates and no requests to the leader".to_owned();
        self.store
            .notes()
            .is_none()
            .then(|| Error::Unsupported { store: self.store.promises().store, problem: problem() })
    }

    fn put_request(
        &mut self,
        election: ElectionId,
        form: RequestForm,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let note = NoteWrite {
            board: Board::Requests(self.seat(election)),
            key: format!("{:016x}", rand::random::<u64>()),
            value: Some(serde_json::to_string(&form).expect("strings and numbers always have a JSON form")),
            lifetime: self.entries[&election].machine.rules().timing.lease(),
        };
        self.write_note(election, note).map(|answer| answer.map(drop))
    }
}

/// Reads the leader and the list of candidates.
async fn look(store: &dyn DynStore, seat: &SeatName) -> Result<(Option<Leader>, Vec<CandidateStatus>), StoreError> {
    let notes = notes_of(store)?;
    let (candidates, processes) = (Board::Candidates(seat.clone()), Board::Processes);
    let reading = read_one(store, seat.clone());
    let (reading, candidates, processes) =
        try_join3(reading, notes.list_one(&candidates), notes.list_one(&processes)).await?;
    let leader = SeatStatus::of(reading, &store.promises()).leader;
    let mut roster = roster::present(&candidates, &processes);
    for status in &mut roster {
        let leads = |leader: &Leader| leader.candidate.incarnation == status.candidate.incarnation;
        status.is_leader = leader.as_ref().is_some_and(leads);
    }
    roster::sort(&mut roster);
    Ok((leader, roster))
}

/// The JSON form of a request.
#[derive(Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
enum RequestForm {
    StepDown {
        token: u64,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<HolderForm>,
    },
    Preempt {
        token: u64,
        by: HolderForm,
        priority: i32,
    },
    Rank {
        token: u64,
    },
}

impl RequestForm {
    fn of(request: &Request, by: &Candidate) -> Self {
        let token = request.token().get();
        match request {
            Request::StepDown { to, .. } => {
                Self::StepDown { token, by: by.id.to_string(), to: to.as_ref().map(HolderForm::of) }
            }
            Request::Preempt { by, priority, .. } => {
                Self::Preempt { token, by: HolderForm::of(by), priority: *priority }
            }
            Request::Rank { .. } => Self::Rank { token },
        }
    }

    /// Parses a request; `None` if this version does not know its form.
    fn parse(text: &str) -> Option<Request> {
        Some(match serde_json::from_str(text).ok()? {
            Self::StepDown { token, to, .. } => {
                let to = match to {
                    None => None,
                    Some(heir) => Some(heir.candidate()?),
                };
                Request::StepDown { token: Token::new(token), to }
            }
            Self::Preempt { token, by, priority } => {
                Request::Preempt { token: Token::new(token), by: by.candidate()?, priority }
            }
            Self::Rank { token } => Request::Rank { token: Token::new(token) },
        })
    }
}
