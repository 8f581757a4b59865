//! A builder of histories of one key, in the order of real time, for the tests of the checkers.

use bytes::Bytes;
use tidelock_core::command::{
    Condition, Consistency, Item, Operation, OperationReply, Page, Read, ReadReply, Refusal, Reply, Request,
    StoredValue, Write, WriteReply,
};
use tidelock_core::types::{NodeId, Token, Version};

use crate::history::{History, Incarnation, value_of};

/// The key of every history builder.
pub const KEY: Bytes = Bytes::from_static(b"key");

/// A history that is being built. Operations overlap exactly if their calls do.
#[derive(Default)]
pub struct HistoryBuilder {
    pub history: History,
    pub is_final: bool,
}

pub fn always() -> Condition {
    Condition::Always
}

pub fn version(version: u64) -> Condition {
    Condition::Version(Version(version))
}

impl HistoryBuilder {
    pub fn ask(&mut self, request: Request) -> Token {
        let at = Incarnation { node: NodeId(1), life: 1 };
        self.history.invoke(at, request, self.is_final)
    }

    pub fn put(&mut self, condition: Condition) -> Token {
        let value = value_of(self.history.next_token(), 20);
        self.ask(Request::Write(Write::of(&Operation::Put { key: &KEY, value: &value, condition })))
    }

    pub fn delete(&mut self, condition: Condition) -> Token {
        self.ask(Request::Write(Write::of(&Operation::Delete { key: &KEY, condition })))
    }

    pub fn get(&mut self) -> Token {
        self.ask(Request::Read { read: Read::Get { key: KEY }, consistency: Consistency::Linearizable })
    }

    pub fn get_stale(&mut self) -> Token {
        self.ask(Request::Read { read: Read::Get { key: KEY }, consistency: Consistency::Stale })
    }

    pub fn list(&mut self) -> Token {
        let read = Read::List { prefix: Bytes::new(), after: None, limit: 10, keys_only: false };
        self.ask(Request::Read { read, consistency: Consistency::Linearizable })
    }

    pub fn answer(&mut self, token: Token, reply: Reply) {
        assert!(self.history.answer(token, reply));
    }

    pub fn written(&mut self, token: Token, version: u64, created: bool) {
        self.answer(
            token,
            Reply::Write(WriteReply::of(&OperationReply::Written { version: Version(version), created })),
        );
    }

    pub fn deleted(&mut self, token: Token, version: u64) {
        self.answer(
            token,
            Reply::Write(WriteReply::of(&OperationReply::Deleted { version: Version(version) })),
        );
    }

    pub fn condition_failed(&mut self, token: Token, current: u64) {
        let failed = OperationReply::ConditionFailed { current: Version(current) };
        self.answer(token, Reply::Write(WriteReply::of(&failed)));
    }

    pub fn not_found(&mut self, token: Token) {
        self.answer(token, Reply::Read(ReadReply::Value(None)));
    }

    pub fn refused(&mut self, token: Token, refusal: Refusal) {
        self.answer(token, Reply::Refused(refusal));
    }

    pub fn sees(&mut self, token: Token, version: u64, writer: Token) {
        let value = self.value(writer);
        self.sees_bytes(token, version, &value);
    }

    pub fn sees_bytes(&mut self, token: Token, version: u64, value: &[u8]) {
        let value = Bytes::copy_from_slice(value);
        self.answer(
            token,
            Reply::Read(ReadReply::Value(Some(StoredValue {
                version: Version(version),
                value,
                expires: None,
                lease: None,
            }))),
        );
    }

    pub fn page(&mut self, token: Token, items: &[(&'static str, u64, Token)]) {
        let items = items.iter().map(|&(key, version, writer)| Item {
            key: Bytes::from_static(key.as_bytes()),
            version: Version(version),
            value: Some(self.value(writer)),
            expires: None,
        });
        let items = items.collect();
        self.answer(token, Reply::Read(ReadReply::Page(Page { items, next: None })));
    }

    pub fn value(&self, writer: Token) -> Bytes {
        match self.history.operation(writer).unwrap().write() {
            Some(write) => match write.only_operation() {
                Some(Operation::Put { value, .. }) => Bytes::copy_from_slice(value),
                other => panic!("{writer} puts nothing: {other:?}"),
            },
            None => panic!("{writer} is no write"),
        }
    }

    /// A put from its request to its acknowledgement.
    pub fn puts(&mut self, version: u64, created: bool) -> Token {
        let put = self.put(always());
        self.written(put, version, created);
        put
    }

    /// A delete from its request to its acknowledgement.
    pub fn deletes(&mut self, version: u64) {
        let delete = self.delete(always());
        self.deleted(delete, version);
    }
}
