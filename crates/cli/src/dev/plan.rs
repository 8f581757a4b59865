//! Plans a local cluster: ports, directories, tags and command lines of the nodes. Pure functions.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use tidelock_client::{CliError, output};
use tidelock_server::config::RESP_CLUSTER_PORT_OFFSET;

use crate::args::DevArgs;

use super::directory::Founding;

/// Zones of the nodes in turn: three, so that a cluster of up to three spans as many.
const ZONES: [&str; 3] = ["us-west-1a", "us-west-1c", "us-west-1f"];

/// The region of all nodes.
const REGION: &str = "us-central1";

/// A cluster to start on this machine.
#[derive(Debug)]
pub struct Plan {
    /// In the order of their numbers.
    pub nodes: Vec<NodePlan>,
    data_dir: PathBuf,
    executable: PathBuf,
    /// Whether the nodes have certificates, and clients need a token.
    pub secure: bool,
}

#[derive(Debug)]
pub struct NodePlan {
    /// `node-1`, `node-2`, …
    pub name: String,
    /// Its position among the nodes, from 0.
    pub place: usize,
    pub http: SocketAddr,
    pub resp: SocketAddr,
    pub peer: SocketAddr,
    /// Path of this binary.
    pub executable: PathBuf,
    /// `serve` and its flags.
    pub arguments: Vec<OsString>,
}

impl Plan {
    /// Lays out the cluster; fails if the ports do not fit.
    pub fn new(args: &DevArgs, executable: PathBuf) -> Result<Plan, CliError> {
        let resp_cluster_base = match args.resp_cluster_base {
            Some(base) => base,
            None => args.resp_base.checked_add(RESP_CLUSTER_PORT_OFFSET).ok_or_else(|| {
                CliError::Usage("--resp-base leaves no room for --resp-cluster-base: state both".into())
            })?,
        };
        let ranges = [
            ("http", args.http_base),
            ("resp", args.resp_base),
            ("resp-cluster", resp_cluster_base),
            ("peer", args.peer_base),
        ];
        for (at, (name, base)) in ranges.iter().enumerate() {
            if base.checked_add(args.nodes - 1).is_none() {
                return Err(CliError::Usage(format!(
                    "--{name}-base {base} leaves no room for {} ports",
                    args.nodes
                )));
            }
            for (other_name, other) in &ranges[at + 1..] {
                if base.abs_diff(*other) < args.nodes {
                    return Err(CliError::Usage(format!("the {name} and {other_name} ports overlap")));
                }
            }
        }
        let peers: Vec<String> =
            (0..args.nodes).map(|place| address(args.peer_base, place).to_string()).collect();
        let nodes = (0..args.nodes).map(|place| {
            let [http, resp, resp_cluster, peer] = ranges.map(|(_, base)| address(base, place));
            let name = format!("node-{}", place + 1);
            let zone = ZONES[usize::from(place) % ZONES.len()];
            let mut arguments: Vec<OsString> = vec!["serve".into(), "--data-dir".into()];
            arguments.push(args.data_dir.join(&name).into());
            for (flag, address) in
                [("--http", http), ("--resp", resp), ("--resp-cluster", resp_cluster), ("--peer", peer)]
            {
                arguments.extend([flag.into(), address.to_string().into()]);
            }
            arguments.extend(membership(args, place, &peers));
            if let Some(replicas) = &args.replicas {
                arguments.extend(["--replicas".into(), replicas.into()]);
            }
            for tag in [format!("geo:region={REGION}"), format!("geo:zone={zone}")] {
                arguments.extend(["--tag".into(), tag.into()]);
            }
            NodePlan {
                name,
                place: usize::from(place),
                http,
                resp,
                peer,
                executable: executable.clone(),
                arguments,
            }
        });
        let nodes = nodes.collect();
        let (data_dir, secure) = (args.data_dir.clone(), args.secure);
        Ok(Plan { nodes, data_dir, executable: executable.clone(), secure })
    }

    /// The settings that the data directory is bound to.
    pub fn founding(&self) -> Founding {
        Founding { nodes: self.nodes.len(), peer_base: self.nodes[0].peer.port(), secure: self.secure }
    }

    /// The data directory of a node.
    pub fn directory(&self, node: &NodePlan) -> PathBuf {
        self.data_dir.join(&node.name)
    }

    /// The file with the join token of a node.
    pub fn join_token(&self, node: &NodePlan) -> PathBuf {
        join_token(&self.data_dir, &node.name)
    }

    /// The certificate of the authority, which clients trust.
    pub fn ca(&self) -> PathBuf {
        self.directory(&self.nodes[0]).join("tls/ca.crt")
    }

    /// The token of the administrator.
    pub fn root_token(&self) -> PathBuf {
        self.directory(&self.nodes[0]).join("root.token")
    }

