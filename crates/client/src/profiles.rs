//! The file of profiles, and the files beside it: `~/.config/tidelock`.
//!
//! Owns reading `config.toml`, and adding a profile to it without touching the others or the
//! comments. Invariant: files are replaced at once, and only their owner can read them.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use crate::certificate::CertificatePaths;
use crate::error::CliError;
use crate::node_url::NodeUrl;
use crate::private_file;
use crate::token::Token;

/// The profile that is used if none is named.
pub const DEFAULT_PROFILE: &str = "default";

/// Longest name of a profile, which is part of a file's name.
const NAME_BYTES_MAX: usize = 64;

/// One cluster in the file of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The nodes.
    pub urls: Vec<String>,
    /// Path of the certificates of the authorities.
    pub ca: Option<PathBuf>,
    /// Path of the certificate to present.
    client_cert: Option<PathBuf>,
    /// Path of its private key.
    client_key: Option<PathBuf>,
    /// Path of the token.
    token_file: Option<PathBuf>,
    /// A program and its arguments; it prints the token.
    token_command: Option<Vec<String>>,
}

/// Where a token is.
#[derive(Clone, Debug)]
pub(crate) enum TokenSource {
    File(PathBuf),
    Command(Vec<String>),
}

/// The file of profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    /// By name.
    #[serde(default)]
    pub profile: BTreeMap<String, Profile>,
}

/// The directory of the user's settings: `$XDG_CONFIG_HOME/tidelock`, or `~/.config/tidelock`.
pub fn settings_directory() -> Option<PathBuf> {
    user_directory("XDG_CONFIG_HOME", ".config")
}

/// The directory `tidelock` in the one that a variable of the XDG Base Directory Specification
/// names, or in its default, relative to the user's home; `None` without a home.
pub fn user_directory(variable: &str, default: &str) -> Option<PathBuf> {
    let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = given(variable).or_else(|| Some(given("HOME")?.join(default)));
    Some(base?.join("tidelock"))
}

impl Profiles {
    /// Reads the profiles in a directory of settings. Without a file there are none.
    ///
    /// # Errors
    /// When the file cannot be read or is malformed.
    pub fn read(directory: &Path) -> Result<Profiles, CliError> {
        let path = Profiles::path(directory);
        Profiles::parse(&read_text(&path)?, &path)
    }

    fn parse(text: &str, path: &Path) -> Result<Profiles, CliError> {
        // The error's own text would quote the line, which may hold a secret by mistake.
        toml::from_str(text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start.min(text.len()))];
            let line = 1 + before.matches('\n').count();
            CliError::Usage(format!("{}: line {line}: {}", path.display(), error.message()))
        })
    }

    /// The path of the file in a directory of settings.
    pub(crate) fn path(directory: &Path) -> PathBuf {
        directory.join("config.toml")
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

    /// Where its certificate is, if it has one.
    pub(crate) fn certificate(&self) -> Result<Option<CertificatePaths>, CliError> {
        CertificatePaths::of(self.client_cert.as_deref(), self.client_key.as_deref()).ok_or_else(|| {
            CliError::Usage("a profile has either both client_cert and client_key, or neither".to_owned())
        })
    }

    /// Where its token is, if it has one.
    pub(crate) fn token_source(&self) -> Result<Option<TokenSource>, CliError> {
        match (&self.token_file, &self.token_command) {
            (Some(_), Some(_)) => {
                let text = "a profile has either token_file or token_command, not both";
                Err(CliError::Usage(text.to_owned()))
            }
            (Some(path), None) => Ok(Some(TokenSource::File(path.clone()))),
            (None, Some(command)) => Ok(Some(TokenSource::Command(command.clone()))),
            (None, None) => Ok(None),
        }
    }
}

/// What authenticates the user of a profile.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A token, which is stored beside the profile.
    Token(Token),
    /// A client certificate. The profile stores the paths of its files.
    Certificate(CertificatePaths),
}

/// A profile to be stored, with its credential.
#[derive(Clone, Debug)]
pub struct Login {
    name: String,
    urls: Vec<NodeUrl>,
    ca: Option<PathBuf>,
    credential: Credential,
}

