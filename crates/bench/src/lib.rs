//! `tidelock bench`: generates load, measures latency, and checks the answers.
//!
//! Owns the phases of a run: write every key once, warm up, measure, report. The modules:
//!
//! ```text
//! args               the command line
//! keys stamp         the choice of keys, and self-describing values
//! protocol           the two traits of a connection: bytes, and their meaning
//!   http resp          bytes
//!   keywork ledger     the requests of each connection, and the check of answers
//! pace               when requests are sent, and when a run ends
//! token              the token in requests, and to which servers it goes
//! transport          TCP with or without TLS
//! connection load    one connection; threads of them
//! record report      the measurements, and their presentation
//! routes             the leaders of shards
//! atomic             registers incremented one request at a time
//! disk               the disk alone, without a server
//! ```
//!
//! The client shares its processors with the servers that it measures, so it has to be light: it
//! avoids allocations and system calls per request.

mod args;
mod atomic;
mod connection;
mod disk;
mod http;
mod keys;
mod keywork;
mod ledger;
mod load;
mod pace;
mod protocol;
mod record;
mod report;
mod resp;
mod routes;
mod stamp;
mod token;
mod transport;

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tidelock_client::{CliError, Client, ClientOptions, NodeUrl, Token};

pub use self::args::BenchArgs;
use self::args::{
    BenchCommand, Distribution, HttpBenchArgs, KvBenchArgs, LoadArgs, MixArgs, RespBenchArgs, Via,
};
pub use self::disk::{SyncLatency, sync_latency};
use self::http::{FixedProtocol, KeyProtocol};
use self::keys::KeySpace;
use self::keywork::{FixedWork, KeyPlan, KeyWork, Targets};
use self::ledger::{Ledger, LedgerPlan, Marks};
use self::load::{Pass, Recipe};
use self::protocol::Protocol;
use self::report::{Report, Setting};
use self::resp::RespProtocol;
use self::routes::{Listener, Routes};
use self::transport::Transport;

/// Default duration of the measurement.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Default duration of the warm-up of a run that is limited by time.
const WARM_UP_DEFAULT: Duration = Duration::from_secs(1);

/// Requests in flight on a connection while every key is written once, which is not measured.
const PREPARE_PIPELINE: u32 = 32;

/// Runs one of the `bench` commands.
pub fn run(args: BenchArgs) -> Result<(), CliError> {
    match args.command {
        BenchCommand::Kv(args) => kv(&args),
        BenchCommand::Resp(args) => resp(&args),
        BenchCommand::Http(args) => url(&args),
        BenchCommand::Atomic(args) => atomic::run(&args),
        BenchCommand::Disk(args) => disk::run(&args),
    }
}

fn kv(args: &KvBenchArgs) -> Result<(), CliError> {
    let keys = Arc::new(KeySpace::new(&args.mix)?);
    let default = if args.mix.distribution == Distribution::Sequential { Via::Given } else { Via::Leader };
    let via = args.mix.via.unwrap_or(default);
    let options = args.connection.resolve()?;
    let targets = match via {
        Via::Given => Targets::given(options.urls.iter().map(NodeUrl::address).collect()),
        Via::Leader | Via::Follower => routed(via, &args.mix, &keys, (&options, Listener::Http))?,
    };
    let (bytes, freshness) = (args.mix.value_size as usize, args.mix.consistency);
    let run = fastrand::u32(..);
    let transport = Transport::of_nodes(&options)?;
    if options.token.is_some() {
        token::check_paths(&targets.addresses, &transport)?;
    }
    let authorization = token::header(options.token.as_ref());
    let protocol = |keys: &Arc<KeySpace>, host: &str| {
        let headers = format!("host: {host}\r\n{authorization}");
        KeyProtocol::new(Arc::clone(keys), &headers, bytes, run, freshness)
    };
    KeyRun::new(&args.load, &args.mix, via, (keys, targets, transport)).run(Marks::Versions, run, &protocol)
}

