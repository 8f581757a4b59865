//! `tidelock completions`: scripts that complete the command line in a shell.

use clap::CommandFactory;
use tidelock_client::{CliError, output};

use crate::args::{Cli, CompletionsArgs};

/// Prints the script for a shell.
pub fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidelock", &mut script);
    output::write(&script)
}
