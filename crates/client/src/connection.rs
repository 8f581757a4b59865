//! How commands reach a cluster: the nodes, whose certificates to trust, and who asks.
//!
//! Owns the flags and environment variables for that, the file of profiles, and which of them
//! applies: a flag or variable before a profile, a profile before the default. Nothing of a profile
//! is used for nodes that are not in it, so that its token is not sent elsewhere by mistake.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::client::{CertificateAuthorities, NodeUrl};
use crate::error::CliError;
use crate::token::Token;

/// The profile that is used if none is named.
pub const DEFAULT_PROFILE: &str = "default";

const DEFAULT_URL: &str = "http://127.0.0.1:8001";

/// How to reach a cluster: flags and variables.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectionArgs {
    /// A node's HTTP endpoint [default: of the profile, or http://127.0.0.1:8001]. If several are
    /// given (repeated, or separated by commas), the next one is used when one is unreachable or
    /// has no leader. A write whose answer was lost is never repeated, because it may have happened
    #[arg(long = "url", env = "TIDELOCK_URL", value_name = "URL", value_delimiter = ',', global = true)]
    pub urls: Vec<NodeUrl>,
    /// File with the certificates, PEM, of the authorities that may have signed those of the nodes;
    /// https:// needs it, here or in the profile
    #[arg(long = "ca", env = "TIDELOCK_CA", value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// File with the token to send
    #[arg(long, env = "TIDELOCK_TOKEN_FILE", value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// The profile to use, of ~/.config/tidelock/config.toml, which `tidelock login` writes
    /// [default: `default`, if there is one]
    #[arg(long, env = "TIDELOCK_PROFILE", value_name = "NAME", global = true)]
    pub profile: Option<String>,
}

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The nodes to ask, in this order; at least one.
    pub urls: Vec<NodeUrl>,
    /// The authorities whose certificates are accepted; none if `None`.
    pub authorities: Option<CertificateAuthorities>,
    /// The token that every request carries.
    pub token: Option<Token>,
}

/// One cluster in the file of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The nodes.
    pub urls: Vec<String>,
    /// Path of the certificates of the authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Path of the file with the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A command that prints the token, such as that of a password manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_command: Option<String>,
}

/// The file of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    /// By name.
    #[serde(default)]
    pub profile: BTreeMap<String, Profile>,
}

/// The directory of the user's settings: `$XDG_CONFIG_HOME/tidelock`, or `~/.config/tidelock`.
pub fn settings_directory() -> Option<PathBuf> {
    let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given("XDG_CONFIG_HOME").or_else(|| Some(given("HOME")?.join(".config")));
    Some(base?.join("tidelock"))
}

impl Profiles {
    /// Reads the profiles in a directory of settings. Without a file there are none.
    ///
    /// # Errors
    /// When the file cannot be read or is malformed.
    pub fn read(directory: &Path) -> Result<Profiles, CliError> {
        let path = Profiles::path(directory);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Profiles::default()),
            Err(error) => return Err(CliError::io(path.display().to_string())(error)),
        };
        toml::from_str(&text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
    }

    /// Replaces the file in a directory of settings.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), CliError> {
        let path = Profiles::path(directory);
        let text = toml::to_string(self).expect("invariant: profiles are TOML");
        let partial = path.with_extension("toml.new");
        let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path));
        written.map_err(CliError::io(path.display().to_string()))
    }

    /// The path of the file in a directory of settings.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join("config.toml")
    }
}

impl ConnectionArgs {
    /// What the flags, the environment and the profiles of this user result in.
    ///
    /// # Errors
    /// When a file cannot be read, there is no such profile, or a token would be sent without TLS
    /// to another machine.
    pub fn resolve(&self) -> Result<Connection, CliError> {
        self.resolve_in(settings_directory().as_deref())
    }

    fn resolve_in(&self, directory: Option<&Path>) -> Result<Connection, CliError> {
        let profile = self.find_profile(directory)?;
        let urls = if !self.urls.is_empty() {
            self.urls.clone()
        } else if let Some(profile) = profile.as_ref().filter(|profile| !profile.urls.is_empty()) {
            profile.nodes()?
        } else {
            vec![DEFAULT_URL.parse().expect("invariant: the default is a URL")]
        };
        let profile = profile.unwrap_or_default();
        let ca = self.ca.as_deref().or(profile.ca.as_deref());
        let token = match (&self.token_file, &profile.token_file, &profile.token_command) {
            (Some(path), ..) | (None, Some(path), _) => Some(Token::read(path)),
            (None, None, Some(command)) => Some(Token::of_command(command)),
            (None, None, None) => None,
        };
        let token = token.transpose().map_err(CliError::Usage)?;
        Connection::new(urls, ca, token)
    }

