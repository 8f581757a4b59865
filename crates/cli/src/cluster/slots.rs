//! `cluster add-shard`, `remove-shard`, `rebalance`, `move-slots` and `slots`: which shard holds
//! which slots.
//!
//! Owns the requests, the output, and the wait for moves to end. The cluster decides the order of
//! moves; a command that stops waiting does not stop them.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidelock_api::shards::{AddShardRequest, ChangedShard};
use tidelock_api::slots::{Moves, RequestedMoves, SlotMove, WantedSlots};
use tidelock_client::{Call, CliError, Client, output};

use super::retry;
use crate::args::{AddShardArgs, ClientArgs, MoveSlotsArgs, Output, RemoveShardArgs, WaitForMoves};

/// Interval between polls of the moves that are left.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn add_shard(args: AddShardArgs, client: &ClientArgs) -> Result<(), CliError> {
    let mut tags = BTreeMap::new();
    for tag in &args.tags {
        let Some((name, value)) = tag.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(CliError::Usage(format!("`{tag}` is no tag: write NAME=VALUE")));
        };
        tags.insert(name.to_owned(), value.to_owned());
    }
    let body = encode(&AddShardRequest { name: args.name, tags });
    let answer = client.client()?.ask_for(202, &Call::post("/v1/cluster/shards", &body))?;
    output::answer(client.output, &answer, || {
        let ChangedShard { shard } = answer.json()?;
        Ok(format!("shard {shard} is there, without slots; `tidelock cluster rebalance` gives it its share"))
    })
}

pub(super) fn remove_shard(args: &RemoveShardArgs, client: &ClientArgs) -> Result<(), CliError> {
    let target = format!("/v1/cluster/shards/{}", args.shard);
    let answer = client.client()?.ask_for(202, &Call::delete(target))?;
    output::answer(client.output, &answer, || {
        Ok(format!("shard {} is removed; its replicas release their disk", args.shard))
    })
}

pub(super) fn rebalance(wait: &WaitForMoves, client: &ClientArgs) -> Result<(), CliError> {
    let (asker, format) = (client.client()?, client.output);
    let asked = ask(&Call::post("/v1/cluster/rebalance", b""), wait, &asker)?;
    follow(&asked, wait, (&asker, format))
}

pub(super) fn move_slots(args: &MoveSlotsArgs, client: &ClientArgs) -> Result<(), CliError> {
    let target = format!("/v1/cluster/shards/{}/slots", args.to);
    let body = encode(&WantedSlots { slots: args.slots.clone() });
    let (asker, format) = (client.client()?, client.output);
    let asked = ask(&Call::post(target, &body), &args.wait, &asker)?;
    follow(&asked, &args.wait, (&asker, format))
}

/// Requests moves until a leader has recorded them or the time is over.
fn ask(call: &Call<'_>, wait: &WaitForMoves, client: &Client) -> Result<RequestedMoves, CliError> {
    let end = Instant::now() + Duration::from_secs(wait.wait_s);
    let answer = retry::until(end, Some("slots-moving"), || client.ask(call), output::progress)?;
    answer.accept(202)?.json()
}

pub(super) fn show(client: &ClientArgs) -> Result<(), CliError> {
    let answer = client.client()?.ask_for(200, &Call::get("/v1/cluster/moves"))?;
    output::answer(client.output, &answer, || Ok(table(&answer.json()?)))
}

