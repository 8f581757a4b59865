//! Runs the golden scripts of the Redis protocol: each file against a fresh server, byte for byte.
//!
//! ```text
//! NAME argument…                  one command, one reply; prefix `b:`: over another connection,
//!                                 `cluster:`: over one of a Redis Cluster client
//! raw "bytes" [replies=N]         sends these bytes, and reads N replies (default 1)
//! push                            reads a message that answers no command
//! clock MILLISECONDS              sets the clock
//! leader-ahead MILLISECONDS       sets how far the leaders' clocks are ahead of it
//! expire                          runs the leaders' expiry
//! move-slots SLOTS SHARD          moves slots to a shard
//! refuse no-leader|unknown-outcome|overloaded|disk-unavailable
//!                                 the store refuses every request from now on
//! incomplete-flush                only the first shard removes its keys from now on
//! accept                          the store answers again
//! end                             whether the server has closed the connection
//! ```
//!
//! `{x*100}` in any text means a hundred times `x`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use goldenscript::{Command, Context};
use tidelock_core::command::Refusal;
use tidelock_core::types::{ShardId, UnixMillis};
use tidelock_server::resp::RespOptions;

use super::client::Client;
use super::harness::{NOW, Server};

#[test]
fn resp_scripts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/scripts/resp");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5);
    // One after the other: they share the clock.
    for file in files {
        NOW.store(1_000_000, Ordering::Relaxed);
        let server = Server::start(RespOptions::default());
        goldenscript::run(&mut Runner { server, clients: BTreeMap::new() }, file).unwrap();
    }
}

struct Runner {
    server: Server,
    clients: BTreeMap<String, Client>,
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, context: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let name = context.prefix.clone().unwrap_or_default();
        let address = if name == "cluster" { self.server.cluster } else { self.server.address };
        let client = self.clients.entry(name).or_insert_with(|| Client::connect(address));
        let mut out = String::new();
        match command.name.as_str() {
            "clock" => NOW.store(arguments.next_pos().ok_or("when?")?.parse()?, Ordering::Relaxed),
            "leader-ahead" => {
                let ahead_ms = arguments.next_pos().ok_or("by how much?")?.parse()?;
                self.server.store.state().leader_ahead_ms = ahead_ms;
            }
            "expire" => {
                self.server.store.state().expire(UnixMillis(NOW.load(Ordering::Relaxed)));
                self.server.store.report();
            }
            "move-slots" => {
                let slots = arguments.next_pos().ok_or("which slots?")?.parse()?;
                let to = ShardId(arguments.next_pos().ok_or("where to?")?.parse()?);
                self.server.store.state().move_slots(&slots, to);
                self.server.store.report();
            }
            "incomplete-flush" => self.server.store.state().is_flush_incomplete = true,
            "refuse" => {
                let refusal = match arguments.next_pos().ok_or("how?")? {
                    "no-leader" => Refusal::NoLeader,
                    "unknown-outcome" => Refusal::UnknownOutcome,
                    "overloaded" => Refusal::Overloaded,
                    "disk-unavailable" => Refusal::DiskUnavailable,
                    other => return Err(format!("no refusal: {other}").into()),
                };
                self.server.store.state().refusal = Some(refusal);
            }
            "accept" => self.server.store.state().refusal = None,
            "end" => writeln!(out, "{}", if client.is_closed() { "closed" } else { "open" })?,
            "push" => writeln!(out, "{}", shorten(&client.reply()))?,
            "raw" => {
                let bytes = expand(arguments.next_pos().ok_or("which bytes?")?);
                let replies = arguments.take_key("replies").map_or(Ok(1), str::parse)?;
                client.send(&bytes)?;
                for _ in 0..replies {
                    writeln!(out, "{}", shorten(&client.reply()))?;
                }
            }
            name => {
                let mut words = vec![name.as_bytes().to_vec()];
                while let Some(word) = arguments.next_pos() {
                    words.push(expand(word));
                }
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                writeln!(out, "{}", shorten(&client.ask(&words)))?;
            }
        }
        arguments.reject_next()?;
        Ok(out)
    }
}

fn shorten(reply: &[u8]) -> String {
    const SHOWN_MAX: usize = 2_000;
    let text = reply.escape_ascii().to_string();
    if text.len() <= SHOWN_MAX { text } else { format!("{}… {} bytes", &text[..100], reply.len()) }
}

/// Characters up to U+00FF mean the byte of that number.
fn expand(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{')
        && let Some((inside, after)) = behind.split_once('}')
    {
        out.extend(before.chars().map(|character| character as u8));
        match inside.split_once('*').and_then(|(what, count)| Some((what, count.parse::<usize>().ok()?))) {
            Some((what, count)) => out.extend_from_slice(what.repeat(count).as_bytes()),
            None => out.extend_from_slice(format!("{{{inside}}}").as_bytes()),
        }
        rest = after;
    }
    out.extend(rest.chars().map(|character| character as u8));
    out
}
