//! The pages that make a cluster safe, on machines of their own: the commands run as printed, and
//! certificates and tokens change under load.
//!
//! The load is one HTTP and one Redis client for each node. No request may fail while certificates
//! are renewed and the CA is replaced, and none may be accepted that begins after a command has
//! said that its token is deleted everywhere.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::client::Raw;
use crate::harness::machines::{COMPUTER, Machines, connect};
use crate::harness::{eventually, resp, shell_commands};

const HOSTS: [&str; 4] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];

const PROTOCOLS: usize = 2;

/// Requests of a client on one connection. A change has reached a client that has made two more
/// connections.
const PER_CONNECTION: u64 = 10;

/// What became of a request.
enum Outcome {
    Accepted,
    /// Refused because of the token.
    Refused,
    Failed(String),
}

/// Clients with one token: two for each node.
struct Load<'a> {
    machines: &'a Machines,
    token: String,
    /// Whether the deletion of the token has begun.
    is_revoking: AtomicBool,
    /// Whether the token is deleted on every node.
    is_revoked: AtomicBool,
    is_over: AtomicBool,
    accepted: [AtomicU64; HOSTS.len() * PROTOCOLS],
    refused: [AtomicU64; HOSTS.len() * PROTOCOLS],
    failures: Mutex<Vec<String>>,
}

