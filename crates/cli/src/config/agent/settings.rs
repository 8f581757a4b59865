//! What the agent is told to do: the files that it keeps up to date, and their commands.
//!
//! Owns the two forms in which that is written, arguments and a file in TOML, and their checks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tidelock_api::config::LABEL_CHARACTERS_MAX;
use tidelock_client::CliError;

use crate::args::{AgentArgs, Format};

/// Permissions of a file unless others are stated: only its owner may read it.
const DEFAULT_MODE: u32 = 0o600;

/// How long no file of a command may have changed before the command runs, unless another time is
/// stated.
const DEFAULT_SETTLE: Duration = Duration::from_millis(300);

/// Most files of one agent. Each holds a connection to a node.
const FILES_MAX: usize = 100;

/// What the agent does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// The files.
    pub files: Vec<FileSettings>,
    /// What the list of readers names this agent.
    pub label: Option<String>,
    /// Where states are kept; next to each file unless stated.
    pub state_dir: Option<PathBuf>,
    /// How long no file of a command may have changed before the command runs.
    pub settle: Duration,
}

/// A file that is kept up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The namespace.
    pub namespace: String,
    /// The container whose document the file holds.
    pub container: String,
    /// Where the file is.
    pub path: PathBuf,
    /// The format of the file.
    pub format: Format,
    /// Its permissions.
    pub mode: u32,
    /// Runs after the file has changed.
    pub exec: Option<String>,
    /// Whether the file is deleted with the container.
    pub delete: bool,
    /// Whether the file holds secrets instead of the mask.
    pub reveal: bool,
}

/// The configuration file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSettings {
    label: Option<String>,
    state_dir: Option<PathBuf>,
    settle_ms: Option<u64>,
    exec: Option<String>,
    #[serde(default)]
    file: Vec<RawFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    namespace: String,
    container: String,
    path: PathBuf,
    format: Option<String>,
    mode: Option<String>,
    exec: Option<String>,
    #[serde(default)]
    delete: bool,
    #[serde(default)]
    reveal: bool,
}

impl AgentSettings {
    /// The settings that the arguments state, or the file that they name.
    pub fn read(args: &AgentArgs) -> Result<AgentSettings, CliError> {
        let settings = match &args.config {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(CliError::io(path.display().to_string()))?;
                let settings = AgentSettings::parse(&text);
                settings.map_err(|reason| CliError::Usage(format!("{}: {reason}", path.display())))?
            }
            None => AgentSettings::of_arguments(args).map_err(CliError::Usage)?,
        };
        let settings = AgentSettings {
            label: args.label.clone().or(settings.label),
            state_dir: args.state_dir.clone().or(settings.state_dir),
            settle: args.settle_ms.map_or(settings.settle, Duration::from_millis),
            ..settings
        };
        settings.check().map_err(CliError::Usage)?;
        Ok(settings)
    }

    fn parse(text: &str) -> Result<AgentSettings, String> {
        let raw: RawSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        let file = |file: RawFile| {
            let format = match &file.format {
                Some(name) => format_named(name).ok_or_else(|| format!("there is no format {name:?}"))?,
                None => format_of(&file.path),
            };
            let mode = file.mode.as_deref().map_or(Ok(DEFAULT_MODE), parse_mode)?;
            let exec = file.exec.or_else(|| raw.exec.clone());
            let RawFile { namespace, container, path, delete, reveal, .. } = file;
            Ok(FileSettings { namespace, container, path, format, mode, exec, delete, reveal })
        };
        Ok(AgentSettings {
            files: raw.file.into_iter().map(file).collect::<Result<_, String>>()?,
            label: raw.label,
            state_dir: raw.state_dir,
            settle: raw.settle_ms.map_or(DEFAULT_SETTLE, Duration::from_millis),
        })
    }

    fn of_arguments(args: &AgentArgs) -> Result<AgentSettings, String> {
        let mode = args.mode.as_deref().map_or(Ok(DEFAULT_MODE), parse_mode)?;
        let file = |text: &String| {
            let (namespace, container, path, format) = parse_file(text)?;
            let (exec, delete, reveal) = (args.exec.clone(), args.delete, args.reveal);
            Ok(FileSettings { namespace, container, path, format, mode, exec, delete, reveal })
        };
        let files = args.files.iter().map(file).collect::<Result<_, String>>()?;
        Ok(AgentSettings { files, label: None, state_dir: None, settle: DEFAULT_SETTLE })
    }

    fn check(&self) -> Result<(), String> {
        if self.files.is_empty() {
            return Err("there is no file to keep up to date: give --file, or --config with files".into());
        }
        if self.files.len() > FILES_MAX {
            return Err(format!("an agent keeps at most {FILES_MAX} files up to date"));
        }
        let mut paths = BTreeSet::new();
        for file in &self.files {
            let path = file.path.display();
            if file.path.file_name().is_none() {
                return Err(format!("{path} does not name a file"));
            }
            if !paths.insert(&file.path) {
                return Err(format!("{path} is stated twice"));
            }
            if file.namespace.is_empty() || file.container.is_empty() {
                return Err(format!("{path} needs a namespace and a container"));
            }
            if file.exec.as_ref().is_some_and(|command| command.trim().is_empty()) {
                return Err(format!("the command of {path} is empty"));
            }
        }
        if self.label.as_ref().is_some_and(|label| label.chars().count() > LABEL_CHARACTERS_MAX) {
            return Err(format!("a label has at most {LABEL_CHARACTERS_MAX} characters"));
        }
        Ok(())
    }
}