impl Login {
    /// A profile of this name for these nodes.
    ///
    /// # Errors
    /// When the name cannot be that of a file, or a path is not text.
    pub fn new(
        name: &str,
        urls: Vec<NodeUrl>,
        ca: Option<&Path>,
        credential: Credential,
    ) -> Result<Login, CliError> {
        check_name(name)?;
        let ca = ca.map(fs::canonicalize).transpose().map_err(CliError::io("--ca"))?;
        let credential = match credential {
            Credential::Certificate(paths) => Credential::Certificate(paths.absolute()?),
            token => token,
        };
        Ok(Login { name: name.to_owned(), urls, ca, credential })
    }

    /// Writes the profile to a directory of settings, and beside it the token, if there is one;
    /// other profiles, and comments, stay as they are. Returns the path of the token or of the
    /// certificate.
    ///
    /// # Errors
    /// When the files cannot be read or written, or the file of profiles is malformed; it is then
    /// as before.
    pub fn store(&self, directory: &Path) -> Result<PathBuf, CliError> {
        let failed = |path: &Path| CliError::io(path.display().to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed(directory))?;
        let directory = fs::canonicalize(directory).map_err(failed(directory))?;
        // A link to a file elsewhere stays one.
        let path = Profiles::path(&directory);
        let path = fs::canonicalize(&path).unwrap_or(path);
        let token_path = directory.join(format!("{}.token", self.name));
        let settings = self.add_to(&path, &token_path)?;
        let kept = match &self.credential {
            Credential::Token(token) => {
                private_file::replace(&token_path, format!("{}\n", token.expose()).as_bytes(), 0o600)?;
                token_path
            }
            Credential::Certificate(paths) => paths.certificate.clone(),
        };
        private_file::replace(&path, settings.as_bytes(), 0o600)?;
        Ok(kept)
    }

    /// The file of profiles with this one.
    fn add_to(&self, path: &Path, token_path: &Path) -> Result<String, CliError> {
        let text = read_text(path)?;
        Profiles::parse(&text, path)?;
        let malformed = || CliError::Usage(format!("{}: not a file of profiles", path.display()));
        let mut document: DocumentMut = text.parse().map_err(|_| malformed())?;
        let mut none = Table::new();
        none.set_implicit(true);
        let profiles = document.entry("profile").or_insert(Item::Table(none));
        let profiles = profiles.as_table_like_mut().ok_or_else(malformed)?;
        let profile = profiles.entry(&self.name).or_insert(Item::Table(Table::new()));
        let profile = profile.as_table_like_mut().ok_or_else(malformed)?;
        set(profile, "urls", self.urls.iter().map(ToString::to_string).collect());
        match &self.ca {
            Some(ca) => set(profile, "ca", text_of(ca)?.into()),
            None => drop(profile.remove("ca")),
        }
        profile.remove("token_command");
        match &self.credential {
            Credential::Token(_) => {
                profile.remove("client_cert");
                profile.remove("client_key");
                set(profile, "token_file", text_of(token_path)?.into());
            }
            Credential::Certificate(paths) => {
                profile.remove("token_file");
                set(profile, "client_cert", text_of(&paths.certificate)?.into());
                set(profile, "client_key", text_of(&paths.key)?.into());
            }
        }
        Ok(document.to_string())
    }
}

/// Checks that a name can be that of a profile and of its file.
///
/// # Errors
/// When it has other characters than letters, digits, dashes and underscores.
pub fn check_name(name: &str) -> Result<(), CliError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let text = format!("`{name}` cannot be a profile: write 1 to {NAME_BYTES_MAX} letters, digits, - and _");
    Err(CliError::Usage(text))
}

/// Sets a value; a comment behind the former one stays.
fn set(table: &mut dyn TableLike, name: &str, mut value: Value) {
    let item = table.entry(name).or_insert(Item::None);
    if let Some(former) = item.as_value() {
        *value.decor_mut() = former.decor().clone();
    }
    *item = Item::Value(value);
}

fn text_of(path: &Path) -> Result<&str, CliError> {
    path.to_str().ok_or_else(|| CliError::Usage(format!("{}: the path is no text", path.display())))
}