fn resp(args: &RespBenchArgs) -> Result<(), CliError> {
    let keys = Arc::new(KeySpace::new(&args.mix)?);
    let via = args.mix.via.unwrap_or(Via::Given);
    let options = args.connection.resolve()?;
    let transport = Transport::new(args.tls, &options)?;
    let targets = match via {
        Via::Given => Targets::given(args.addresses.clone()),
        Via::Leader | Via::Follower => routed(via, &args.mix, &keys, (&options, Listener::Resp))?,
    };
    let (bytes, freshness) = (args.mix.value_size as usize, args.mix.consistency);
    let run = fastrand::u32(..);
    if options.token.is_some() {
        if via == Via::Given {
            token::check_hosts(&targets.addresses, &options.urls)?;
        }
        token::check_paths(&targets.addresses, &transport)?;
    }
    let token = options.token;
    let protocol = |keys: &Arc<KeySpace>, _: &str| {
        RespProtocol::new(Arc::clone(keys), bytes, run, freshness).with_token(token.as_ref())
    };
    KeyRun::new(&args.load, &args.mix, via, (keys, targets, transport)).run(Marks::Sequences, run, &protocol)
}

/// How long the cluster may take to name the leaders.
const ROUTES_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks the cluster for the leaders.
fn routed(
    via: Via,
    mix: &MixArgs,
    keys: &KeySpace,
    (options, listener): (&ClientOptions, Listener),
) -> Result<Targets, CliError> {
    let client = Client::new(options.clone(), ROUTES_TIMEOUT);
    let routes = Routes::ask_for_all(&client, ROUTES_TIMEOUT)?;
    Targets::routed(via, mix, keys, &routes, listener)
}

struct KeyRun<'a> {
    load: &'a LoadArgs,
    mix: &'a MixArgs,
    via: Via,
    keys: Arc<KeySpace>,
    targets: Targets,
    transport: Transport,
    seed: u64,
}

impl<'a> KeyRun<'a> {
    fn new(
        load: &'a LoadArgs,
        mix: &'a MixArgs,
        via: Via,
        (keys, targets, transport): (Arc<KeySpace>, Targets, Transport),
    ) -> KeyRun<'a> {
        KeyRun {
            load,
            mix,
            via,
            keys,
            targets,
            transport,
            seed: mix.seed.unwrap_or_else(|| fastrand::u64(..)),
        }
    }

    fn run<P: Protocol + 'static>(
        &self,
        marks: Marks,
        run: u32,
        protocol: &(dyn Fn(&Arc<KeySpace>, &str) -> P + Sync),
    ) -> Result<(), CliError> {
        let ledger = Arc::new(Ledger::new(LedgerPlan {
            marks,
            freshness: self.mix.consistency,
            keys: self.keys.count(),
            nodes: self.targets.addresses.len(),
            connections: self.load.connections as usize,
            run,
        }));
        if !self.mix.no_prepare {
            self.prepare(&ledger, protocol)?;
        }
        let plan = KeyPlan {
            mix: self.mix.clone(),
            keys: self.keys.starting_over().into(),
            ledger,
            targets: self.targets.clone(),
            seed: self.seed,
        };
        measure(self.load, &self.transport, self.describe(marks), &KeyRecipe { plan, protocol })
    }

    /// Writes every key once, so that later reads find values of this run.
    fn prepare<P: Protocol + 'static>(
        &self,
        ledger: &Arc<Ledger>,
        protocol: &(dyn Fn(&Arc<KeySpace>, &str) -> P + Sync),
    ) -> Result<(), CliError> {
        let plan = KeyPlan {
            mix: MixArgs { distribution: Distribution::Sequential, reads: 0.0, ..self.mix.clone() },
            keys: self.keys.starting_over().into(),
            ledger: Arc::clone(ledger),
            targets: Targets::given(self.targets.addresses.clone()),
            seed: 0,
        };
        let pass = Pass {
            name: "preparing",
            requests: Some(self.keys.count()),
            duration: None,
            rate: None,
            depth: self.load.pipeline.max(PREPARE_PIPELINE) as usize,
            ..pass(self.load, &self.transport, "", None)
        };
        let record = load::run(&pass, &KeyRecipe { plan, protocol })?.record;
        if record.writes.len() == self.keys.count() {
            return Ok(());
        }
        let why = record.errors.into_keys().chain(record.wrong).collect::<Vec<_>>().join("; ");
        let (written, all) = (record.writes.len(), self.keys.count());
        Err(CliError::Failed(format!("only {written} of {all} keys could be prepared: {why}")))
    }

    fn describe(&self, marks: Marks) -> String {
        let protocol = match marks {
            Marks::Versions => "HTTP",
            Marks::Sequences => "RESP",
        };
        let name = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let (mix, via) = (self.mix, name(&self.via));
        format!(
            "{protocol}, {}% reads, {} ({}), {} keys of {} bytes ({}), values of {} bytes, via {}",
            mix.reads,
            name(&mix.consistency),
            if via == "given" { "nodes as given".to_owned() } else { format!("{via}s") },
            self.keys.count(),
            self.keys.key_bytes(),
            name(&mix.distribution),
            mix.value_size,
            self.targets.addresses.join(","),
        )
    }
}

