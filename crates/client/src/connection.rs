//! How commands reach a cluster: the nodes, whose certificates to trust, and the token to send or
//! the certificate to present.
//!
//! Owns the flags and environment variables for that, and what applies: a flag or variable before a
//! profile, a profile before the default. Nothing of a profile is used for nodes that are not in
//! it.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::authorities::CertificateAuthorities;
use crate::certificate::{CertificateArgs, CertificatePaths, ClientCertificate};
use crate::error::CliError;
use crate::node_url::NodeUrl;
use crate::profiles::{DEFAULT_PROFILE, Profile, Profiles, TokenSource, settings_directory};
use crate::token::Token;

/// The node that is asked if none is named.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8001";

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
    /// File with the token to send, which only you may read (mode 600). No flag takes the token
    /// itself, because a list of processes would show it [default: of the profile]
    #[arg(long, env = "TIDELOCK_TOKEN_FILE", value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// The certificate to present.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// The profile to use, of ~/.config/tidelock/config.toml [default: `default`, if there is one]
    #[arg(long, env = "TIDELOCK_PROFILE", value_name = "NAME", global = true)]
    pub profile: Option<String>,
}

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The nodes to ask, in this order; at least one.
    pub urls: Vec<NodeUrl>,
    /// The authorities whose certificates are accepted; none if `None`.
    pub authorities: Option<CertificateAuthorities>,
    /// The token that every request carries, if there is one.
    pub token: Option<Token>,
    /// The certificate that connections with TLS present, if there is one.
    pub certificate: Option<ClientCertificate>,
}

impl ConnectionArgs {
    /// What the flags, the environment and the profiles of this user result in.
    ///
    /// # Errors
    /// When a file cannot be read, or there is no such profile.
    pub fn resolve(&self) -> Result<ClientOptions, CliError> {
        self.resolve_in(settings_directory().as_deref())
    }

    fn resolve_in(&self, directory: Option<&Path>) -> Result<ClientOptions, CliError> {
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
        let given = self.certificate.paths()?;
        let source = match &self.token_file {
            Some(path) => Some(TokenSource::File(path.clone())),
            // A token would count instead of the certificate that was given.
            None if given.is_some() => None,
            None => profile.token_source()?,
        };
        let paths = match given {
            Some(paths) => Some(paths),
            None => profile.certificate()?,
        };
        let options = ClientOptions::new(urls, ca)?.with_certificate(paths.as_ref())?;
        match source {
            Some(TokenSource::File(path)) => options.with_token(|| Token::read(&path)),
            Some(TokenSource::Command(command)) => options.with_token(|| Token::from_command(&command)),
            None => Ok(options),
        }
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

impl ClientOptions {
    /// Asks these nodes, trusting the certificates in a file.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn new(urls: Vec<NodeUrl>, ca: Option<&Path>) -> Result<ClientOptions, CliError> {
        let authorities = ca.map(CertificateAuthorities::read).transpose().map_err(CliError::Usage)?;
        Ok(ClientOptions { urls, authorities, token: None, certificate: None })
    }

    /// Also presents the certificate of these files.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn with_certificate(mut self, paths: Option<&CertificatePaths>) -> Result<ClientOptions, CliError> {
        self.certificate = paths.map(ClientCertificate::read).transpose()?;
        Ok(self)
    }