    /// The URL of a node.
    pub fn url(&self, node: &NodePlan) -> String {
        format!("{}://{}", if self.secure { "https" } else { "http" }, node.http)
    }

    /// The announcement once all nodes are ready; `pids` are their process ids.
    pub fn welcome(&self, pids: &[u32]) -> String {
        let rows = self.nodes.iter().zip(pids).map(|(node, pid)| {
            vec![
                format!("  {}", node.name),
                self.url(node),
                node.resp.to_string(),
                node.peer.to_string(),
                ZONES[node.place % ZONES.len()].to_owned(),
                pid.to_string(),
            ]
        });
        let table = output::table(&["  NODE", "HTTP", "REDIS", "PEER", "ZONE", "PID"], rows.collect());
        let ready = if self.nodes.len() == 1 {
            "The node is ready".into()
        } else {
            format!("All {} nodes are ready", self.nodes.len())
        };
        let mut text = format!("\n{ready}; data in {}\n\n{table}\n\nTry\n\n", self.data_dir.display());
        for line in self.suggestions() {
            writeln!(text, "  {line}").expect("invariant: writing to a string cannot fail");
        }
        write!(text, "\nConsole\n\n  {}/ui/\n", self.url(&self.nodes[0]))
            .expect("invariant: writing to a string cannot fail");
        if self.secure {
            writeln!(text, "  sign in with the token in {}", self.root_token().display())
                .expect("invariant: writing to a string cannot fail");
        }
        text.push_str("\nCtrl-C stops all nodes.\n\n");
        text
    }

    /// Commands to try.
    fn suggestions(&self) -> Vec<String> {
        let (first, last) = (&self.nodes[0], &self.nodes[self.nodes.len() - 1]);
        let tidelock = quote(&self.executable.to_string_lossy());
        let (first_url, last_url) = (self.url(first), self.url(last));
        if self.secure {
            let (ca, token) = (self.ca(), self.root_token());
            let (ca, token) = (quote(&ca.to_string_lossy()), quote(&token.to_string_lossy()));
            let access = format!("--ca {ca} --token-file {token}");
            return vec![
                format!("{tidelock} kv put hello world --url {first_url} {access}"),
                format!(
                    "curl --cacert {ca} -H \"Authorization: Bearer $(cat {token})\" {last_url}/v1/keys/hello"
                ),
                format!(
                    "REDISCLI_AUTH=$(cat {token}) redis-cli --tls --cacert {ca} -p {} GET hello",
                    last.resp.port()
                ),
                format!("{tidelock} cluster status --url {first_url} {access}"),
            ];
        }
        vec![
            format!("curl -X PUT {first_url}/v1/keys/hello -d world"),
            format!("curl {last_url}/v1/keys/hello"),
            format!("redis-cli -p {} GET hello", last.resp.port()),
            format!("{tidelock} cluster status --url {first_url}"),
        ]
    }
}