impl Load<'_> {
    fn new<'a>(machines: &'a Machines, token: &str) -> Load<'a> {
        Load {
            machines,
            token: token.to_owned(),
            is_revoking: AtomicBool::new(false),
            is_revoked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            accepted: Default::default(),
            refused: Default::default(),
            failures: Mutex::default(),
        }
    }

    /// Runs one client until the load is over.
    fn run(&self, client: usize) {
        while !self.is_over.load(Ordering::SeqCst) {
            let must_be_refused = self.is_revoked.load(Ordering::SeqCst);
            let done = if client < HOSTS.len() { self.http(client) } else { self.redis(client) };
            if let Err(error) = done {
                self.judge(client, must_be_refused, Outcome::Failed(error.to_string()));
            }
        }
    }

    /// Requests on one connection for HTTP.
    fn http(&self, client: usize) -> std::io::Result<()> {
        let host = HOSTS[client % HOSTS.len()];
        let mut connection = Raw::over(self.connect(host, 8001)?);
        for number in 0..PER_CONNECTION {
            let (method, body) = if number % 2 == 0 { ("PUT", "value") } else { ("GET", "") };
            let must_be_refused = self.is_revoked.load(Ordering::SeqCst);
            let request = format!(
                "{method} /v1/keys/load/{host} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
                 content-length: {}\r\n\r\n{body}",
                self.token,
                body.len()
            );
            connection.write(request.as_bytes())?;
            let outcome = match connection.read()? {
                (200 | 201, _) => Outcome::Accepted,
                (401, _) => Outcome::Refused,
                (status, body) => Outcome::Failed(format!("{status} {}", String::from_utf8_lossy(&body))),
            };
            self.judge(client, must_be_refused, outcome);
        }
        Ok(())
    }

    /// Commands on one connection for Redis.
    fn redis(&self, client: usize) -> std::io::Result<()> {
        let host = HOSTS[client % HOSTS.len()];
        let mut connection = resp::Client::over(self.connect(host, 7001)?);
        for number in 0..PER_CONNECTION {
            let command = match number {
                0 => format!("AUTH {}", self.token),
                number if number % 2 == 0 => format!("SET load/{host} value"),
                _ => format!("GET load/{host}"),
            };
            let must_be_refused = self.is_revoked.load(Ordering::SeqCst);
            connection.send(&format!("{command}\r\n"))?;
            let reply = connection.reply()?;
            let outcome = if !reply.starts_with('-') {
                Outcome::Accepted
            } else if ["-NOAUTH ", "-WRONGPASS ", "-NOPERM "].iter().any(|error| reply.starts_with(error)) {
                Outcome::Refused
            } else {
                Outcome::Failed(reply)
            };
            self.judge(client, must_be_refused, outcome);
        }
        Ok(())
    }

    fn connect(&self, host: &str, port: u16) -> std::io::Result<crate::harness::machines::TlsStream> {
        let address = SocketAddr::new(host.parse().expect("an address"), port);
        connect(address, &self.machines.path(COMPUTER, "home/ca.crt"))
    }

    fn judge(&self, client: usize, must_be_refused: bool, outcome: Outcome) {
        let failure = match outcome {
            Outcome::Accepted => {
                self.accepted[client].fetch_add(1, Ordering::SeqCst);
                must_be_refused.then(|| "accepted with a deleted token".to_owned())
            }
            Outcome::Refused => {
                self.refused[client].fetch_add(1, Ordering::SeqCst);
                let is_early = !self.is_revoking.load(Ordering::SeqCst);
                is_early.then(|| "refused with a valid token".to_owned())
            }
            Outcome::Failed(failure) => Some(failure),
        };
        if let Some(failure) = failure {
            self.failures.lock().expect("no client panics").push(format!("client {client}: {failure}"));
        }
        // The nodes need the processors too.
        thread::sleep(Duration::from_millis(5));
    }

    /// Waits until every client has made connections that began after this call.
    fn wait_for_new_connections(&self) {
        let counts = || self.accepted.iter().map(|count| count.load(Ordering::SeqCst));
        let before: Vec<u64> = counts().collect();
        eventually("every client connects anew", || {
            self.check();
            let has_progressed = |(now, before): (u64, &u64)| now >= before + 2 * PER_CONNECTION;
            counts().zip(&before).all(has_progressed).then_some(())
        });
    }

    fn check(&self) {
        let failures = self.failures.lock().expect("no client panics");
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

/// Ends the load also if the test fails, so that its threads do not run on.
struct EndOnDrop<'a>(&'a Load<'a>);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

/// Makes a token that allows everything on keys; returns the number that names it.
fn make_token(machines: &Machines, principal: &str) -> (String, String) {
    machines.until_done("tidelock auth role put app --grant 'read keys:' --grant 'write keys:'");
    machines.until_done(&format!("tidelock auth principal put {principal} --role app"));
    machines.until_done(&format!("tidelock auth token create {principal} --out {principal}.token"));
    let file = machines.path(COMPUTER, &format!("home/{principal}.token"));
    let token = std::fs::read_to_string(file).expect("a token").trim().to_owned();
    let number = token.split('_').nth(1).expect("a number").to_owned();
    (token, number)
}

/// Replaces the CA by the commands of the page, while the load goes on.
fn replace_ca(machines: &Machines, load: &Load<'_>, page: &str) {
    let (_, section) = page.split_once("## A key that is no longer only yours").expect("the section");
    let commands = section.split("```").nth(1).expect("its commands");
    assert_eq!(commands.trim().lines().count(), 4, "{commands}");
    for command in commands.trim().lines() {
        machines.until_done(command);
        // With another implementation of TLS than the load.
        let token = "authorization: Bearer $(cat app.token)";
        machines.until_done(&format!(
            "curl -sf --cacert ca.crt -H \"{token}\" https://10.0.0.2:8001/v1/keys/hello"
        ));
        if command.ends_with("use 2") {
            for host in HOSTS {
                machines.wait_for_log(host, "renewed the certificate of this node authority=2");
            }
        }
        load.wait_for_new_connections();
    }
    for host in HOSTS {
        let path = machines.path(host, "/var/lib/tidelock/tls/ca.crt");
        let certificates = || std::fs::read_to_string(&path).expect("a bundle").matches("BEGIN").count();
        eventually("the node trusts one CA", || (certificates() == 1).then_some(()));
    }
    load.wait_for_new_connections();
}

/// Deletes the token of the load. From the end of the command on, no node accepts it.
fn revoke(machines: &Machines, load: &Load<'_>, number: &str) {
    load.is_revoking.store(true, Ordering::SeqCst);
    let said = machines.until_done(&format!("tidelock auth token delete {number}"));
    assert!(said.contains("in force on 4 of 4 nodes"), "{said}");
    load.is_revoked.store(true, Ordering::SeqCst);
    eventually("every client is refused", || {
        load.refused.iter().all(|count| count.load(Ordering::SeqCst) >= 2).then_some(())
    });
    load.check();
}

/// One stale read on a connection of its own; its status.
fn read_stale(host: &str, ca: &Path, token: &str) -> u16 {
    let address = format!("{host}:8001").parse().expect("an address");
    let mut connection = Raw::over(connect(address, ca).expect("the node listens"));
    let head = format!("host: {host}\r\nauthorization: Bearer {token}\r\n");
    let request = format!("GET /v1/keys/hello?stale=true HTTP/1.1\r\n{head}\r\n");
    connection.write(request.as_bytes()).expect("written");
    connection.read().expect("an answer").0
}

/// A node that is cut off accepts a deleted token no longer than `--auth-stale-s` says.
fn cut_off(machines: &Machines, host: &str, stale: Duration) {
    let (token, number) = make_token(machines, "reader");
    let ca = machines.path(COMPUTER, "home/ca.crt");
    let read = || machines.within(host, || read_stale(host, &ca, &token));
    eventually("the node knows the token", || (read() == 200).then_some(()));
    let cut = Instant::now();
    machines.set_link(host, false);
    let said = machines.until_done(&format!("tidelock auth token delete {number}"));
    assert!(said.contains("in force on 3 of 4 nodes; not yet on node 4"), "{said}");
    let mut last_accepted = cut;
    eventually("the node refuses the token", || {
        let began = Instant::now();
        match read() {
            200 => {
                last_accepted = began;
                None
            }
            503 => Some(()),
            status => panic!("{status}"),
        }
    });
    // No assertion about speed: the node confirmed the permissions before it was cut off, and
    // counts from then on, no matter how busy the machine is.
    assert!(last_accepted - cut <= stale, "accepted {:?} after the cut", last_accepted - cut);
    machines.set_link(host, true);
    eventually("the node has heard of the deletion", || (read() == 401).then_some(()));
}

#[test]
fn three_machines_and_a_fourth_are_safe_by_the_commands_of_the_page() {
    let test = "three_machines_and_a_fourth_are_safe_by_the_commands_of_the_page";
    let Some(mut machines) = Machines::make(test, HOSTS.len()) else { return };
    let steps = include_str!("../../../../docs/tutorial/three-machines.md");
    let page = include_str!("../../../../docs/how-to/secure.md");
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Make another join token, and start the machine as in [step 3]"));
    machines.run_all(&shell_commands(steps));
    machines.run_all("tidelock cluster join-token --out join-4.token\nscp join-4.token 10.0.0.4:");
    let join = shell_commands(steps).replace("\\\n", " ");
    let join = join.lines().find(|line| line.contains("--join-token-file join-3.token")).expect("step 3");
    let join = join.replace("10.0.0.3", "10.0.0.4").replace("join-3", "join-4");
    machines.run_all(&format!("{join} --auth-stale-s 10"));
    let (token, number) = make_token(&machines, "app");
    for host in HOSTS {
        machines.until_done(&format!(
            "tidelock kv get hello --url https://{host}:8001 --ca ca.crt --token-file app.token"
        ));
    }
    let load = Load::new(&machines, &token);
    thread::scope(|scope| {
        let _end = EndOnDrop(&load);
        for client in 0..HOSTS.len() * PROTOCOLS {
            let load = &load;
            scope.spawn(move || load.machines.within(COMPUTER, || load.run(client)));
        }
        load.wait_for_new_connections();
        replace_ca(&machines, &load, page);
        revoke(&machines, &load, &number);
    });
    load.check();
    cut_off(&machines, HOSTS[3], Duration::from_secs(10));
}

/// A write over HTTP and one over the Redis protocol, without a token, from the computer: the
/// status and the body of the first answer, and the second one.
fn write_without_token(machines: &Machines, host: &str) -> (u16, String, String) {
    let port = |port| SocketAddr::new(host.parse().expect("an address"), port);
    let ca = machines.path(COMPUTER, "home/tidelock-tls/ca.crt");
    machines.within(COMPUTER, || {
        let mut redis = resp::Client::over(connect(port(7001), &ca).expect("the node listens"));
        let mut http = Raw::over(connect(port(8001), &ca).expect("the node listens"));
        let request = format!("PUT /v1/keys/a HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1\r\n\r\n1");
        http.write(request.as_bytes()).expect("written");
        let (status, body) = http.read().expect("an answer");
        (status, String::from_utf8_lossy(&body).into_owned(), redis.ask("SET a 1"))
    })
}

/// Starts the founders by the commands that the page has for the first one.
fn found(machines: &mut Machines, commands: &str) {
    let line = |start: &str| commands.lines().find(|line| line.starts_with(start)).expect("a command");
    machines.run_all(line("tidelock tls init"));
    for host in &HOSTS[..3] {
        let places = ["scp -r tidelock-tls/", " ", "--http ", "--resp ", "--peer "];
        let own = |line: &str| {
            places.iter().fold(line.to_owned(), |line, before| {
                line.replace(&format!("{before}10.0.0.1"), &format!("{before}{host}"))
            })
        };
        machines.run_all(&own(line("scp -r tidelock-tls/")));
        machines
            .run_all(&own(line("tidelock serve")).replace(&format!("--peers {host}"), "--peers 10.0.0.1"));
    }
}

/// Runs a command on the first machine, as the page says.
fn on_the_first(machines: &Machines, command: &str) -> String {
    let settings = "export TIDELOCK_URL=https://10.0.0.1:8001 TIDELOCK_CA=tls/ca.crt";
    machines.until_done_on(HOSTS[0], &format!("{settings}; {command}"))
}

/// Founders with certificates of their own serve no other machine until tokens are required.
#[test]
fn static_founders_serve_only_their_own_machines_until_tokens_are_required() {
    let test = "static_founders_serve_only_their_own_machines_until_tokens_are_required";
    let Some(mut machines) = Machines::make(test, HOSTS.len()) else { return };
    let page = include_str!("../../../../docs/how-to/secure.md");
    let (_, section) = page.split_once("## Certificates of your own").expect("the section");
    let (section, _) = section.split_once("### A certificate that is no longer yours").expect("the end");
    let written = shell_commands(section).replace("\\\n", " ");
    found(&mut machines, &written);
    on_the_first(&machines, "tidelock kv put here yes");
    for host in &HOSTS[..3] {
        eventually("a node refuses other machines", || {
            let (status, http, redis) = write_without_token(&machines, host);
            let is_refused = status == 403 && http.contains("problems/protected-mode");
            assert!(is_refused || status == 503, "{status} {http}");
            assert!(redis.starts_with("-DENIED ") || redis.starts_with("-MASTERDOWN"), "{redis}");
            is_refused.then_some(())
        });
    }
    let (_, after) = section.split_once("TIDELOCK_CA=tls/ca.crt\n").expect("the commands");
    let (typed, _) = after.split_once("```").expect("their end");
    for command in typed.trim().lines() {
        on_the_first(&machines, command);
    }
    let login: Vec<&str> =
        written.lines().skip_while(|line| !line.starts_with("scp 10.0.0.1:root")).collect();
    machines.run_all(&login.join("\n"));
    machines.until_done("tidelock kv put hello world");
    machines.run_all(
        "tidelock tls init --hosts 10.0.0.4 --out tidelock-tls\nscp -r tidelock-tls/10.0.0.4 10.0.0.4:tls\n\
         tidelock serve --data-dir /var/lib/tidelock --tls-dir tls --http 10.0.0.4:8001 --resp 10.0.0.4:7001 \
         --peer 10.0.0.4:9001 --join 10.0.0.1:9001",
    );
    let joined =
        "tidelock kv get hello --url https://10.0.0.4:8001 --ca tidelock-tls/ca.crt --token-file root.token";
    assert_eq!(machines.until_done(joined).trim_end(), "world");
    let (status, http, redis) = write_without_token(&machines, HOSTS[3]);
    assert_eq!((status, redis.as_str()), (401, "-NOAUTH Authentication required."), "{http}");
}