/// Waits until all moves requested so far are done, and prints the remaining ones whenever they
/// change.
fn follow(
    asked: &RequestedMoves,
    wait: &WaitForMoves,
    (asker, format): (&Client, Output),
) -> Result<(), CliError> {
    let &RequestedMoves { moves, last } = asked;
    let is_text = format == Output::Text;
    if !is_text {
        output::line(&String::from_utf8_lossy(&encode(asked)))?;
    } else if wait.wait_s == 0 {
        output::line(&match moves {
            0 => "no moves beyond those that are under way, if any".to_owned(),
            _ => format!("{moves} moves begin; `tidelock cluster slots` shows how far they are"),
        })?;
    }
    let (began, timeout) = (Instant::now(), Duration::from_secs(wait.wait_s));
    let mut shown = None;
    while began.elapsed() < timeout {
        // The node that answers may be behind the one that took the request, or briefly
        // unreachable.
        if let Ok(answer) = asker.ask(&Call::get(format!("/v1/cluster/moves?until={last}")))
            && answer.status == 200
        {
            let state: Moves = answer.json()?;
            if state.last >= last {
                let left: Vec<&SlotMove> =
                    state.moves.iter().filter(|migration| migration.id <= last).collect();
                let ids: Vec<u64> = left.iter().map(|migration| migration.id).collect();
                if is_text && shown.as_ref() != Some(&ids) {
                    let is_first = shown.is_none() && moves == 0;
                    output::line(&progress(&left, is_first))?;
                }
                if state.done {
                    return Ok(());
                }
                shown = Some(ids);
            }
        }
        thread::sleep(LOOK_INTERVAL);
    }
    if wait.wait_s == 0 {
        return Ok(());
    }
    Err(CliError::Unfinished("slots are still on their way; `tidelock cluster slots` shows them".into()))
}

/// A text about the moves that are left; if there are none, it depends on whether there ever were
/// any.
fn progress(left: &[&SlotMove], nothing_was_to_do: bool) -> String {
    let slots: u32 = left.iter().map(|migration| migration.count).sum();
    match left {
        [] if nothing_was_to_do => "nothing to move: all slots are where they should be".to_owned(),
        [] => "all slots are where they should be".to_owned(),
        [SlotMove { from, to, .. }] => format!("{slots} slots to go, from shard {from} to shard {to}"),
        [SlotMove { from, to, count, .. }, ..] => format!(
            "{slots} slots to go in {} moves; now {count} from shard {from} to shard {to}",
            left.len()
        ),
    }
}

fn encode(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("invariant: numbers, texts and maps of texts are JSON")
}

fn table(state: &Moves) -> String {
    let rows = state.shards.iter().map(|share| {
        let arriving: u32 =
            state.moves.iter().filter(|to| to.to == share.shard).map(|migration| migration.count).sum();
        let leaving: u32 =
            state.moves.iter().filter(|from| from.from == share.shard).map(|migration| migration.count).sum();
        let slots = if share.slots.is_empty() { "-".to_owned() } else { share.slots.clone() };
        vec![
            share.shard.to_string(),
            share.count.to_string(),
            leaving.to_string(),
            arriving.to_string(),
            slots,
        ]
    });
    output::table(&["SHARD", "SLOTS", "LEAVING", "ARRIVING", "WHICH"], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_moves_are_a_table() {
        let state: Moves = serde_json::from_str(
            r#"{"version":3,"shards":[{"shard":1,"count":16384,"slots":"0-16383"},{"shard":2,"count":0,"slots":""}],
                "moves":[{"id":4,"from":1,"to":2,"count":8192,"slots":"8192-16383"}],"last":4,"done":false}"#,
        )
        .expect("a state");
        assert_eq!(
            table(&state),
            "SHARD  SLOTS  LEAVING  ARRIVING  WHICH\n\
             1      16384  8192     0         0-16383\n\
             2      0      0        8192      -"
        );
        let left = [&state.moves[0]];
        assert_eq!(progress(&left, false), "8192 slots to go, from shard 1 to shard 2");
        let left = [&state.moves[0], &SlotMove { id: 5, from: 3, to: 2, count: 8, slots: "0-7".into() }];
        assert_eq!(progress(&left, true), "8200 slots to go in 2 moves; now 8192 from shard 1 to shard 2");
        assert_eq!(progress(&[], false), "all slots are where they should be");
        assert_eq!(progress(&[], true), "nothing to move: all slots are where they should be");
    }
}
