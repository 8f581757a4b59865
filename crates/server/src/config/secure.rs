//! Whether other machines may reach a node, and which settings exclude each other.

use super::{ConfigError, RawSettings, Settings};

/// Checks the settings that exclude each other.
pub(super) fn check(raw: &RawSettings) -> Result<(), ConfigError> {
    let is_secure = raw.secure == Some(true) || raw.join_token_file.is_some();
    let excluded = [
        ("tls_dir", raw.tls_dir.is_some()),
        ("peers", raw.peers.is_some()),
        ("insecure", raw.insecure == Some(true)),
    ];
    match excluded.into_iter().find(|(_, is_given)| is_secure && *is_given) {
        Some((other, _)) => Err(ConfigError::SecureAnd(other)),
        None if raw.peers.is_some() && raw.join.is_some() => Err(ConfigError::JoinAndPeers),
        None if raw.join_token_file.is_some() && raw.join.is_none() => Err(ConfigError::JoinTokenAlone),
        None => Ok(()),
    }
}

impl Settings {
    /// Checks that other machines reach this node with TLS only, unless the operator wants it
    /// otherwise. Separate from [`Settings::new`], because it concerns only a node that starts.
    ///
    /// # Errors
    /// [`ConfigError::Exposed`] and [`ConfigError::JoinExposed`], for the first listener beyond
    /// loopback.
    pub fn check_exposure(&self) -> Result<(), ConfigError> {
        match self.exposed().first() {
            Some((setting, address)) if self.tls_dir.is_none() && !self.insecure => {
                let (setting, address) = (*setting, (*address).to_owned());
                Err(match self.join().is_empty() {
                    true => {
                        let host = self.advertise.http.host().to_owned();
                        ConfigError::Exposed { setting, address, host }
                    }
                    false => ConfigError::JoinExposed { setting, address },
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks that a node with a client CA has TLS. Not a part of [`Settings::new`], because
    /// whether there is TLS may depend on the data directory.
    ///
    /// # Errors
    /// [`ConfigError::ClientCaWithoutTls`].
    pub fn check_client_ca(&self) -> Result<(), ConfigError> {
        match (&self.client_ca, &self.tls_dir) {
            (Some(_), None) => Err(ConfigError::ClientCaWithoutTls),
            _ => Ok(()),
        }
    }

    /// The settings and addresses that other machines can reach. They are worth a warning as long
    /// as there is no authentication.
    pub fn exposed(&self) -> Vec<(&'static str, &str)> {
        self.listen
            .by_name()
            .filter(|(_, address)| !address.is_loopback())
            .map(|(setting, address)| (setting, address.as_str()))
            .collect()
    }
}
