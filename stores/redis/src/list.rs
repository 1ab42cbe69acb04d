//! The list of all seats, which `SCAN` finds among all keys of the database.

use redis::{Cmd, Value};
use tenure_core::{SeatName, StoreError};

use crate::connection::RedisConnection;
use crate::errors;
use crate::servers::Node;
use crate::store::RedisStore;

/// How many keys a step of `SCAN` goes through: few enough not to delay the other clients of the server.
const STEP: u32 = 1000;

impl RedisStore {
    /// Lists the seats on one server. `SCAN` can return a key more than once, but misses none that is there from the
    /// beginning to the end.
    pub(crate) async fn list_on(&self, node: &Node) -> Result<Vec<SeatName>, StoreError> {
        let connection = self.servers.connection_to(node).await?;
        let (mut cursor, mut seats) = ("0".to_owned(), Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(self.names().pattern()).arg("COUNT").arg(STEP);
            let found = send(&connection, [scan]).await?.pop().unwrap_or(Value::Nil);
            let found =
                found.extract_error().and_then(|found| Ok(redis::from_redis_value::<(String, Vec<Vec<u8>>)>(found)?));
            let (next, keys) = found.map_err(|error| errors::call_failed(&connection.address, error))?;
            let keys: Vec<_> = keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect();
            // A seat that was forgotten has a key with its floor, and no record.
            let nonce = |key: &String| redis::cmd("HMGET").arg(key).arg("nonce").to_owned();
            let nonces = send(&connection, keys.iter().map(nonce)).await?;
            let exist = keys.iter().zip(nonces).filter(|(_, nonce)| *nonce != Value::Array(vec![Value::Nil]));
            seats.extend(exist.filter_map(|(key, _)| self.names().seat_of_key(key)));
            if next == "0" {
                return Ok(seats);
            }
            cursor = next;
        }
    }
}

/// Sends commands in one round trip.
async fn send(connection: &RedisConnection, commands: impl IntoIterator<Item = Cmd>) -> Result<Vec<Value>, StoreError> {
    let mut pipe = redis::pipe();
    for command in commands {
        pipe.add_command(command);
    }
    if pipe.is_empty() {
        return Ok(Vec::new());
    }
    connection.send(&pipe, None).await.map_err(|error| errors::call_failed(&connection.address, error))
}