/// The text of a file; empty without the file.
fn read_text(path: &Path) -> Result<String, CliError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(CliError::io(path.display().to_string())(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TOKEN: &str = "tdl_0123456789abcdef_Abcdefghij-lmnopqrstuv_xyzABCDEFGHIJKLMNOPQ_89abcdef";

    fn login(name: &str, url: &str, ca: Option<&Path>) -> Result<Login, CliError> {
        let token = Credential::Token(Token::parse(TOKEN).expect("a token"));
        Login::new(name, vec![url.parse().expect("a URL")], ca, token)
    }

    #[test]
    fn other_profiles_and_comments_stay() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = fs::canonicalize(home.path()).expect("a path").join("tidelock");
        let ca = directory.with_file_name("ca.crt");
        fs::write(&ca, "").expect("a file");
        let token_path =
            login("blue", "https://a:1", Some(&ca)).expect("a login").store(&directory).expect("stored");
        assert_eq!(fs::read_to_string(&token_path).expect("a token"), format!("{TOKEN}\n"));
        let settings = Profiles::path(&directory);
        for path in [&token_path, &settings] {
            let mode = fs::metadata(path).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        }
        assert_eq!(Token::read(&token_path).expect("a token").expose(), TOKEN);
        let text = fs::read_to_string(&settings).expect("a file");
        let blue =
            format!("[profile.blue]\nurls = [\"https://a:1\"]\nca = {ca:?}\ntoken_file = {token_path:?}\n");
        assert_eq!(text, blue);

        let before = format!(
            "# My clusters\n\n[profile.red] # old\nurls = [\"https://b:1\"] # both\ntoken_command = [\"pass\"]\n\n{blue}# end\n"
        );
        fs::write(&settings, &before).expect("a file");
        login("red", "https://c:1", None).expect("a login").store(&directory).expect("stored");
        let red = directory.join("red.token");
        let after = before
            .replace("https://b:1", "https://c:1")
            .replace("token_command = [\"pass\"]", &format!("token_file = {red:?}"));
        assert_eq!(fs::read_to_string(&settings).expect("a file"), after);
    }

    #[test]
    fn a_certificate_takes_the_place_of_a_token() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = fs::canonicalize(home.path()).expect("a path");
        let paths = CertificatePaths { certificate: directory.join("a.crt"), key: directory.join("a.key") };
        for path in [&paths.certificate, &paths.key] {
            fs::write(path, "").expect("a file");
        }
        login("a", "https://a:1", None).expect("a login").store(&directory).expect("stored");
        let credential = Credential::Certificate(paths.clone());
        let urls = vec!["https://a:1".parse().expect("a URL")];
        let certified = Login::new("a", urls, None, credential).expect("a login");
        assert_eq!(certified.store(&directory).expect("stored"), paths.certificate);
        let profile = Profiles::read(&directory).expect("profiles").profile.remove("a").expect("the profile");
        assert_eq!(profile.certificate().expect("both files"), Some(paths));
        assert!(profile.token_source().expect("no error").is_none());
        login("a", "https://a:1", None).expect("a login").store(&directory).expect("stored");
        let profile = Profiles::read(&directory).expect("profiles").profile.remove("a").expect("the profile");
        assert_eq!(profile.certificate().expect("no file"), None);
    }

    #[test]
    fn a_malformed_file_stays_as_it_is() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let settings = Profiles::path(directory.path());
        fs::write(&settings, "[profile.a]\nurl = 1\n").expect("a file");
        let error = login("b", "https://a:1", None).expect("a login").store(directory.path());
        assert!(error.expect_err("malformed").to_string().contains("line 2"));
        assert_eq!(fs::read_to_string(&settings).expect("a file"), "[profile.a]\nurl = 1\n");
        assert!(!directory.path().join("b.token").exists());
    }

    #[test]
    fn names_are_those_of_files() {
        for name in ["", ".", "..", "../a", "a/b", "a b", "a.b", "ä", &"a".repeat(65)] {
            assert!(login(name, "https://a:1", None).is_err(), "{name}");
        }
        assert!(check_name("blue-1_X").is_ok());
    }
}
