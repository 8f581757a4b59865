//! Clients of the Redis protocol: bursts on keys of all shards, counts and scans.

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::thread;

use super::super::{Cluster, PAUSE, eventually, resp};
use super::{Load, keys, listed, lock};

/// Prefix of the reply to a command of unknown outcome.
const UNKNOWN: &str = "-UNKNOWNOUTCOME";

/// Number of counters of one connection; every burst increments each.
const NUMBERS: usize = 40;

/// Bursts that are sent before the replies to the first of them are read.
const BURSTS_AHEAD: u64 = 8;

/// Keys of one connection: its counters, and one that is set.
pub(super) const KEYS: usize = NUMBERS + 1;

/// A connection's knowledge of its keys, which no other client changes.
pub(super) struct Pipeline {
    own: usize,
    numbers: Vec<Number>,
    /// Bursts that were sent.
    sent: u64,
    /// The last burst with replies.
    received: u64,
    /// Number of replies to increments of that burst.
    raises_received: usize,
    /// A `SET` may still take effect.
    is_set_unknown: bool,
}

/// The known state of a counter.
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    acknowledged: u64,
    unknown: u64,
    last: u64,
}

impl Number {
    /// Checks a value that was seen: no increment is lost or done twice, and the value never falls.
    fn saw(&mut self, value: u64) {
        assert!(value >= self.last, "{value} behind {self:?}");
        assert!((self.acknowledged..=self.acknowledged + self.unknown).contains(&value), "{value}: {self:?}");
        self.last = value;
    }
}

impl Pipeline {
    pub(super) fn new(own: usize) -> Pipeline {
        let numbers = vec![Number::default(); NUMBERS];
        Pipeline { own, numbers, sent: 0, received: 0, raises_received: NUMBERS, is_set_unknown: false }
    }

    fn key(&self, number: usize) -> String {
        format!("number:{}:{number}", self.own)
    }

    pub(super) fn make_keys(&self, cluster: &Cluster) {
        let numbers = (0..NUMBERS).map(|number| self.key(number));
        for key in numbers.chain([format!("set:{}", self.own)]) {
            // A slow disk may leave the outcome unknown; the write may be repeated.
            eventually("the key is written", || {
                let written = cluster.put(1, &format!("/v1/keys/{key}"), b"0");
                (written.status != 504).then(|| assert!(matches!(written.status, 200 | 201), "{written:?}"))
            });
        }
    }

    pub(super) fn check_end(&mut self, cluster: &Cluster, node: usize) {
        for number in 0..NUMBERS {
            let read = cluster.get(node, &format!("/v1/keys/{}", self.key(number))).text();
            self.numbers[number].saw(read.parse().expect("a number"));
        }
        assert!(self.numbers.iter().any(|number| number.acknowledged > 0), "no burst went through");
    }

    /// Sends one burst: increments and reads each counter, sets and reads a key, and reads all
    /// counters together.
    fn send(&mut self, client: &mut resp::Client) -> io::Result<()> {
        self.sent += 1;
        let (own, burst) = (self.own, self.sent);
        let mut lines: String =
            (0..NUMBERS).map(|number| format!("INCR {0}\r\nGET {0}\r\n", self.key(number))).collect();
        lines += &format!("SET set:{own} {burst}\r\nGET set:{own}\r\nMGET");
        (0..NUMBERS).for_each(|number| lines += &format!(" {}", self.key(number)));
        client.send(&(lines + "\r\n"))
    }

    /// Reads the replies to the oldest burst; whether none is a refusal. Increments without a reply
    /// are of unknown outcome.
    fn receive(&mut self, client: &mut resp::Client) -> io::Result<bool> {
        self.received += 1;
        self.raises_received = 0;
        let mut is_whole = true;
        for number in 0..NUMBERS {
            let raised = client.reply()?;
            self.raises_received += 1;
            is_whole &= self.raised(number, &raised);
            let read = client.reply()?;
            is_whole &= self.read(number, &read);
        }
        let (set, read) = (client.reply()?, client.reply()?);
        assert!(set == "+OK" || refused(&set), "{set}");
        self.is_set_unknown |= set.starts_with(UNKNOWN);
        if set == "+OK" && !self.is_set_unknown && !refused(&read) {
            assert_eq!(read, self.received.to_string(), "what was set just before");
        }
        let head = client.reply()?;
        if refused(&head) {
            return Ok(false);
        }
        assert_eq!(head, format!("*{NUMBERS}"));
        for number in 0..NUMBERS {
            let read = client.reply()?;
            is_whole &= self.read(number, &read);
        }
        Ok(is_whole)
    }

