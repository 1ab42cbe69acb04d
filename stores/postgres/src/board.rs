//! The board: notes as rows. Requests have a lifetime on the server's clock; announcements last while
//! their process attends, on the same clock.
//!
//! A process that no longer attends is cleared away by those who do: first its announcements, so many
//! at a time, then its own row. Whoever clears has the row locked meanwhile, and a process that comes
//! back waits for that before it is told to put everything again: nothing that it puts then is cleared.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Attended, Incarnation, Note, NoteKind, SeatName, StoreError};
use tokio_postgres::types::Type;

use crate::gather::{Call, Gather};
use crate::link::Link;
use crate::lone::{self, Param};
use crate::schema::{channel, quoted};
use crate::seats::PATIENT;

/// The statements, for one schema.
pub(crate) struct Statements {
    put: String,
    attend: String,
    list: String,
    remove: String,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Self {
        let (notes, channel) = (format!("{}.notes", quoted(schema)), channel(schema));
        let attending = format!("{}.attending", quoted(schema));
        Self {
            // Who announces itself without being there is told apart from who never was: it is cleared away.
            put: format!(
                "WITH {PATIENT}, want AS MATERIALIZED (SELECT seat COLLATE \"C\" AS seat, kind COLLATE \"C\" AS kind, \
                 key COLLATE \"C\" AS key, value, lifetime \
                 FROM unnest($1, $2, $3, $4, $5) AS want (seat, kind, key, value, lifetime)), \
                 unseen AS (INSERT INTO {attending} (process, until) SELECT DISTINCT key, clock_timestamp() FROM want, patient \
                 WHERE kind = 'announcement' ORDER BY key ON CONFLICT (process) DO NOTHING), \
                 put AS (INSERT INTO {notes} (seat, kind, key, value, lifetime, expires) \
                 SELECT seat, kind, key, value, lifetime, clock_timestamp() + lifetime * interval '1 microsecond' \
                 FROM want, patient ORDER BY seat, kind, key ON CONFLICT (seat, kind, key) DO UPDATE \
                 SET value = excluded.value, lifetime = excluded.lifetime, expires = excluded.expires RETURNING seat, kind) \
                 SELECT count(told) FROM (SELECT pg_notify('{channel}', 'r' || seat)::text AS told FROM put \
                 WHERE kind = 'request' OFFSET 0) AS told"
            ),
            // Nobody waits for a row of another process, nor for the disk: a crash of the server that loses this looks
            // like a process that did not attend, which is told to put everything again. What it puts waits for the
            // disk, as it is put once.
            attend: format!(
                "WITH gone AS MATERIALIZED (SELECT process FROM {attending} \
                 WHERE until <= clock_timestamp() AND process <> $1 FOR UPDATE SKIP LOCKED), \
                 old AS MATERIALIZED (SELECT seat, key FROM {notes} WHERE kind = 'announcement' \
                 AND key IN (SELECT process FROM gone) LIMIT {AT_A_TIME} FOR UPDATE SKIP LOCKED), \
                 cleared AS (DELETE FROM {notes} USING old \
                 WHERE notes.seat = old.seat AND notes.kind = 'announcement' AND notes.key = old.key), \
                 late AS MATERIALIZED (SELECT seat, key FROM {notes} WHERE kind = 'request' \
                 AND expires <= clock_timestamp() LIMIT {AT_A_TIME} FOR UPDATE SKIP LOCKED), \
                 outlived AS (DELETE FROM {notes} USING late \
                 WHERE notes.seat = late.seat AND notes.kind = 'request' AND notes.key = late.key), \
                 left_behind AS (DELETE FROM {attending} WHERE process IN (SELECT process FROM gone) \
                 AND NOT EXISTS (SELECT 1 FROM {notes} WHERE kind = 'announcement' AND key = process)), \
                 still AS (UPDATE {attending} SET until = clock_timestamp() + $2 * interval '1 microsecond' \
                 WHERE process = $1 AND until > clock_timestamp() RETURNING 1), \
                 anew AS (INSERT INTO {attending} (process, until) \
                 SELECT $1, clock_timestamp() + $2 * interval '1 microsecond' WHERE NOT EXISTS (SELECT 1 FROM still) \
                 ON CONFLICT (process) DO UPDATE SET until = excluded.until), \
                 quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)) \
                 SELECT EXISTS (SELECT 1 FROM still) FROM quick"
            ),
            list: format!(
                "SELECT want.number, notes.key, value, lifetime \
                 FROM unnest($1, $2) WITH ORDINALITY AS want (seat, kind, number), {notes} \
                 WHERE notes.seat = want.seat COLLATE \"C\" AND notes.kind = want.kind COLLATE \"C\" AND CASE notes.kind \
                 WHEN 'announcement' THEN EXISTS (SELECT 1 FROM {attending} WHERE process = notes.key AND until > clock_timestamp()) \
                 ELSE expires > clock_timestamp() END ORDER BY want.number, expires, notes.key"
            ),
            remove: format!(
                "WITH {PATIENT}, found AS MATERIALIZED (SELECT notes.seat, notes.kind, notes.key FROM patient, \
                 unnest($1, $2, $3) AS want (seat, kind, key), {notes} WHERE notes.seat = want.seat COLLATE \"C\" \
                 AND notes.kind = want.kind COLLATE \"C\" AND notes.key = want.key COLLATE \"C\" \
                 ORDER BY notes.seat, notes.kind, notes.key FOR UPDATE OF notes) \
                 DELETE FROM {notes} USING found \
                 WHERE notes.seat = found.seat AND notes.kind = found.kind AND notes.key = found.key"
            ),
        }
    }
}

