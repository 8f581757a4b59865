//! `tidelock serve`: runs a node with the settings of flags and environment.
//!
//! Passes the settings to the server crate, which defines their meaning, defaults and validity.
//! Also stops a node that must not outlive the process that started it.

use std::error::Error;
use std::io::{self, Read};
use std::thread;

use rustix::process::{Signal, getpid, kill_process};
use tidelock_client::CliError;
use tidelock_server::config::{RawSettings, Settings};

use crate::args::ServeArgs;
use crate::logging;

/// Runs the node until it is told to stop.
pub fn run(args: ServeArgs) -> Result<(), CliError> {
    let settings = Settings::load(raw(&args), args.config.as_deref())
        .map_err(|error| CliError::Usage(with_causes(&error)))?;
    logging::init(settings.log_format, &settings.log_filter)?;
    if args.stop_at_stdin_end {
        stop_at_stdin_end()?;
    }
    start(settings)
}

/// Runs the server with its settings until it has stopped.
fn start(settings: Settings) -> Result<(), CliError> {
    tidelock_server::serve::run(settings).map_err(|error| {
        let text = with_causes(&error);
        if error.is_usage() { CliError::Usage(text) } else { CliError::Stopped(text) }
    })
}

fn raw(args: &ServeArgs) -> RawSettings {
    let args = args.clone();
    RawSettings {
        data_dir: args.data_dir,
        http: args.http,
        resp: args.resp,
        resp_cluster: args.resp_cluster,
        peer: args.peer,
        allowed_hosts: args.allowed_hosts,
        peers: args.peers,
        join: args.join,
        cluster_name: args.cluster_name,
        force_new_cluster: args.force_new_cluster,
        shards: args.shards,
        tags: args.tags,
        sync: args.sync,
        election_timeout_ms: args.election_timeout_ms,
        request_timeout_ms: args.request_timeout_ms,
        dead_after_s: args.dead_after_s,
        slow_request_ms: args.slow_request_ms,
        workers: args.workers,
        memory_limit: args.memory_limit,
        log_format: args.log_format,
        log_filter: args.log_filter,
    }
}

