//! Golden transcripts of consensus: a script says what happens to the nodes, and its output is what
//! they send and what they report of themselves.
//!
//! ```text
//! cluster COUNT            founds a cluster of this many nodes
//! campaign NODE            ticks this node alone, until it asks for votes
//! tick NODE [COUNT]        ticks this node, and delivers nothing
//! run COUNT                ticks all nodes this often, and delivers everything after each time
//! deliver [from=N] [to=N]  delivers what is in flight, but not what is sent in reply
//! lose [from=N] [to=N]     loses what is in flight
//! settle                   delivers until nothing is in flight
//! isolate NODE             from now on, all frames from and to this node are lost
//! heal NODE                no longer
//! stop NODE                stops the process; its peers lose their connections
//! start-empty NODE         starts a stopped node with an empty disk
//! put NODE KEY VALUE       writes, through this node
//! get NODE KEY             reads, through this node
//! transfer NODE to=N       asks this node that another one leads
//! join                     a new host with an empty disk joins
//! host NODE vote|leave     changes the wanted role of a host
//! fill-disk NODE           its disk has no room from now on
//! hang-disk NODE           its disk completes nothing from now on, and is found to be slow
//! recover-disk NODE        its disk is healthy again
//! snapshot NODE            this node makes snapshots of its replicas
//! status                   the replicas of the nodes that run
//! ```
//!
//! Output is about shard 1, the only data shard. `n1 -> n2: …` is a message that n1 sends, `-x` one
//! that is lost; positions in a log are `index@term`. `n1: shard=…` is a trace event. Heartbeats
//! without a read are left out.
//!
//! `UPDATE_GOLDENFILES=1` writes the output anew.

mod cluster;

use std::boxed::Box;
use std::error::Error;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Command, Context};

use self::cluster::Network;
use super::*;
use crate::command::HostChange;

macro_rules! transcripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_transcript_is_run() {
            let files = std::fs::read_dir(directory()).expect("the directory of the scripts");
            let mut files: Vec<String> = files
                .map(|file| file.expect("an entry").file_name().into_string().expect("a plain name"))
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),*]);
        }
    };
}

transcripts! {
    a_candidate_with_an_old_log_is_refused
    a_change_of_voters_is_a_joint_configuration
    a_follower_without_its_log_is_sent_a_snapshot
    a_leader_is_elected
    a_leader_with_a_stalled_disk_hands_over
    a_leader_without_a_majority_steps_down
    a_leadership_is_transferred
    a_lost_leader_is_replaced
    a_split_vote_ends_with_the_next_election
    commands_are_refused_without_a_leader
}

fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node/tests/transcripts/scripts")
}

fn run(name: &str) {
    let mut runner = Runner { network: Network::default() };
    goldenscript::run(&mut runner, directory().join(name)).expect("the script runs");
}

struct Runner {
    network: Network,
}

impl goldenscript::Runner for Runner {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        match command.name.as_str() {
            "cluster" => self.network = Network::founded(number(&mut arguments)?),
            "campaign" => self.network.campaign(node(&mut arguments)?)?,
            "tick" => {
                let node = node(&mut arguments)?;
                let count: u64 = arguments.next_pos().map_or(Ok(1), str::parse)?;
                (0..count).for_each(|_| self.network.tick(node));
            }
            "run" => (0..number(&mut arguments)?).for_each(|_| self.network.run()),
            "deliver" => {
                let (from, to) = ends(&mut arguments)?;
                self.network.deliver(from, to);
            }
            "lose" => {
                let (from, to) = ends(&mut arguments)?;
                self.network.lose(from, to);
            }
            "settle" => self.network.settle(),
            "isolate" => self.network.set_isolated(node(&mut arguments)?, true),
            "heal" => self.network.set_isolated(node(&mut arguments)?, false),
            "stop" => self.network.stop(node(&mut arguments)?),
            "start-empty" => self.network.start_empty(node(&mut arguments)?),
            "fill-disk" => self.network.fill_disk(node(&mut arguments)?),
            "hang-disk" => self.network.hang_disk(node(&mut arguments)?),
            "recover-disk" => self.network.recover_disk(node(&mut arguments)?),
            "join" => self.network.join()?,
            "status" => self.network.describe(),
            name => {
                let node = node(&mut arguments)?;
                let request = request(name, node, &mut arguments)?;
                self.network.ask(node, request);
            }
        }
        arguments.reject_next()?;
        Ok(self.network.take_lines())
    }
}

/// The request of a command, which a node is asked.
fn request(
    name: &str,
    asked: NodeId,
    arguments: &mut ArgumentConsumer<'_>,
) -> Result<Request, Box<dyn Error>> {
    Ok(match name {
        "put" => {
            let (key, value) = (text(arguments)?, text(arguments)?);
            let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
            Request::Write(Write::of(&put))
        }
        "get" => {
            let read = Read::Get { key: text(arguments)? };
            Request::Read { read, consistency: Consistency::Linearizable }
        }
        "transfer" => {
            let to = arguments.take_key("to").ok_or("to which node?")?.parse()?;
            Request::Transfer { shard: ShardId(1), to: NodeId(to) }
        }
        "snapshot" => Request::SnapshotHere,
        "host" => {
            let change = match arguments.next_pos() {
                Some("vote") => HostChange::Vote,
                Some("leave") => HostChange::Leave,
                other => return Err(format!("no such change: {other:?}").into()),
            };
            Request::Write(RegistryWrite::ChangeHost { node: asked, change }.into())
        }
        other => return Err(format!("no such command: {other}").into()),
    })
}

fn number(arguments: &mut ArgumentConsumer<'_>) -> Result<u64, Box<dyn Error>> {
    Ok(arguments.next_pos().ok_or("how many?")?.parse()?)
}

fn node(arguments: &mut ArgumentConsumer<'_>) -> Result<NodeId, Box<dyn Error>> {
    Ok(NodeId(arguments.next_pos().ok_or("which node?")?.parse()?))
}

fn text(arguments: &mut ArgumentConsumer<'_>) -> Result<Bytes, Box<dyn Error>> {
    Ok(Bytes::copy_from_slice(arguments.next_pos().ok_or("a key or a value is missing")?.as_bytes()))
}

/// The sender and the receiver of the frames that a command is about.
fn ends(arguments: &mut ArgumentConsumer<'_>) -> Result<(Option<NodeId>, Option<NodeId>), Box<dyn Error>> {
    let mut end = |name| arguments.take_key(name).map(str::parse::<u64>).transpose();
    Ok((end("from")?.map(NodeId), end("to")?.map(NodeId)))
}
