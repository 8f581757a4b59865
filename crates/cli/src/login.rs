//! `tidelock login`: stores an address and a token or the path of a certificate once, so that all
//! other commands need neither.
//!
//! Owns asking for the token, and which nodes are stored: the given ones, and with TLS the other
//! members of the cluster. Token or certificate are checked at a node before anything is stored.
//! Invariant: a terminal shows what is typed again after the command, also if a signal ends it.

use std::io::{self, BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tidelock_api::auth::Whoami;
use tidelock_api::cluster::{Cluster, Host, HostRole};
use tidelock_client::profiles::{self, Credential, DEFAULT_PROFILE, Login, Profile, Profiles};
use tidelock_client::{Call, CliError, Client, ClientOptions, DEFAULT_URL, NodeUrl, Token, output};
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::args::{LoginArgs, Output};
use crate::auth;

/// A longer line is no token.
const LINE_BYTES_MAX: u64 = 4096;

/// Checks a token or a certificate, and stores the profile.
pub fn run(args: LoginArgs) -> Result<(), CliError> {
    let name = args.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
    profiles::check_name(name)?;
    let directory = profiles::settings_directory();
    let directory = directory.ok_or_else(|| {
        CliError::Usage("there is no directory for settings: set HOME or XDG_CONFIG_HOME".to_owned())
    })?;
    let known = Profiles::read(&directory)?.profile.remove(name).unwrap_or_default();
    let (urls, ca) = connection(&args, &known)?;
    let options = ClientOptions::new(urls.clone(), ca.as_deref())?;
    let (options, credential) = with_credential(&args, options)?;
    let kind = match credential {
        Credential::Token(_) => "token",
        Credential::Certificate(_) => "certificate",
    };
    let client = Client::new(options, Duration::from_millis(args.timeout_ms));
    let answer = client.ask_for(200, &Call::get("/v1/auth/whoami"))?;
    let whoami: Whoami = answer.json()?;
    if whoami.principal.is_none() {
        let text = format!("{} does not know this {kind}; nothing was stored", answer.url);
        return Err(CliError::NotPermitted(text));
    }
    let (urls, missing) = with_members(&client, urls);
    let nodes = urls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let path = Login::new(name, urls, ca.as_deref(), credential)?.store(&directory)?;
    output::answer(args.output, &answer, || Ok(auth::describe(&whoami)))?;
    if args.output == Output::Text {
        let path = path.display();
        output::progress(&format!("Stored as the profile `{name}`, with {nodes}; the {kind} is in {path}."));
        if let Some(why) = missing {
            output::progress(&why);
        }
    }
    Ok(())
}

/// The given nodes, and behind them the other members of the cluster; or else why these are left
/// out. They are stored only if all nodes are reached with TLS, so that the authorities of the
/// profile vouch for them. Without it, what a node calls 127.0.0.1 may be something else here.
fn with_members(client: &Client, given: Vec<NodeUrl>) -> (Vec<NodeUrl>, Option<String>) {
    if !given.iter().all(NodeUrl::is_https) {
        return (given, None);
    }
    let answer = client.ask_for(200, &Call::get("/v1/cluster"));
    let listed = answer.and_then(|answer| Ok((answer.json::<Cluster>()?, answer.url)));
    match listed {
        Ok((cluster, by)) => {
            let by = by.parse().expect("invariant: what was asked is a URL of a node");
            (members(given, &by, &cluster), None)
        }
        Err(error) => {
            let text =
                format!("The other nodes of the cluster are not stored, because none named them: {error}");
            (given, Some(text))
        }
    }
}

/// The given nodes, and behind them the hosts that `by`, one of the given nodes, names. A host that
/// leaves, or has not registered its address, is none to ask.
fn members(mut nodes: Vec<NodeUrl>, by: &NodeUrl, cluster: &Cluster) -> Vec<NodeUrl> {
    let stays = |host: &&Host| host.node != cluster.node && host.standing != HostRole::Leaving;
    for host in cluster.hosts.iter().filter(stays) {
        if let Ok(url) = by.at(&host.http_address)
            && !nodes.contains(&url)
        {
            nodes.push(url);
        }
    }
    nodes
}

/// The certificate of the flags, or else a token that is asked for.
fn with_credential(
    args: &LoginArgs,
    options: ClientOptions,
) -> Result<(ClientOptions, Credential), CliError> {
    if let Some(paths) = args.certificate.paths()? {
        return Ok((options.with_certificate(Some(&paths))?, Credential::Certificate(paths)));
    }
    let token = || Token::parse(&ask()?).map_err(|error| CliError::Usage(format!("standard input: {error}")));
    let options = options.with_token(token)?;
    let token = options.token.clone().expect("invariant: the options have a token");
    Ok((options, Credential::Token(token)))
}

/// The nodes and the authorities' file. Those of the profile are kept if it has the given nodes.
fn connection(args: &LoginArgs, known: &Profile) -> Result<(Vec<NodeUrl>, Option<PathBuf>), CliError> {
    let nodes = known.nodes()?;
    let is_known = !nodes.is_empty() && args.urls.iter().all(|url| nodes.contains(url));
    let urls = match (is_known, args.urls.is_empty()) {
        (true, _) => nodes,
        (false, true) => vec![DEFAULT_URL.parse().expect("invariant: the default is a URL")],
        (false, false) => args.urls.clone(),
    };
    let ca = args.ca.clone().or_else(|| known.ca.clone().filter(|_| is_known));
    Ok((urls, ca))
}

/// The line that is typed or piped.
fn ask() -> Result<String, CliError> {
    if !io::stdin().is_terminal() {
        return read_line().map_err(CliError::io("standard input"));
    }
    let failed = || CliError::io("the terminal");
    let runtime = runtime::Builder::new_current_thread().enable_io().build().map_err(failed())?;
    runtime.block_on(async {
        // Signals are caught before the terminal changes, so that none leaves it changed.
        let mut signals = Signals::new().map_err(failed())?;
        let _hidden = HiddenInput::begin().map_err(failed())?;
        eprint!("Token: ");
        let (sender, receiver) = oneshot::channel();
        // Nothing ends a read of a terminal; the thread ends with the process.
        thread::spawn(move || sender.send(read_line()));
        tokio::select! {
            line = receiver => match line {
                Ok(line) => line.map_err(failed()),
                Err(_) => Err(CliError::Stopped("no token was typed".to_owned())),
            },
            () = signals.next() => Err(CliError::Stopped("interrupted; nothing was stored".to_owned())),
        }
    })
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().take(LINE_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// The signals that end a command.
struct Signals([Signal; 4]);

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ]))
    }

    /// Returns at the first signal.
    async fn next(&mut self) {
        let [interrupt, terminate, hangup, quit] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// The terminal does not show what is typed until this is dropped.
struct HiddenInput {
    before: Termios,
}

impl HiddenInput {
    fn begin() -> io::Result<HiddenInput> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown.
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(HiddenInput { before })
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> NodeUrl {
        text.parse().expect("a URL")
    }

    #[test]
    fn members_come_behind_the_given_nodes_once() {
        let host = |node, address: &str| Host { node, http_address: address.to_owned(), ..Host::default() };
        let leaving = Host { standing: HostRole::Leaving, ..host(5, "10.0.0.5:8001") };
        // The first one answers, at another address than it tells; the fourth has not registered.
        let hosts = vec![
            host(1, "10.0.0.1:8001"),
            host(2, "10.0.0.2:8001"),
            host(3, "10.0.0.3:8001"),
            host(4, ""),
            leaving,
        ];
        let cluster = Cluster { node: 1, hosts, ..Cluster::default() };
        let by = url("https://kv.example.org:443");
        let stored = |given: &[&str]| {
            let nodes = members(given.iter().map(|text| url(text)).collect(), &by, &cluster);
            nodes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (lb, two, three) =
            ("https://kv.example.org:443", "https://10.0.0.2:8001", "https://10.0.0.3:8001");
        assert_eq!(stored(&[lb]), [lb, two, three]);
        assert_eq!(stored(&[lb, three]), [lb, three, two]);
    }

    #[test]
    fn without_tls_no_node_is_asked_for_the_others() {
        let given = vec![url("http://127.0.0.1:1")];
        let options = ClientOptions::new(given.clone(), None).expect("options");
        let (nodes, missing) = with_members(&Client::new(options, Duration::from_millis(1)), given.clone());
        assert_eq!((nodes, missing), (given, None), "an unreachable node would be a reason");
    }
}
