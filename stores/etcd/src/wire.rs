//! The messages of etcd's API that are needed here, by their documented field numbers. Fields that are
//! neither set nor looked at are left out, which the format allows.

use prost::{Message, Oneof};

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
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(bool, tag = "7")]
    pub(crate) serializable: bool,
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
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
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

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3, 4")]
    pub(crate) op: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

/// Of the answers only those of ranges and transactions are looked at.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
    #[prost(message, optional, tag = "4")]
    pub(crate) txn: Option<TxnResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    /// Equal is 0, greater is 1, less is 2, not equal is 3: only the first is used.
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Target", tags = "5, 6")]
    pub(crate) value: Option<Target>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Target {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
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

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// In whole seconds, rounded down; -1: the lease is over.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// Zero or less: the lease is over.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    /// Put is 0, delete is 1.
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

/// What every answer can tell: whose it is, and how far the data has come.
pub(crate) trait Answer {
    fn header(&self) -> Option<&Header>;
}

macro_rules! answers {
    ($($answer:ty),*) => {
        $(impl Answer for $answer {
            fn header(&self) -> Option<&Header> {
                self.header.as_ref()
            }
        })*
    };
}

answers!(
    RangeResponse,
    TxnResponse,
    LeaseGrantResponse,
    LeaseRevokeResponse,
    LeaseKeepAliveResponse,
    LeaseTimeToLiveResponse
);

impl Answer for AuthenticateResponse {
    fn header(&self) -> Option<&Header> {
        None
    }
}

/// The key was created in this revision; zero: there is none.
pub(crate) fn created_at(key: &str, revision: i64) -> Compare {
    Compare { result: 0, target: 1, key: key.into(), value: Some(Target::Create(revision)) }
}

/// The key was last written in this revision; zero: there is none.
pub(crate) fn written_at(key: &str, revision: i64) -> Compare {
    Compare { result: 0, target: 2, key: key.into(), value: Some(Target::Mod(revision)) }
}

pub(crate) fn get(key: &str) -> RequestOp {
    range(RangeRequest { key: key.into(), ..Default::default() })
}

pub(crate) fn get_key(key: &str) -> RequestOp {
    range(RangeRequest { key: key.into(), keys_only: true, ..Default::default() })
}

pub(crate) fn range(request: RangeRequest) -> RequestOp {
    RequestOp { op: Some(Op::Range(request)) }
}

/// Everything whose key begins like this.
pub(crate) fn under(prefix: &str) -> RangeRequest {
    RangeRequest { key: prefix.into(), range_end: end_of(prefix), ..Default::default() }
}

pub(crate) fn put(key: &str, value: String, lease: i64) -> RequestOp {
    RequestOp { op: Some(Op::Put(PutRequest { key: key.into(), value: value.into(), lease })) }
}

pub(crate) fn delete(key: &str) -> RequestOp {
    RequestOp { op: Some(Op::Delete(DeleteRangeRequest { key: key.into(), range_end: Vec::new() })) }
}

pub(crate) fn delete_under(prefix: &str) -> RequestOp {
    let range_end = end_of(prefix);
    RequestOp { op: Some(Op::Delete(DeleteRangeRequest { key: prefix.into(), range_end })) }
}

/// The first key behind all that begin like this. Prefixes here end with a slash, so that is `0`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

impl TxnResponse {
    /// What was found by the range at this place of the branch that was taken.
    pub(crate) fn found(&mut self, place: usize) -> Vec<KeyValue> {
        let range = self.responses.get_mut(place).and_then(|answer| answer.range.as_mut());
        range.map(|range| std::mem::take(&mut range.kvs)).unwrap_or_default()
    }

    /// How many there are in that range.
    pub(crate) fn count(&self, place: usize) -> i64 {
        self.responses.get(place).and_then(|answer| answer.range.as_ref()).map_or(0, |range| range.count)
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
    fn messages_are_what_the_api_says_byte_by_byte() {
        let compare = written_at("k", 7);
        assert_eq!(compare.encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 7]);
        // A member of a choice is written though it is zero.
        assert_eq!(created_at("k", 0).encode_to_vec(), [0x10, 1, 0x1a, 1, b'k', 0x28, 0]);
        assert_eq!(put("k", "v".into(), 3).encode_to_vec(), [0x12, 8, 0x0a, 1, b'k', 0x12, 1, b'v', 0x18, 3]);
        assert_eq!(LeaseGrantRequest { ttl: 15 }.encode_to_vec(), [0x08, 15]);
        assert_eq!(end_of("a/"), b"a0");
    }

    #[test]
    fn an_event_is_read_with_fields_that_are_not_known_here() {
        let bytes = [0x5a, 0x0d, 0x08, 1, 0x12, 7, 0x0a, 1, b'k', 0x18, 9, 0x20, 1, 0x1a, 0];
        let answer = WatchResponse::decode(&bytes[..]).unwrap();
        let event = &answer.events[0];
        assert!(event.is_delete());
        assert_eq!(event.kv.as_ref().map(|kv| (kv.key.as_slice(), kv.mod_revision)), Some((&b"k"[..], 9)));
    }
}
