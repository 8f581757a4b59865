//! Endpoints of nodes.

use std::fmt;
use std::str::FromStr;

use ureq::http;

use crate::token::Token;

/// An endpoint of a node: `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUrl {
    is_https: bool,
    authority: http::uri::Authority,
}

impl NodeUrl {
    /// `host:port`, to connect to.
    pub fn address(&self) -> String {
        format!("{}:{}", self.authority.host(), self.port())
    }

    /// The endpoint at another `host:port` of the same cluster, whose nodes are reached alike.
    ///
    /// # Errors
    /// When it is no address.
    pub fn at(&self, address: &str) -> Result<NodeUrl, String> {
        format!("{}://{address}", self.scheme()).parse()
    }

    /// Whether it is reached with TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Checks that nobody on the way to it can read a token.
    pub(crate) fn check_token_path(&self) -> Result<(), String> {
        Token::check_path(self.host(), self.is_https)
    }

    fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_https { 443 } else { 80 })
    }

    pub(crate) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }
}

impl FromStr for NodeUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeUrl, String> {
        let uri: http::Uri = text.parse().map_err(|error| format!("{error}"))?;
        match (uri.scheme_str(), uri.authority(), uri.path(), uri.query()) {
            (Some(scheme @ ("http" | "https")), Some(authority), "/", None)
                if !authority.as_str().contains('@') =>
            {
                Ok(NodeUrl { is_https: scheme == "https", authority: authority.clone() })
            }
            _ => Err("a node's URL is http://host:port or https://host:port".to_owned()),
        }
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority)
    }
}
