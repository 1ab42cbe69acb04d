//! The messages of etcd's API that the store uses, with their documented field numbers. Fields that it neither
//! sets nor reads are left out, which the format allows.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The largest number of keys in the answer; zero for all.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

/// A range of keys to delete or to watch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyRange {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

/// An operation of a transaction. Exactly one field is set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeRequest>,
    #[prost(message, optional, tag = "2")]
    pub(crate) put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub(crate) delete: Option<KeyRange>,
    #[prost(message, optional, tag = "4")]
    pub(crate) txn: Option<TxnRequest>,
}

/// The answer to an operation. Only those of ranges and transactions are decoded.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
    #[prost(message, optional, tag = "4")]
    pub(crate) txn: Option<TxnResponse>,
}

/// A condition on a key: on the revision `created` or `written`, or on its value, whichever is set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    /// 0 means that both are equal, 1 that the key's is greater.
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    /// 1 compares the creation, 2 the last write, 3 the value.
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(crate) created: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(crate) written: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) value: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

/// A request about a lease. In all of them the first field is a number: the seconds to grant, or the ID of the
/// lease.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(crate) number: i64,
}

/// An answer about a lease. All of them have these two fields.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// The time to live in whole seconds, rounded down. If the lease has ended, the answer to a keep-alive has 0
    /// or less, and the answer to a question for the time left has -1.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<KeyRange>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    /// 0 is a put, 1 is a delete.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

impl Event {
    pub(crate) fn is_delete(&self) -> bool {
        self.kind == 1
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// The condition that the key was created in this revision; zero means that it does not exist.
pub(crate) fn created_at(key: &str, revision: i64) -> Compare {
    Compare { target: 1, key: key.into(), created: Some(revision), ..Default::default() }
}

/// The condition that the key was last written in this revision; zero means that it does not exist.
pub(crate) fn written_at(key: &str, revision: i64) -> Compare {
    Compare { target: 2, key: key.into(), written: Some(revision), ..Default::default() }
}

/// The condition that the key exists, with a value that is greater than this one, byte by byte.
pub(crate) fn greater(key: &str, value: String) -> Compare {
    Compare { result: 1, target: 3, key: key.into(), value: Some(value.into()), ..Default::default() }
}

pub(crate) fn get(key: &str) -> RequestOp {
    range(RangeRequest { key: key.into(), ..Default::default() })
}

pub(crate) fn get_key(key: &str) -> RequestOp {
    range(RangeRequest { key: key.into(), keys_only: true, ..Default::default() })
}

pub(crate) fn range(request: RangeRequest) -> RequestOp {
    RequestOp { range: Some(request), ..Default::default() }
}

/// The range of all keys with this prefix.
pub(crate) fn under(prefix: &str) -> RangeRequest {
    RangeRequest { key: prefix.into(), range_end: end_of(prefix), ..Default::default() }
}

pub(crate) fn put(key: &str, value: String, lease: i64) -> RequestOp {
    let put = PutRequest { key: key.into(), value: value.into(), lease };
    RequestOp { put: Some(put), ..Default::default() }
}

pub(crate) fn delete(key: &str) -> RequestOp {
    delete_range(key, Vec::new())
}

pub(crate) fn delete_under(prefix: &str) -> RequestOp {
    delete_range(prefix, end_of(prefix))
}

fn delete_range(key: &str, range_end: Vec<u8>) -> RequestOp {
    RequestOp { delete: Some(KeyRange { key: key.into(), range_end }), ..Default::default() }
}

/// Returns the first key after all keys with this prefix. Prefixes end with a slash here, so the last byte
/// becomes `0`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

pub(crate) fn nested(request: TxnRequest) -> RequestOp {
    RequestOp { txn: Some(request), ..Default::default() }
}

impl TxnRequest {
    /// Builds a transaction without conditions.
    pub(crate) fn of(ops: impl IntoIterator<Item = RequestOp>) -> Self {
        Self { success: ops.into_iter().collect(), ..Self::default() }
    }

    /// Nests many transactions in one. Each has an answer of its own, in the same order.
    pub(crate) fn together(requests: Vec<Self>) -> Self {
        Self::of(requests.into_iter().map(nested))
    }
}

impl TxnResponse {
    /// Takes the entries that the range at this place found, in the branch that was taken.
    pub(crate) fn found(&mut self, place: usize) -> Vec<KeyValue> {
        let range = self.responses.get_mut(place).and_then(|answer| answer.range.as_mut());
        range.map(|range| std::mem::take(&mut range.kvs)).unwrap_or_default()
    }

    pub(crate) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    pub(crate) fn cluster(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.cluster_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_the_api_documents() {
        let compare = written_at("k", 7);
        assert_eq!(compare.encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 7]);
        // A field of a oneof is encoded even if it is zero.
        assert_eq!(created_at("k", 0).encode_to_vec(), [0x10, 1, 0x1a, 1, b'k', 0x28, 0]);
        assert_eq!(greater("k", "v".into()).encode_to_vec(), [0x08, 1, 0x10, 3, 0x1a, 1, b'k', 0x3a, 1, b'v']);
        assert_eq!(put("k", "v".into(), 3).encode_to_vec(), [0x12, 8, 0x0a, 1, b'k', 0x12, 1, b'v', 0x18, 3]);
        assert_eq!(LeaseRequest { number: 15 }.encode_to_vec(), [0x08, 15]);
        assert_eq!(end_of("a/"), b"a0");
    }

    #[test]
    fn unknown_fields_of_an_event_are_ignored() {
        let bytes = [0x5a, 0x0d, 0x08, 1, 0x12, 7, 0x0a, 1, b'k', 0x18, 9, 0x20, 1, 0x1a, 0];
        let answer = WatchResponse::decode(&bytes[..]).unwrap();
        let event = &answer.events[0];
        assert!(event.is_delete());
        assert_eq!(event.kv.as_ref().map(|kv| (kv.key.as_slice(), kv.mod_revision)), Some((&b"k"[..], 9)));
    }
}