struct KeyRecipe<'a, P> {
    plan: KeyPlan,
    protocol: &'a (dyn Fn(&Arc<KeySpace>, &str) -> P + Sync),
}

impl<P: Protocol + 'static> Recipe for KeyRecipe<'_, P> {
    type Protocol = P;
    type Work = KeyWork;

    fn connection(&self, index: usize) -> Result<(String, P, KeyWork), CliError> {
        let addresses = &self.plan.targets.addresses;
        let address = addresses[index % addresses.len()].clone();
        let protocol = (self.protocol)(&self.plan.keys, &address);
        let work = KeyWork::new(&self.plan, index)?;
        Ok((address, protocol, work))
    }
}

struct FixedRecipe {
    address: String,
    protocol: FixedProtocol,
    expected: Option<Arc<[u8]>>,
}

impl Recipe for FixedRecipe {
    type Protocol = FixedProtocol;
    type Work = FixedWork;

    fn connection(&self, _index: usize) -> Result<(String, FixedProtocol, FixedWork), CliError> {
        Ok((self.address.clone(), self.protocol.clone(), FixedWork { expected: self.expected.clone() }))
    }
}

fn url(args: &HttpBenchArgs) -> Result<(), CliError> {
    let options = ClientOptions::new(vec![], args.ca.as_deref())?;
    let mut request = http::Request::parse(args).map_err(CliError::Usage)?;
    let transport = Transport::new(request.is_https, &options)?;
    if let Some(path) = &args.token_file {
        token::check_paths(slice::from_ref(&request.address), &transport)?;
        request.add_header(&token::header(Some(&Token::read(path)?)));
    }
    let recipe = FixedRecipe {
        protocol: FixedProtocol { request: request.bytes(), is_head: args.method == "HEAD" },
        address: request.address,
        expected: args.expect.as_deref().map(|text| text.as_bytes().into()),
    };
    measure(&args.load, &transport, format!("{} {}", args.method, args.url), &recipe)
}

/// Warms up, measures, reports.
fn measure<R: Recipe>(
    load: &LoadArgs,
    transport: &Transport,
    what: String,
    recipe: &R,
) -> Result<(), CliError> {
    let warm_up = match load.requests {
        Some(_) => Duration::ZERO,
        None => WARM_UP_DEFAULT,
    };
    let warm_up = load.warm_up_s.unwrap_or(warm_up);
    let mut before = None;
    if !warm_up.is_zero() {
        before = Some(load::run(&pass(load, transport, "warming up", Some(warm_up)), recipe)?.record);
    }
    let mut outcome = load::run(&pass(load, transport, "measuring", None), recipe)?;
    // Answers were checked in the warm-up, too.
    if let Some(before) = before {
        outcome.record.wrong_count += before.wrong_count;
        outcome.record.wrong.extend(before.wrong);
    }
    let setting = Setting {
        load: what,
        connections: load.connections as usize,
        pipeline: load.pipeline as usize,
        rate: load.rate,
    };
    Report::new(setting, &outcome).print(load.format())
}

/// A pass with the command line's settings; its duration is `warm_up`, or else that of the command
/// line.
fn pass(load: &LoadArgs, transport: &Transport, name: &'static str, warm_up: Option<Duration>) -> Pass {
    let duration = match load.requests {
        Some(_) => warm_up,
        None => warm_up.or(load.duration_s).or(Some(DURATION_DEFAULT)),
    };
    Pass {
        name,
        connections: load.connections as usize,
        threads: load.threads as usize,
        depth: load.pipeline as usize,
        requests: if warm_up.is_some() { None } else { load.requests },
        duration,
        rate: load.rate,
        timeout: Duration::from_millis(load.timeout_ms),
        transport: transport.clone(),
    }
}