    /// The connection broke: increments without a reply may have happened.
    fn lose(&mut self) {
        for (number, known) in self.numbers.iter_mut().enumerate() {
            known.unknown += self.sent - self.received + u64::from(number >= self.raises_received);
        }
        (self.received, self.raises_received, self.is_set_unknown) = (self.sent, NUMBERS, true);
    }

    /// The reply to `INCR`; whether it is a number.
    fn raised(&mut self, number: usize, reply: &str) -> bool {
        let known = &mut self.numbers[number];
        if let Some(value) = reply.strip_prefix(':') {
            let value: u64 = value.parse().expect("a number");
            assert!(value > known.last, "{value} behind {known:?}");
            known.acknowledged += 1;
            known.saw(value);
            return true;
        }
        known.unknown += u64::from(reply.starts_with(UNKNOWN));
        assert!(refused(reply), "{reply}");
        false
    }

    /// The reply to `GET`, or its part of `MGET`; whether it is a number.
    fn read(&mut self, number: usize, reply: &str) -> bool {
        match reply.parse() {
            Ok(value) => {
                self.numbers[number].saw(value);
                true
            }
            Err(_) => {
                assert!(refused(reply), "{reply}");
                false
            }
        }
    }
}

/// Whether a reply is a transient refusal. An error about keys in different shards is not.
fn refused(reply: &str) -> bool {
    ["-CLUSTERDOWN", "-MISCONF", "-TRYAGAIN", UNKNOWN].iter().any(|code| reply.starts_with(code))
}

/// Connects to one node after the other, and stays with each for as long as it answers.
fn on_each_node(load: &Load<'_>, first: usize, mut work: impl FnMut(&mut resp::Client) -> io::Result<()>) {
    for turn in first.. {
        let address = resp::address_of(load.addresses[turn % load.addresses.len()]);
        if let Ok(mut client) = resp::Client::connect(address) {
            while load.goes_on() && work(&mut client).is_ok() {}
        }
        if !load.goes_on() {
            return;
        }
        // A busy loop on a node that is down must not take processor time from the others.
        thread::sleep(PAUSE);
    }
}

/// Sends bursts ahead of the replies: none may overtake another.
pub(super) fn send_bursts(load: &Load<'_>, pipeline: &Mutex<Pipeline>) {
    let mut pipeline = lock(pipeline);
    on_each_node(load, pipeline.own, |client| {
        let done = exchange(load, &mut pipeline, client);
        if done.is_err() {
            pipeline.lose();
        }
        done
    });
}

/// Sends and receives until the load ends, and then reads all replies.
fn exchange(load: &Load<'_>, pipeline: &mut Pipeline, client: &mut resp::Client) -> io::Result<()> {
    while load.goes_on() {
        while pipeline.sent - pipeline.received < BURSTS_AHEAD {
            pipeline.send(client)?;
        }
        if pipeline.receive(client)? {
            load.progress("pipeline");
        }
    }
    while pipeline.received < pipeline.sent {
        pipeline.receive(client)?;
    }
    Ok(())
}

/// Counts keys.
pub(super) fn count(load: &Load<'_>) {
    on_each_node(load, 1, |client| {
        client.send("DBSIZE\r\n")?;
        let reply = client.reply()?;
        if reply == format!(":{}", keys()) {
            load.progress("count");
        } else {
            assert!(refused(&reply), "{reply} keys");
        }
        Ok(())
    });
}

/// Scans all keys.
pub(super) fn walk(load: &Load<'_>) {
    let expected: BTreeSet<String> = listed().into_iter().collect();
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    on_each_node(load, 2, |client| {
        client.send(&format!("SCAN {cursor} MATCH listed/* COUNT 20\r\n"))?;
        let head = client.reply()?;
        if head != "*2" {
            assert!(refused(&head), "{head}");
            return Ok(());
        }
        let next = client.reply()?;
        let keys: usize = client.reply()?.trim_start_matches('*').parse().expect("a number");
        let keys = (0..keys).map(|_| client.reply()).collect::<io::Result<Vec<_>>>()?;
        found.extend(keys);
        cursor = next;
        if cursor == "0" {
            // A scan starts over when slots move: it returns keys twice, and misses none.
            assert_eq!(found, expected);
            found.clear();
            load.progress("walk");
        }
        Ok(())
    });
}
