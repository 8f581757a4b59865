//! `tidelock login` and `logout`: the profiles of this user.
//!
//! Owns the files of a profile: the certificates and the token beside the file of profiles, so that
//! later commands need neither. How a profile is used is a matter of the client crate.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;
use tidelock_client::{
    Call, CliError, Client, Connection, DEFAULT_PROFILE, NodeUrl, Profile, Profiles, Token, output,
    settings_directory,
};

use crate::args::{ClientArgs, LoginArgs, LogoutArgs};

/// Stores how to reach a cluster, after a node has accepted the token.
pub fn login(args: LoginArgs) -> Result<(), CliError> {
    let directory = directory()?;
    let name = profile_name(args.client.connection.profile.as_deref())?;
    let mut profiles = Profiles::read(&directory)?;
    let given = &args.client.connection;
    let urls: Vec<NodeUrl> = match (given.urls.is_empty(), profiles.profile.get(&name)) {
        (false, _) => given.urls.clone(),
        (true, Some(known)) => known.nodes()?,
        (true, None) => {
            return Err(CliError::Usage("which cluster? Give --url, and --ca with https://".to_owned()));
        }
    };
    let token = match (&given.token_file, &args.token_command) {
        (Some(path), _) => Token::read(path),
        (None, Some(command)) => Token::of_command(command),
        (None, None) => ask(),
    };
    let token = token.map_err(CliError::Usage)?;
    let ca = given.ca.clone().or_else(|| profiles.profile.get(&name)?.ca.clone());
    let connection = Connection::new(urls.clone(), ca.as_deref(), Some(token.clone()))?;
    let principal = check(&args.client, connection)?;

    fs::create_dir_all(&directory).map_err(CliError::io(directory.display().to_string()))?;
    let ca = ca.map(|path| keep_certificates(&directory, &name, &path)).transpose()?;
    let mut profile =
        Profile { urls: urls.iter().map(ToString::to_string).collect(), ca, ..Profile::default() };
    match args.token_command {
        Some(command) => profile.token_command = Some(command),
        None => profile.token_file = Some(keep_token(&directory, &name, &token)?),
    }
    profiles.profile.insert(name.clone(), profile);
    profiles.write(&directory)?;
    let also =
        if name == DEFAULT_PROFILE { String::new() } else { format!("; use it with --profile {name}") };
    output::line(&format!("logged in as {principal}{also}"))
}

/// Removes a profile, with the files that `login` made.
pub fn logout(args: &LogoutArgs) -> Result<(), CliError> {
    let directory = directory()?;
    let name = profile_name(args.profile.as_deref())?;
    let mut profiles = Profiles::read(&directory)?;
    if profiles.profile.remove(&name).is_none() {
        return Err(CliError::Usage(format!("there is no profile `{name}`")));
    }
    profiles.write(&directory)?;
    for path in [token_path(&directory, &name), certificates_path(&directory, &name)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(CliError::io(path.display().to_string())(error));
            }
            _ => {}
        }
    }
    output::line("logged out; the token is still valid: `tidelock auth token revoke` ends it")
}

fn directory() -> Result<PathBuf, CliError> {
    settings_directory().ok_or_else(|| CliError::Usage("set HOME or XDG_CONFIG_HOME".to_owned()))
}

/// A name that can be part of a file's name.
fn profile_name(given: Option<&str>) -> Result<String, CliError> {
    let name = given.unwrap_or(DEFAULT_PROFILE);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_plain) {
        return Err(CliError::Usage("a profile's name has 1 to 64 letters, digits, `-` and `_`".to_owned()));
    }
    Ok(name.to_owned())
}

/// Asks a node whose token it is.
fn check(args: &ClientArgs, connection: Connection) -> Result<String, CliError> {
    let client = Client::new(connection, Duration::from_millis(args.timeout_ms));
    let answer = client.ask_for(200, &Call::get("/v1/auth/whoami"))?;
    let said: Value = answer.json()?;
    match said["principal"].as_str() {
        Some(principal) => Ok(principal.to_owned()),
        None => Err(CliError::Refused(
            "the cluster does not require authentication, so it knows no token".to_owned(),
        )),
    }
}

/// Reads a token from standard input, without showing it if that is a terminal.
fn ask() -> Result<Token, String> {
    let stdin = io::stdin();
    let mut text = String::new();
    let is_terminal = stdin.is_terminal();
    let hidden = if is_terminal {
        eprint!("token: ");
        let before = tcgetattr(&stdin).map_err(|error| error.to_string())?;
        let mut without_echo = before.clone();
        without_echo.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &without_echo).map_err(|error| error.to_string())?;
        Some(before)
    } else {
        None
    };
    let read = stdin.lock().read_line(&mut text);
    if let Some(before) = hidden {
        tcsetattr(&stdin, OptionalActions::Now, &before).map_err(|error| error.to_string())?;
        eprintln!();
    }
    read.map_err(|error| error.to_string())?;
    Token::parse(&text)
}

fn token_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.token"))
}

fn certificates_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}-ca.crt"))
}

/// Writes the token so that only this user can read it.
fn keep_token(directory: &Path, name: &str, token: &Token) -> Result<PathBuf, CliError> {
    let path = token_path(directory, name);
    let mut partial = path.clone().into_os_string();
    partial.push(".new");
    let write = || -> io::Result<()> {
        let _ = fs::remove_file(&partial);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        writeln!(file, "{}", token.secret())?;
        file.sync_all()?;
        fs::rename(&partial, &path)
    };
    write().map_err(CliError::io(path.display().to_string()))?;
    Ok(path)
}

fn keep_certificates(directory: &Path, name: &str, given: &Path) -> Result<PathBuf, CliError> {
    let path = certificates_path(directory, name);
    if given != path {
        fs::copy(given, &path).map_err(CliError::io(given.display().to_string()))?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_the_user_can_read_a_token() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for secret in ["first", "second"] {
            let token = Token::parse(secret).expect("a token");
            let path = keep_token(directory.path(), "a", &token).expect("it is written");
            assert_eq!(Token::read(&path), Ok(token));
            assert_eq!(fs::metadata(&path).expect("it exists").permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn names_of_profiles_are_parts_of_file_names() {
        assert_eq!(profile_name(None).expect("a name"), DEFAULT_PROFILE);
        assert!(profile_name(Some("prod-1_a")).is_ok());
        for name in ["", "a/b", "..", "a b", &"a".repeat(65)] {
            assert!(profile_name(Some(name)).is_err(), "{name}");
        }
    }
}
