//! The log of a node: one line an event on standard error, for people or as JSON.
//!
//! Owns the subscriber. Standard output stays free for output.

use std::io;

use tidelock_client::{CliError, output};
use tidelock_server::config::LogFormat;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Installs the subscriber of this process; to be called once.
pub fn init(format: LogFormat, filter: &str) -> Result<(), CliError> {
    let filter = parse_filter(filter)?;
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr);
    let installed = match format {
        LogFormat::Text => lines.with_ansi(output::is_coloured(&io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    installed.map_err(|error| CliError::Stopped(format!("the log cannot be set up: {error}")))
}

fn parse_filter(filter: &str) -> Result<EnvFilter, CliError> {
    EnvFilter::builder().parse(filter).map_err(|error| {
        CliError::Usage(format!(
            "log_filter: `{filter}` is not understood ({error}); write a level, or directives such as \
             info,tidelock_server=debug"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters() {
        for good in ["info", "debug", "off", "info,tidelock_server=debug", "warn,tidelock_server::http=trace"]
        {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["info,tidelock_server=loud", "a=b=c"] {
            assert!(matches!(parse_filter(bad), Err(CliError::Usage(_))), "{bad}");
        }
    }
}