impl NodePlan {
    /// The command line to paste into a shell, preceded by these environment variables.
    pub fn shell_command(&self, environment: &[(String, String)]) -> String {
        let settings = environment.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let words = std::iter::once(self.executable.as_os_str())
            .chain(self.arguments.iter().map(OsString::as_os_str));
        let words = words.map(|word| quote(&word.to_string_lossy()));
        settings.chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// The flags by which a node founds the cluster, or joins it.
fn membership(args: &DevArgs, place: u16, peers: &[String]) -> Vec<OsString> {
    match (args.secure, place) {
        (true, 0) => vec!["--secure".into()],
        (true, _) => {
            let token = join_token(&args.data_dir, &format!("node-{}", place + 1));
            vec!["--join".into(), peers[0].clone().into(), "--join-token-file".into(), token.into()]
        }
        (false, _) if peers.len() > 1 => vec!["--peers".into(), peers.join(",").into()],
        (false, _) => vec![],
    }
}

fn join_token(data_dir: &Path, node: &str) -> PathBuf {
    data_dir.join(format!("{node}.join"))
}

fn address(base: u16, place: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, base + place).into()
}

/// `word` as a POSIX shell reads it back.
fn quote(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(nodes: u16) -> DevArgs {
        DevArgs {
            nodes,
            replicas: None,
            data_dir: "./tidelock-data/dev".into(),
            fresh: false,
            secure: false,
            http_base: 8001,
            resp_base: 7001,
            resp_cluster_base: None,
            peer_base: 9001,
            dump: false,
        }
    }

    #[test]
    fn three_founders() {
        let plan = Plan::new(&args(3), "target/release/tidelock".into()).unwrap();
        assert_eq!(
            plan.nodes[2].shell_command(&[]),
            "target/release/tidelock serve --data-dir ./tidelock-data/dev/node-3 --http 127.0.0.1:8003 \
             --resp 127.0.0.1:7003 --resp-cluster 127.0.0.1:7103 --peer 127.0.0.1:9003 \
             --peers 127.0.0.1:9001,127.0.0.1:9002,127.0.0.1:9003 --tag geo:region=us-central1 --tag geo:zone=us-west-1f"
        );
        let environment = [("TIDELOCK_LOG_FILTER".to_owned(), "info,a b".to_owned())];
        let command = plan.nodes[2].shell_command(&environment);
        assert!(
            command.starts_with("TIDELOCK_LOG_FILTER='info,a b' target/release/tidelock serve "),
            "{command}"
        );
        let welcome = plan.welcome(&[11, 12, 13]);
        for text in [
            "All 3 nodes are ready",
            "node-2  http://127.0.0.1:8002  127.0.0.1:7002  127.0.0.1:9002  us-west-1c  12",
            "http://127.0.0.1:8003/v1/keys/hello",
            "http://127.0.0.1:8001/ui/\n",
            "redis-cli -p 7003 GET hello",
        ] {
            assert!(welcome.contains(text), "{welcome}");
        }
    }

    #[test]
    fn nodes_with_certificates_join_the_first_one() {
        let plan = Plan::new(&DevArgs { secure: true, ..args(3) }, "tidelock".into()).unwrap();
        let commands: Vec<String> = plan.nodes.iter().map(|node| node.shell_command(&[])).collect();
        assert!(commands[0].contains(" --secure ") && !commands[0].contains("--peers"), "{}", commands[0]);
        let join = " --join 127.0.0.1:9001 --join-token-file ./tidelock-data/dev/node-3.join ";
        assert!(commands[2].contains(join), "{}", commands[2]);
        let welcome = plan.welcome(&[1, 2, 3]);
        let access =
            "--ca ./tidelock-data/dev/node-1/tls/ca.crt --token-file ./tidelock-data/dev/node-1/root.token";
        assert!(welcome.contains(access) && welcome.contains("https://127.0.0.1:8002"), "{welcome}");
        assert!(!welcome.contains("http://"), "{welcome}");
    }

    #[test]
    fn one_node_has_no_peers() {
        let plan = Plan::new(&args(1), "tidelock".into()).unwrap();
        assert!(!plan.nodes[0].arguments.contains(&"--peers".into()));
        assert!(plan.welcome(&[1]).contains("The node is ready"));
    }

    #[test]
    fn replicas_are_stated_only_if_they_are_given() {
        let arguments = |replicas: Option<&str>| {
            let args = DevArgs { replicas: replicas.map(str::to_owned), ..args(5) };
            Plan::new(&args, "tidelock".into()).unwrap().nodes.remove(4).arguments
        };
        assert!(!arguments(None).contains(&"--replicas".into()));
        let given = arguments(Some("5"));
        assert!(given.windows(2).any(|pair| pair == ["--replicas", "5"]), "{given:?}");
    }

    #[test]
    fn zones_repeat() {
        let plan = Plan::new(&args(9), "tidelock".into()).unwrap();
        let zones: Vec<_> =
            plan.nodes.iter().map(|node| node.arguments.last().unwrap().to_str().unwrap()).collect();
        assert_eq!(zones[0], "geo:zone=us-west-1a");
        assert_eq!(zones[3..6], zones[..3]);
        assert_eq!(zones[6], zones[0]);
    }

    #[test]
    fn the_commands_parse_as_serve() {
        use clap::Parser;
        for node in Plan::new(&args(4), "tidelock".into()).unwrap().nodes {
            let line = std::iter::once(OsString::from("tidelock")).chain(node.arguments.iter().cloned());
            let crate::args::Command::Serve(serve) = crate::args::Cli::try_parse_from(line).unwrap().command
            else {
                panic!("serve")
            };
            let settings = serve.settings;
            assert_eq!(settings.data_dir.unwrap(), PathBuf::from("./tidelock-data/dev").join(&node.name));
            assert_eq!(settings.peers.unwrap().len(), 4);
            assert_eq!(settings.tags.unwrap().len(), 2);
        }
    }

    #[test]
    fn ports_that_do_not_fit() {
        for (http, resp, peer) in [
            (65534, 7001, 9001),
            (8001, 8003, 9001),
            (8001, 7001, 7000),
            (7102, 7001, 9001),
            (8001, 65533, 9001),
        ] {
            let args = DevArgs { http_base: http, resp_base: resp, peer_base: peer, ..args(3) };
            assert!(matches!(Plan::new(&args, "x".into()), Err(CliError::Usage(_))), "{http} {resp} {peer}");
        }
        let args = DevArgs { http_base: 65533, resp_base: 1, peer_base: 4, ..args(3) };
        assert!(Plan::new(&args, "x".into()).is_ok());
    }

    #[test]
    fn quoting() {
        for (word, quoted) in [
            ("a-b/c.d:1=2,3", "a-b/c.d:1=2,3"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
        ] {
            assert_eq!(quote(word), quoted);
        }
    }
}