/// Parses `NAMESPACE/CONTAINER=PATH[:FORMAT]`. The last slash before the equals sign separates.
/// A container whose name contains one needs a settings file.
fn parse_file(text: &str) -> Result<(String, String, PathBuf, Format), String> {
    let malformed = || format!("{text:?} is not NAMESPACE/CONTAINER=PATH[:FORMAT]");
    let (source, target) = text.split_once('=').ok_or_else(malformed)?;
    // Names of namespaces often contain slashes, names of containers hardly ever.
    let (namespace, container) = source.rsplit_once('/').ok_or_else(malformed)?;
    let named = target.rsplit_once(':').and_then(|(path, name)| Some((path, format_named(name)?)));
    let (path, format) = named.unwrap_or_else(|| (target, format_of(Path::new(target))));
    if namespace.is_empty() || container.is_empty() || path.is_empty() {
        return Err(malformed());
    }
    Ok((namespace.to_owned(), container.to_owned(), path.into(), format))
}

fn format_named(name: &str) -> Option<Format> {
    Some(match name {
        "json" => Format::Json,
        "yaml" => Format::Yaml,
        "toml" => Format::Toml,
        "properties" => Format::Properties,
        "env" => Format::Env,
        _ => return None,
    })
}

/// The format that the name of a file states; JSON if it states none.
pub fn format_of(path: &Path) -> Format {
    format_by_name(path).unwrap_or(Format::Json)
}

/// The format of a file by its extension; `None` if the extension is unknown.
pub fn format_by_name(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "yml" => Some(Format::Yaml),
        extension => format_named(extension),
    }
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("mode {text:?} is not octal, such as 0640"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_arguments() {
        let parsed = |text| {
            let (namespace, container, path, format) = parse_file(text).unwrap();
            (namespace, container, path.display().to_string(), format)
        };
        let expected = |path: &str, format| ("shop".into(), "app".into(), path.into(), format);
        assert_eq!(parsed("shop/app=/etc/app.conf"), expected("/etc/app.conf", Format::Json));
        let deep = ("{shop}/prod".to_owned(), "app".to_owned(), "app.env".to_owned(), Format::Env);
        assert_eq!(parsed("{shop}/prod/app=app.env"), deep);
        assert_eq!(parsed("shop/app=/etc/app.yml"), expected("/etc/app.yml", Format::Yaml));
        assert_eq!(parsed("shop/app=/etc/app:env"), expected("/etc/app", Format::Env));
        assert_eq!(parsed("shop/app=a:b.toml"), expected("a:b.toml", Format::Toml));
        for malformed in
            ["", "shop", "shop/app", "shop=x", "/app=x", "shop/=x", "shop/app=", "shop/app=:json"]
        {
            assert!(parse_file(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn a_file_of_settings() {
        let text = "label = \"web-1\"\nexec = \"reload\"\nsettle_ms = 50\n\
            [[file]]\nnamespace = \"shop\"\ncontainer = \"app\"\npath = \"app.yaml\"\nmode = \"0640\"\n\
            [[file]]\nnamespace = \"shop\"\ncontainer = \"db\"\npath = \"db\"\nformat = \"env\"\nexec = \"other\"\n\
            delete = true\nreveal = true\n";
        let settings = AgentSettings::parse(text).unwrap();
        settings.check().unwrap();
        assert_eq!((settings.label.as_deref(), settings.settle), (Some("web-1"), Duration::from_millis(50)));
        let shown = |file: &FileSettings| (file.format, file.mode, file.exec.clone().unwrap(), file.delete);
        assert_eq!(settings.files.iter().map(|file| file.reveal).collect::<Vec<_>>(), [false, true]);
        assert_eq!(shown(&settings.files[0]), (Format::Yaml, 0o640, "reload".into(), false));
        assert_eq!(shown(&settings.files[1]), (Format::Env, 0o600, "other".into(), true));
    }

    #[test]
    fn wrong_settings_are_named() {
        let file = "[[file]]\nnamespace = \"a\"\ncontainer = \"b\"\npath = \"p\"\n";
        for (text, reason) in [
            (String::new(), "no file"),
            (format!("{file}{file}"), "twice"),
            (format!("{file}colour = 1\n"), "colour"),
            (format!("{file}mode = \"0999\"\n"), "octal"),
            (format!("{file}format = \"xml\"\n"), "xml"),
            (format!("{file}exec = \" \"\n"), "empty"),
            (format!("label = \"{}\"\n{file}", "x".repeat(129)), "128"),
            ("[[file]]\nnamespace = \"\"\ncontainer = \"b\"\npath = \"p\"\n".into(), "needs a namespace"),
            ("[[file]]\nnamespace = \"a\"\ncontainer = \"b\"\npath = \"/\"\n".into(), "does not name"),
        ] {
            let settings = AgentSettings::parse(&text);
            let error = settings.and_then(|settings| settings.check()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
