//! Addresses of nodes: their form, and what it says about who can reach them.
//!
//! Owns the check that a text is an address. It does not resolve hosts: the result may differ
//! between machines and change over time.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use tidelock_core::address_book::is_dialable;

use super::ConfigError;

/// Longest host in an address, in bytes, as in DNS.
pub const HOST_BYTES_MAX: usize = 253;

/// An address, `HOST:PORT`, as it was written. The host may be a name or, in brackets, an
/// IPv6 address; with port 0 the system chooses one. Two addresses are equal if their texts are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    text: String,
}

impl Address {
    /// Checks the form of an address; `setting` names it in the error.
    ///
    /// # Errors
    /// [`ConfigError::Address`].
    pub fn parse(setting: &'static str, text: &str) -> Result<Address, ConfigError> {
        let text = text.trim();
        let invalid = || ConfigError::Address { setting, text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        let host_is_valid = if is_bracketed {
            matches!(host[1..host.len() - 1].parse(), Ok(IpAddr::V6(_)))
        } else {
            !host.is_empty()
                && host.len() <= HOST_BYTES_MAX
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        // `u16::from_str` alone would accept "+8001".
        let port_is_valid = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
        if host_is_valid && port_is_valid { Ok(Address { text: text.to_owned() }) } else { Err(invalid()) }
    }

    /// Checks an address to advertise, which may lack the port: then that of the listener, `port`,
    /// is added. An IPv6 address without a port may also lack its brackets.
    ///
    /// # Errors
    /// [`ConfigError::Advertise`], also for a host that leads nowhere (`0.0.0.0`, `[::]`).
    pub fn parse_advertised(setting: &'static str, text: &str, port: u16) -> Result<Address, ConfigError> {
        let text = text.trim();
        let whole = match text.parse::<Ipv6Addr>() {
            Ok(ip) => format!("[{ip}]:{port}"),
            Err(_) if text.contains(':') && !text.ends_with(']') => text.to_owned(),
            Err(_) => format!("{text}:{port}"),
        };
        let address = Address::parse(setting, &whole).ok().filter(|address| !address.is_unspecified());
        address.ok_or_else(|| ConfigError::Advertise { setting, text: text.to_owned() })
    }

    /// As it was written, without surrounding spaces.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn parts(&self) -> (&str, &str) {
        self.text.rsplit_once(':').expect("invariant: an address was parsed as HOST:PORT")
    }

    /// The host without its port.
    pub fn host(&self) -> &str {
        self.parts().0
    }

    /// Whether the system chooses the port.
    pub fn has_any_port(&self) -> bool {
        self.parts().1.bytes().all(|byte| byte == b'0')
    }

    /// Replaces port 0 by the port that the system chose.
    pub fn set_chosen_port(&mut self, port: u16) {
        if self.has_any_port() {
            *self = self.with_port(port);
        }
    }

    /// Whether other machines can connect to it as written: it has a port, and its host is neither
    /// `0.0.0.0` nor `[::]`.
    pub fn is_reachable(&self) -> bool {
        is_dialable(&self.text)
    }

    /// Whether its host means every address of the machine: `0.0.0.0` or `[::]`.
    pub fn is_unspecified(&self) -> bool {
        let ip = self.parts().0.trim_matches(['[', ']']).parse::<IpAddr>();
        ip.is_ok_and(|ip| ip.is_unspecified())
    }

    /// The port; 0 if the system chooses it.
    pub(super) fn port(&self) -> u16 {
        self.parts().1.parse().expect("invariant: an address was parsed as HOST:PORT")
    }

    /// The same host with another port.
    pub(super) fn with_port(&self, port: u16) -> Address {
        Address { text: format!("{}:{port}", self.parts().0) }
    }

    /// The same port at another host.
    pub(super) fn with_host(&self, host: &str) -> Address {
        Address { text: format!("{host}:{}", self.parts().1) }
    }

    /// Whether only this machine can reach it. Names other than `localhost` count as reachable from
    /// other machines, because what they resolve to may change.
    pub fn is_loopback(&self) -> bool {
        let host = self.parts().0;
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => ip.to_canonical().is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