    /// The profile that applies. One that is not named applies only if all given nodes are in it.
    fn find_profile(&self, directory: Option<&Path>) -> Result<Option<Profile>, CliError> {
        let mut profiles = directory.map(Profiles::read).transpose()?.unwrap_or_default();
        let Some(name) = &self.profile else {
            let profile = profiles.profile.remove(DEFAULT_PROFILE);
            let Some(profile) = profile else { return Ok(None) };
            let nodes = profile.nodes()?;
            let is_of_profile = self.urls.iter().all(|url| nodes.contains(url));
            return Ok(is_of_profile.then_some(profile));
        };
        let profile = profiles.profile.remove(name).ok_or_else(|| {
            let known: Vec<String> = profiles.profile.into_keys().collect();
            CliError::Usage(format!("there is no profile `{name}`; there are: {}", known.join(", ")))
        })?;
        let nodes = profile.nodes()?;
        if let Some(other) = self.urls.iter().find(|url| !nodes.contains(url)) {
            let text = format!("{other} is not a node of the profile `{name}`, so it is not asked with it");
            return Err(CliError::Usage(text));
        }
        Ok(Some(profile))
    }
}

impl Connection {
    /// Asks these nodes, trusting the certificates in a file, and sends a token.
    ///
    /// # Errors
    /// When the file cannot be used, or the token would be sent without TLS to another machine.
    pub fn new(urls: Vec<NodeUrl>, ca: Option<&Path>, token: Option<Token>) -> Result<Connection, CliError> {
        let authorities = ca.map(CertificateAuthorities::read).transpose().map_err(CliError::Usage)?;
        let connection = Connection { urls, authorities, token };
        connection.urls.iter().try_for_each(|url| connection.check(url))?;
        Ok(connection)
    }

    /// Checks that a token may be sent to a node: over TLS, or to this machine.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self, url: &NodeUrl) -> Result<(), CliError> {
        if self.token.is_none() || url.is_https() || url.is_loopback() {
            return Ok(());
        }
        let text =
            format!("the token is not sent to {url}, because anyone on the way could read it; use https://");
        Err(CliError::Usage(text))
    }
}

impl Profile {
    /// The nodes.
    ///
    /// # Errors
    /// When the file has something else than URLs.
    pub fn nodes(&self) -> Result<Vec<NodeUrl>, CliError> {
        let parse = |url: &String| url.parse().map_err(|error| CliError::Usage(format!("`{url}`: {error}")));
        self.urls.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The settings of a user with two profiles, and a directory that is removed at the end.
    fn settings() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("token"), "secret-1\n").expect("a file");
        let token = directory.path().join("token");
        let text = format!(
            "[profile.default]\nurls = [\"https://a:1\", \"https://b:1\"]\ntoken_file = {token:?}\n\
             [profile.local]\nurls = []\ntoken_command = \"echo secret-2\"\n",
        );
        fs::write(Profiles::path(directory.path()), text).expect("a file");
        directory
    }

    fn resolve(urls: &[&str], profile: Option<&str>) -> Result<(Vec<String>, Option<String>), String> {
        let settings = settings();
        let urls = urls.iter().map(|url| url.parse().expect("a URL")).collect();
        let args = ConnectionArgs { urls, profile: profile.map(str::to_owned), ..ConnectionArgs::default() };
        let connection = args.resolve_in(Some(settings.path())).map_err(|error| error.to_string())?;
        let urls = connection.urls.iter().map(ToString::to_string).collect();
        Ok((urls, connection.token.map(|token| token.secret().to_owned())))
    }

    #[test]
    fn a_profile_applies_to_its_own_nodes_only() {
        let both = vec!["https://a:1".to_owned(), "https://b:1".to_owned()];
        assert_eq!(resolve(&[], None), Ok((both, Some("secret-1".to_owned()))));
        let one = |url: &str, token: Option<&str>| Ok((vec![url.to_owned()], token.map(str::to_owned)));
        assert_eq!(resolve(&["https://b:1"], None), one("https://b:1", Some("secret-1")));
        assert_eq!(resolve(&["https://c:1"], None), one("https://c:1", None));
        assert_eq!(resolve(&[], Some("local")), one(DEFAULT_URL, Some("secret-2")));
        let refused = resolve(&["https://c:1"], Some("default")).expect_err("another node");
        assert!(refused.contains("not a node of the profile `default`"), "{refused}");
        let refused = resolve(&[], Some("other")).expect_err("no profile");
        assert!(refused.contains("there are: default, local"), "{refused}");
    }

    #[test]
    fn a_token_is_not_sent_in_the_open() {
        let settings = settings();
        let resolve = |url: &str| {
            let token_file = Some(settings.path().join("token"));
            let urls = vec![url.parse().expect("a URL")];
            ConnectionArgs { urls, token_file, ..ConnectionArgs::default() }.resolve_in(None)
        };
        for url in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://a:1"] {
            assert!(resolve(url).expect(url).token.is_some());
        }
        for url in ["http://a:1", "http://10.0.0.1:1", "http://127.0.0.1.example:1"] {
            assert!(resolve(url).expect_err(url).to_string().contains("use https://"), "{url}");
        }
    }

    #[test]
    fn without_settings_there_is_the_default() {
        let connection = ConnectionArgs::default().resolve_in(None).expect("a connection");
        assert_eq!(connection.urls[0].to_string(), DEFAULT_URL);
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert!(ConnectionArgs::default().resolve_in(Some(directory.path())).is_ok());
        fs::write(Profiles::path(directory.path()), "[profile.a]\nurl = 1\n").expect("a file");
        let error = ConnectionArgs::default().resolve_in(Some(directory.path())).expect_err("malformed");
        assert!(error.to_string().contains("config.toml"), "{error}");
    }
}