/// How many announcements are cleared away at once: a process may leave ten thousand behind, and whoever
/// clears them has elections to keep.
const AT_A_TIME: u32 = 1000;

/// A lifetime as the database has it. A century is enough.
fn micros(lifetime: Duration) -> i64 {
    i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX).min(3_155_760_000_000_000)
}

/// A note to be put on a board.
pub(crate) struct Put {
    seat: SeatName,
    note: Note,
    /// Its kind and key.
    target: String,
}

impl Call for Put {
    type Answer = ();

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.put
    }

    fn target(&self) -> Option<(&str, &str)> {
        Some((self.seat.as_str(), &self.target))
    }

    fn weight(&self) -> usize {
        self.note.value.len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<()>, tokio_postgres::Error> {
        let seats: Vec<&str> = calls.iter().map(|call| call.seat.as_str()).collect();
        let kinds: Vec<&str> = calls.iter().map(|call| call.note.kind.as_str()).collect();
        let keys: Vec<&str> = calls.iter().map(|call| call.note.key.as_str()).collect();
        let values: Vec<&str> = calls.iter().map(|call| call.note.value.as_str()).collect();
        let lifetimes: Vec<i64> = calls.iter().map(|call| micros(call.note.lifetime)).collect();
        link.ask(
            &link.server.board.put,
            &[
                (&seats, Type::TEXT_ARRAY),
                (&kinds, Type::TEXT_ARRAY),
                (&keys, Type::TEXT_ARRAY),
                (&values, Type::TEXT_ARRAY),
                (&lifetimes, Type::INT8_ARRAY),
            ],
        )
        .await?;
        Ok(vec![(); calls.len()])
    }
}

pub(crate) async fn put(link: &Arc<Link>, seat: &SeatName, note: &Note) -> Result<(), StoreError> {
    let target = format!("{}:{}", note.kind.as_str(), note.key);
    link.call(Put { seat: seat.clone(), note: note.clone(), target }).await
}

/// Counts a process as there for a while.
pub(crate) async fn attend(link: &Arc<Link>, process: Incarnation, lifetime: Duration) -> Result<Attended, StoreError> {
    let params = vec![Param::Text(process.to_string()), Param::Number(micros(lifetime))];
    let rows = lone::ask(link, &link.server.board.attend, params).await?;
    let still = rows.first().is_some_and(|row| row.get(0));
    Ok(if still { Attended::Still } else { Attended::Anew })
}

/// The notes of a kind on a board.
pub(crate) struct List {
    seat: SeatName,
    kind: NoteKind,
}

impl Call for List {
    type Answer = Vec<Note>;

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.list
    }

    fn target(&self) -> Option<(&str, &str)> {
        None
    }

    fn weight(&self) -> usize {
        self.seat.as_str().len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<Vec<Note>>, tokio_postgres::Error> {
        let seats: Vec<&str> = calls.iter().map(|call| call.seat.as_str()).collect();
        let kinds: Vec<&str> = calls.iter().map(|call| call.kind.as_str()).collect();
        let rows = link.ask(&link.server.board.list, &[(&seats, Type::TEXT_ARRAY), (&kinds, Type::TEXT_ARRAY)]).await?;
        let mut answers: Vec<Vec<Note>> = calls.iter().map(|_| Vec::new()).collect();
        for row in rows {
            let at = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            if let (Some(call), Some(notes)) = (calls.get(at), answers.get_mut(at)) {
                let lifetime = Duration::from_micros(row.get::<_, i64>(3).try_into().unwrap_or_default());
                notes.push(Note { kind: call.kind, key: row.get(1), value: row.get(2), lifetime });
            }
        }
        Ok(answers)
    }
}

pub(crate) async fn list(link: &Arc<Link>, seat: &SeatName, kind: NoteKind) -> Result<Vec<Note>, StoreError> {
    link.call(List { seat: seat.clone(), kind }).await
}

/// A note to be taken off a board.
pub(crate) struct Remove {
    seat: SeatName,
    kind: NoteKind,
    key: String,
}

impl Call for Remove {
    type Answer = ();

    fn gather(link: &Link) -> &Gather<Self> {
        &link.gathers.remove
    }

    fn target(&self) -> Option<(&str, &str)> {
        None
    }

    fn weight(&self) -> usize {
        self.key.len()
    }

    async fn run(link: &Link, calls: &[&Self]) -> Result<Vec<()>, tokio_postgres::Error> {
        let seats: Vec<&str> = calls.iter().map(|call| call.seat.as_str()).collect();
        let kinds: Vec<&str> = calls.iter().map(|call| call.kind.as_str()).collect();
        let keys: Vec<&str> = calls.iter().map(|call| call.key.as_str()).collect();
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&seats, Type::TEXT_ARRAY), (&kinds, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY)];
        link.ask(&link.server.board.remove, &params).await?;
        Ok(vec![(); calls.len()])
    }
}

pub(crate) async fn remove(link: &Arc<Link>, seat: &SeatName, kind: NoteKind, key: &str) -> Result<(), StoreError> {
    link.call(Remove { seat: seat.clone(), kind, key: key.to_owned() }).await
}
