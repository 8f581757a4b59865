//! The token in the requests of a client, as a server receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidelock_client::{Call, CliError, Client, ClientOptions, Token};

const TOKEN: &str = "tdl_0123456789abcdef_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";

/// A server that records the head of each request, and gives one answer to all.
struct Recorder {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// `headers` are lines of the answer's head, each with its end.
    fn start(status: u16, headers: &str, body: &str) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&heads);
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.expect("a connection"));
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|bytes| bytes > 0)
                {
                }
                // A client that checks only whether a node can be reached sends nothing.
                if head.is_empty() {
                    continue;
                }
                recorded.lock().expect("no panic").push(head);
                let mut stream = reader.into_inner();
                stream.write_all(answer.as_bytes()).expect("written");
                drop(stream);
            }
        });
        Recorder { address, heads }
    }

    fn client(&self, token: Option<&str>) -> Client {
        let urls = vec![format!("http://{}", self.address).parse().expect("a URL")];
        let mut options = ClientOptions::new(urls, None).expect("options");
        options.token = token.map(|text| Token::parse(text).expect("a token"));
        Client::new(options, Duration::from_secs(10))
    }

    /// The values of `Authorization` of the requests so far; empty for a request without.
    fn authorizations(&self) -> Vec<String> {
        let heads = self.heads.lock().expect("no panic");
        let of = |head: &String| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let found = lines.find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
            found.map_or_else(String::new, |(_, value)| value.to_owned())
        };
        heads.iter().map(of).collect()
    }
}

fn refusal(server: &Recorder, token: Option<&str>) -> String {
    let error = server.client(token).ask_for(200, &Call::get("/v1/keys/k")).expect_err("a refusal");
    assert!(matches!(error, CliError::Refused(_)), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("lmnop"), "the secret is shown: {error:?}");
    error.to_string()
}

fn problem(name: &str, status: u16) -> String {
    format!(r#"{{"type":"https://x/problems/{name}","title":"T","status":{status},"detail":"D"}}"#)
}

#[test]
fn every_request_has_the_token() {
    let server = Recorder::start(200, "", "{}");
    let client = server.client(Some(TOKEN));
    for call in [Call::get("/a"), Call::delete("/a"), Call::post("/a", b"body")] {
        client.ask_for(200, &call).expect("an answer");
    }
    let (_, mut body) = client.download("/a").expect("an answer");
    body.read_to_end(&mut vec![]).expect("a body");
    client.of(client.nodes().to_vec()).ask_for(200, &Call::get("/a")).expect("an answer");
    assert_eq!(server.authorizations(), vec![format!("Bearer {TOKEN}"); 5]);

    let server = Recorder::start(200, "", "{}");
    server.client(None).ask_for(200, &Call::get("/a")).expect("an answer");
    assert_eq!(server.authorizations(), [""]);
}

#[test]
fn a_redirect_is_not_followed() {
    let other = Recorder::start(200, "", "{}");
    for status in [301, 307] {
        let server = Recorder::start(status, &format!("location: http://{}/\r\n", other.address), "");
        assert!(refusal(&server, Some(TOKEN)).contains(&status.to_string()));
        assert!(server.client(Some(TOKEN)).download("/a").is_err());
    }
    assert_eq!(other.authorizations(), Vec::<String>::new());
}

#[test]
fn with_a_token_only_given_nodes_are_asked() {
    let other = Recorder::start(200, "", "{}");
    let header = format!("tidelock-leader: http://{}\r\n", other.address);
    let server = Recorder::start(200, &header, "{}");
    let ask_twice = |client: &Client| {
        for _ in 0..2 {
            client.ask_for(200, &Call::get("/a")).expect("an answer");
        }
    };
    ask_twice(&server.client(Some(TOKEN)));
    assert_eq!((server.authorizations().len(), other.authorizations().len()), (2, 0));
    ask_twice(&server.client(None));
    assert_eq!(other.authorizations(), [""], "without a token the leader is asked first");
}

#[test]
fn without_tls_a_token_does_not_leave_the_machine() {
    let server = Recorder::start(200, "", "{}");
    // An address for documentation (RFC 5737): nothing listens there.
    let client = server.client(Some(TOKEN)).of(vec!["http://192.0.2.1:1".parse().expect("a URL")]);
    for error in [
        client.ask(&Call::get("/a")).expect_err("no TLS"),
        client.ask(&Call::delete("/a")).expect_err("no TLS"),
        client.download("/a").map(|_| ()).expect_err("no TLS"),
    ] {
        assert!(error.to_string().contains("not sent to 192.0.2.1 without TLS"), "{error}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let server = Recorder::start(401, "www-authenticate: Bearer\r\n", &problem("unauthenticated", 401));
    assert!(refusal(&server, None).ends_with("no token: run `tidelock login`, or give --token-file"));
    let said = refusal(&server, Some(TOKEN));
    assert!(said.contains("answered 401: T: D") && said.contains("wrong, expired or deleted"), "{said}");

    let server = Recorder::start(403, "", &problem("forbidden", 403));
    let said = refusal(&server, Some(TOKEN));
    assert!(said.contains("T: D") && said.ends_with("`tidelock auth whoami` shows what the token allows"));
    let server = Recorder::start(403, "", &problem("foreign-origin", 403));
    assert!(!refusal(&server, Some(TOKEN)).contains("whoami"));

    let server = Recorder::start(503, "", &problem("permissions-unknown", 503));
    let said = refusal(&server, Some(TOKEN));
    assert!(said.contains("nothing was done") && said.contains("ask another node"), "{said}");
}
