//! Answers for HTTP clients at a port of another protocol.
//!
//! Owns how their requests are recognised, and the answer. A node has three ports with similar
//! numbers. Every HTTP client, including `tidelock --url`, shows the text of an answer; without one
//! it would report a broken connection.

/// Methods with which an HTTP request may begin. No valid Redis command is such a word followed by
/// a path and a version.
const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];

/// A port that does not serve HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongPort {
    /// The port of the Redis protocol.
    Resp,
    /// The port for peers.
    Peer,
}

impl WrongPort {
    /// The whole answer, after which the connection is closed.
    pub fn answer(self) -> Vec<u8> {
        let (what, flag) = match self {
            WrongPort::Resp => ("for Redis clients", "--resp"),
            WrongPort::Peer => ("for the other nodes of the cluster", "--peer"),
        };
        let text = format!(
            "this port of the Tidelock node is {what} ({flag}); HTTP clients, and --url of the tidelock commands, take the \
             address of --http, port 8001 by default\n"
        );
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close";
        format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len()).into_bytes()
    }
}

/// Whether bytes begin with an HTTP/1 request.
pub fn begins_http_request(bytes: &[u8]) -> bool {
    METHODS.iter().any(|method| {
        bytes
            .strip_prefix(method.as_bytes())
            .is_some_and(|rest| rest.starts_with(b" /") || rest.starts_with(b" *"))
    })
}

/// Whether the words of a line are an HTTP/1 request line.
pub fn is_http_request_line(method: &[u8], target: &[u8], version: &[u8]) -> bool {
    let is_method = METHODS.iter().any(|known| known.as_bytes() == method);
    is_method && (target.starts_with(b"/") || target == b"*") && version.starts_with(b"HTTP/1.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_other_bytes() {
        for request in ["GET / HTTP/1.1\r\n", "OPTIONS * HTTP/1.1", "DELETE /v1/keys/k"] {
            assert!(begins_http_request(request.as_bytes()), "{request}");
        }
        for other in ["", "GET", "GET k", "get /", "TIDEPEER", "*2\r\n"] {
            assert!(!begins_http_request(other.as_bytes()), "{other}");
        }
        assert!(is_http_request_line(b"GET", b"/v1/cluster", b"HTTP/1.1"));
        for words in [["GET", "k", "HTTP/1.1"], ["SET", "/k", "HTTP/1.1"], ["GET", "/k", "v"]] {
            let [method, target, version] = words.map(str::as_bytes);
            assert!(!is_http_request_line(method, target, version), "{words:?}");
        }
    }

    #[test]
    fn an_answer_is_whole_and_names_the_port() {
        for (port, clue) in [(WrongPort::Resp, "for Redis clients (--resp)"), (WrongPort::Peer, "(--peer)")] {
            let answer = String::from_utf8(port.answer()).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(body.contains(clue) && body.contains("--http"), "{answer}");
            assert!(head.ends_with(&format!("content-length: {}", body.len())), "{answer}");
        }
    }
}
