//! `tidelock dev`: a whole cluster on this machine, as real processes of this very binary.
//!
//! Starts, supervises and stops the children. [`plan`] decides their settings, and [`directory`]
//! decides what may be deleted. A child is an ordinary `tidelock serve`.
//!
//! Invariants:
//! - No child outlives this process, however it ends: each child has the reading end of a pipe as
//!   its standard input and stops at its end; the kernel closes the pipe even after `kill -9`.
//! - A child that dies is never restarted automatically, so that users can see how the cluster
//!   behaves without it.

mod child;
mod directory;
mod lines;
mod plan;
mod ready;
mod secure;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, CommandFactory};
use tidelock_client::{CliError, output};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::args::{Cli, DevArgs};
use child::Exit;
use plan::{NodePlan, Plan};

/// How long the nodes may take to become ready. The first election takes about two seconds; a node
/// with much to recover takes longer.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the cluster until a signal stops it or no node is left.
pub fn run(args: &DevArgs) -> Result<(), CliError> {
    let plan = Plan::new(args, own_executable()?)?;
    directory::prepare(&args.data_dir, &plan.founding(), args.fresh)?;
    refuse_ports_in_use(&plan)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(CliError::io("the runtime of the supervisor"))?;
    runtime.block_on(supervise(&plan, args.dump))
}

/// The shortest path of this binary, which is shown in commands to type.
fn own_executable() -> Result<PathBuf, CliError> {
    let executable = std::env::current_exe().map_err(CliError::io("the path of this executable"))?;
    let here = std::env::current_dir().ok();
    let below = here.as_ref().and_then(|here| executable.strip_prefix(here).ok());
    Ok(below.map_or_else(|| executable.clone(), |path| Path::new(".").join(path)))
}

/// Checks before the start whether a port is taken: this is clearer than the log of a node that
/// could not bind.
fn refuse_ports_in_use(plan: &Plan) -> Result<(), CliError> {
    for node in &plan.nodes {
        for address in [node.http, node.peer, node.resp] {
            if let Err(error) = TcpListener::bind(address) {
                return Err(CliError::Stopped(format!(
                    "{address}, wanted for {}, cannot be used: {error}\nIs another cluster running? \
                     --http-base, --resp-base and --peer-base choose other ports.",
                    node.name
                )));
            }
        }
    }
    Ok(())
}

async fn supervise(plan: &Plan, dumps: bool) -> Result<(), CliError> {
    // Before the first child, so that no signal can leave one behind.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::io("the handler of SIGINT"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::io("the handler of SIGTERM"))?;
    let (stop, stopped) = watch::channel(false);
    let (exits_in, mut exits) = mpsc::channel(plan.nodes.len());
    let mut starter = Starter { children: JoinSet::new(), pids: vec![], stopped, exits: exits_in };

    let outcome = tokio::select! {
        outcome = start_and_watch(plan, &mut starter, dumps, &mut exits) => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    say(if outcome.is_ok() { "stopping all nodes" } else { "stopping the other nodes" });
    // The receivers are in the children's tasks; without a child this fails, and that is fine.
    let _ = stop.send(true);
    tokio::select! {
        () = async { while starter.children.join_next().await.is_some() {} } => {}
        // A second signal stops at once. Dropping the tasks kills their children.
        _ = interrupt.recv() => say("killed"),
        _ = terminate.recv() => say("killed"),
    }
    outcome
}

/// Starts nodes as children of this process.
struct Starter {
    children: JoinSet<()>,
    /// The process ids of the nodes, in their order.
    pids: Vec<u32>,
    stopped: watch::Receiver<bool>,
    exits: mpsc::Sender<Exit>,
}

impl Starter {
    fn start(&mut self, node: &NodePlan) -> Result<(), CliError> {
        let (stopped, exits) = (self.stopped.clone(), self.exits.clone());
        self.pids.push(child::start(node, &mut self.children, stopped, exits)?);
        Ok(())
    }

    /// Starts all nodes; returns when all are ready. Nodes with certificates start one after the
    /// other, because the first one gives the others their join tokens.
    async fn start_all(&mut self, plan: &Plan) -> Result<(), CliError> {
        for node in &plan.nodes {
            if plan.secure && node.place > 0 {
                secure::ready(plan, &plan.nodes[0]).await;
                secure::write_join_token(plan, node).await?;
            }
            self.start(node)?;
        }
        if !plan.secure {
            ready::all(&plan.nodes).await;
            return Ok(());
        }
        for node in &plan.nodes {
            secure::ready(plan, node).await;
        }
        Ok(())
    }
}

/// Announces the cluster once it is ready and the registry has every node, so that the announcement
/// is the last output. Then reports every node that dies; returns when none is left.
async fn start_and_watch(
    plan: &Plan,
    starter: &mut Starter,
    dumps: bool,
    exits: &mut mpsc::Receiver<Exit>,
) -> Result<(), CliError> {
    let timeout_text =
        format!("the nodes were not ready within {} s; see their logs above", READY_TIMEOUT.as_secs());
    tokio::select! {
        ready = tokio::time::timeout(READY_TIMEOUT, starter.start_all(plan)) => {
            ready.map_err(|_| CliError::Stopped(timeout_text))??;
        }
        exit = exits.recv() => {
            let exit = exit.expect("invariant: the starter has a sender");
            return Err(CliError::Stopped(format!(
                "{} ended before the cluster was ready: {}; see its log above", exit.node, exit.how
            )));
        }
    }
    let dump = if plan.secure { secure::dump(plan).await } else { ready::dump(&plan.nodes).await };
    if let Some(dump) = dump.filter(|_| dumps) {
        output::write(format!("\nThe registry (`tidelock cluster dump`):\n\n{dump}").as_bytes())?;
    }
    output::write(plan.welcome(&starter.pids).as_bytes())?;
    let mut alive = plan.nodes.len();
    while alive > 0 {
        let Some(exit) = exits.recv().await else { break };
        alive -= 1;
        let node = plan.nodes.iter().find(|node| node.name == exit.node);
        let environment = settings_in_environment();
        let command = node.map(|node| node.shell_command(&environment)).unwrap_or_default();
        say(&format!(
            "{} is gone: {}. Start it again, in another terminal, which then also stops it, with\n  {command}",
            exit.node, exit.how
        ));
    }
    Err(CliError::Stopped("no node is left".to_owned()))
}

/// The environment variables from which the nodes take settings, as they are now.
fn settings_in_environment() -> Vec<(String, String)> {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("invariant: serve is a command");
    let names = serve.get_arguments().filter_map(Arg::get_env).filter(|name| *name != child::UNSET_VARIABLE);
    let set = names.filter_map(|name| Some((name.to_str()?.to_owned(), std::env::var(name).ok()?)));
    set.collect()
}

/// A message of the supervisor, apart from the nodes' logs.
fn say(message: &str) {
    eprintln!("tidelock dev: {message}");
}