/// An error and its causes, on one line; a cause that the error's text already contains is not
/// repeated.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Stops this process gracefully, as SIGTERM does, once standard input ends: the process that held
/// the other end of the pipe has ended.
fn stop_at_stdin_end() -> Result<(), CliError> {
    let watch = || {
        let mut ignored = [0; 64];
        loop {
            match io::stdin().lock().read(&mut ignored) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        // A process can always signal itself.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let lifeline = thread::Builder::new().name("lifeline".to_owned()).spawn(watch);
    lifeline.map(drop).map_err(CliError::io("the lifeline's thread"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use tidelock_server::config;

    use super::*;
    use crate::args::{Cli, Command};

    fn raw_of(line: &str) -> RawSettings {
        let Command::Serve(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
            panic!("serve")
        };
        raw(&args)
    }

    #[test]
    fn every_flag_arrives() {
        let given = raw_of(
            "tidelock serve --data-dir d --http h:1 --resp r:2 --resp-cluster s:2 --peer p:3 --allowed-hosts x.example,y --peers p:3,q:3 --join m:4,n:4 \
             --cluster-name c --force-new-cluster x --shards 8 --tag a=1 --tag b=2 --sync false --election-timeout-ms 500 --request-timeout-ms 900 --dead-after-s 60 --slow-request-ms 70 --workers 3 --memory-limit 2GiB --log-format json \
             --log debug",
        );
        let text = |text: &str| Some(text.to_owned());
        let list = |items: &[&str]| Some(items.iter().map(ToString::to_string).collect());
        let expected = RawSettings {
            data_dir: Some("d".into()),
            http: text("h:1"),
            resp: text("r:2"),
            resp_cluster: text("s:2"),
            peer: text("p:3"),
            allowed_hosts: list(&["x.example", "y"]),
            peers: list(&["p:3", "q:3"]),
            join: list(&["m:4", "n:4"]),
            cluster_name: text("c"),
            force_new_cluster: text("x"),
            shards: Some(8),
            tags: list(&["a=1", "b=2"]),
            sync: Some(false),
            election_timeout_ms: Some(500),
            request_timeout_ms: Some(900),
            dead_after_s: Some(60),
            slow_request_ms: Some(70),
            workers: Some(3),
            memory_limit: text("2GiB"),
            log_format: text("json"),
            log_filter: text("debug"),
        };
        assert_eq!(given, expected);
    }

    /// Every flag of `serve` with the default that the server has for it.
    fn defaults() -> Vec<(&'static str, String)> {
        vec![
            ("data-dir", config::DEFAULT_DATA_DIR.to_owned()),
            ("http", config::DEFAULT_HTTP.to_owned()),
            ("resp", config::DEFAULT_RESP.to_owned()),
            ("resp-cluster", config::DEFAULT_RESP_CLUSTER.to_owned()),
            ("peer", config::DEFAULT_PEER.to_owned()),
            ("allowed-hosts", String::new()),
            ("peers", String::new()),
            ("join", String::new()),
            ("cluster-name", config::DEFAULT_CLUSTER_NAME.to_owned()),
            ("force-new-cluster", String::new()),
            ("shards", config::DEFAULT_SHARDS.to_string()),
            ("tag", String::new()),
            ("sync", config::DEFAULT_SYNC.to_string()),
            ("election-timeout-ms", config::DEFAULT_ELECTION_TIMEOUT_MS.to_string()),
            ("request-timeout-ms", config::DEFAULT_REQUEST_TIMEOUT_MS.to_string()),
            ("dead-after-s", config::DEFAULT_DEAD_AFTER_S.to_string()),
            ("slow-request-ms", config::DEFAULT_SLOW_REQUEST_MS.to_string()),
            ("workers", config::DEFAULT_WORKERS.to_owned()),
            ("memory-limit", config::DEFAULT_MEMORY_LIMIT.to_owned()),
            ("log-format", config::DEFAULT_LOG_FORMAT.to_owned()),
            ("log", config::DEFAULT_LOG_FILTER.to_owned()),
            ("config", String::new()),
        ]
    }

    #[test]
    fn help_names_the_defaults_of_the_server() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let flags = serve.get_arguments().filter(|argument| !argument.is_hide_set());
        let flags: Vec<_> = flags.filter(|flag| flag.get_long() != Some("help")).collect();
        assert_eq!(flags.len(), defaults().len());
        for (flag, (name, default)) in flags.iter().zip(defaults()) {
            assert_eq!(flag.get_long(), Some(name));
            let help = flag.get_help().unwrap().to_string();
            let named = help.split("[default: ").nth(1).and_then(|rest| rest.split(']').next());
            assert_eq!(named.unwrap_or_default(), default, "--{name}");
        }
    }

    /// The documentation has every flag with its variable and default, and no others.
    #[test]
    fn the_operations_page_lists_the_flags_of_serve() {
        let page = include_str!("../../../docs/operations.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `--"))
            .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
            .collect();
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        assert_eq!(rows.len(), defaults().len());
        for (row, (name, default)) in rows.iter().zip(defaults()) {
            let flag = serve.get_arguments().find(|flag| flag.get_long() == Some(name)).unwrap();
            let variable = flag.get_env().and_then(|variable| variable.to_str()).unwrap();
            assert_eq!(row[1].split(' ').next(), Some(&*format!("--{name}")));
            assert_eq!((row[2], row[3]), (variable, &*default), "--{name}");
        }
    }

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{text}")]
        struct Layer {
            text: &'static str,
            source: Option<Box<Layer>>,
        }
        let layer = |text, source: Option<Layer>| Layer { text, source: source.map(Box::new) };
        let error = layer("cannot start", Some(layer("port taken", Some(layer("taken", None)))));
        assert_eq!(with_causes(&error), "cannot start: port taken");
    }
}