    /// Also sends a token, which is obtained only if it may be sent to all nodes.
    ///
    /// # Errors
    /// When a connection to a node is not encrypted and leaves this machine, or that of `obtain`.
    pub fn with_token(
        mut self,
        obtain: impl FnOnce() -> Result<Token, CliError>,
    ) -> Result<ClientOptions, CliError> {
        for url in &self.urls {
            url.check_token_path().map_err(|error| CliError::Usage(format!("{error}: use https://")))?;
        }
        self.token = Some(obtain()?);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn resolve(urls: &[&str], profile: Option<&str>) -> Result<Vec<String>, String> {
        let settings = tempfile::tempdir().expect("a temporary directory");
        let text =
            "[profile.default]\nurls = [\"https://a:1\", \"https://b:1\"]\n[profile.local]\nurls = []\n";
        fs::write(Profiles::path(settings.path()), text).expect("a file");
        let urls = urls.iter().map(|url| url.parse().expect("a URL")).collect();
        let args = ConnectionArgs { urls, profile: profile.map(str::to_owned), ..ConnectionArgs::default() };
        let connection = args.resolve_in(Some(settings.path())).map_err(|error| error.to_string())?;
        Ok(connection.urls.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_profile_applies_to_its_own_nodes_only() {
        assert_eq!(resolve(&[], None), Ok(vec!["https://a:1".to_owned(), "https://b:1".to_owned()]));
        let one = |url: &str| Ok(vec![url.to_owned()]);
        assert_eq!(resolve(&["https://b:1"], None), one("https://b:1"));
        assert_eq!(resolve(&["https://c:1"], None), one("https://c:1"));
        assert_eq!(resolve(&[], Some("local")), one(DEFAULT_URL));
        let refused = resolve(&["https://c:1"], Some("default")).expect_err("another node");
        assert!(refused.contains("not a node of the profile `default`"), "{refused}");
        let refused = resolve(&[], Some("other")).expect_err("no profile");
        assert!(refused.contains("there are: default, local"), "{refused}");
    }

    const TOKEN: &str = "tdl_0123456789abcdef_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";

    /// The number of the token that is sent, with these settings of the profile `default`.
    fn token(settings: &str, urls: &[&str], file: Option<&Path>) -> Result<Option<String>, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let text = format!("[profile.default]\nurls = [\"https://a:1\", \"http://b:1\"]\n{settings}\n");
        fs::write(Profiles::path(directory.path()), text).expect("a file");
        let urls = urls.iter().map(|url| url.parse().expect("a URL")).collect();
        let token_file = file.map(Path::to_owned);
        let args = ConnectionArgs { urls, token_file, ..ConnectionArgs::default() };
        let options = args.resolve_in(Some(directory.path())).map_err(|error| error.to_string())?;
        Ok(options.token.map(|token| token.id().to_owned()))
    }

    #[test]
    fn a_token_comes_from_the_file_then_from_the_profile() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("token");
        fs::write(&path, TOKEN).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
        let id = |number: &str| Ok(Some(number.to_owned()));
        let other = TOKEN.replace("0123", "4567");
        let command = format!("token_command = [\"echo\", \"{other}\"]");
        let file = format!("token_file = {path:?}");
        let node = ["https://a:1"];
        assert_eq!(token("", &node, None), Ok(None));
        assert_eq!(token("", &node, Some(&path)), id("0123456789abcdef"));
        assert_eq!(token(&command, &node, None), id("4567456789abcdef"));
        assert_eq!(token(&command, &node, Some(&path)), id("0123456789abcdef"));
        assert_eq!(token(&file, &node, None), id("0123456789abcdef"));
        let both = token(&format!("{file}\n{command}"), &node, None).expect_err("two sources");
        assert!(both.contains("not both"), "{both}");
        assert_eq!(token(&file, &["https://c:1"], None), Ok(None), "not a node of the profile");
        let misplaced = token(&format!("token = \"{TOKEN}\""), &node, None).expect_err("no such setting");
        assert!(misplaced.contains("line 3: unknown field `token`"), "{misplaced}");
        assert!(!misplaced.contains(TOKEN), "{misplaced}");
    }

    #[test]
    fn a_token_is_not_read_for_a_node_that_must_not_get_it() {
        let failing = "token_command = [\"false\"]";
        let said = token(failing, &["http://b:1"], None).expect_err("no TLS");
        assert!(said.contains("not sent to b without TLS") && said.contains("use https://"), "{said}");
        let said = token(failing, &["https://a:1"], None).expect_err("the command fails");
        assert!(said.contains("token_command `false`"), "{said}");
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
