//! `tidelock man`: manual pages, from the same definitions as `--help`.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use tidelock_client::{CliError, output};

use crate::args::{Cli, ManArgs};

/// Prints the page of the program, or writes the pages of all commands to a directory.
pub fn run(args: &ManArgs) -> Result<(), CliError> {
    // `help` as a command would be one more page for each of the others.
    let mut command = Cli::command().disable_help_subcommand(true);
    let Some(directory) = &args.directory else {
        return output::write(&page(command).map_err(CliError::io("the page"))?);
    };
    command.build();
    fs::create_dir_all(directory)
        .and_then(|()| write_pages(&command, "tidelock", directory))
        .map_err(CliError::io(directory.display().to_string()))
}

/// Writes the page of a command and those of its subcommands, `tidelock-kv-put.1` for `kv put`.
fn write_pages(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, &format!("{name}-{}", subcommand.get_name()), directory)?;
    }
    // The names of pages are shown in upper case, and references to subcommands begin with them.
    let named = command.clone().name(name.to_owned()).display_name(name.to_owned());
    fs::write(directory.join(format!("{name}.1")), page(named)?)
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).source(concat!("Tidelock ", env!("CARGO_PKG_VERSION"))).render(&mut page)?;
    Ok(page)
}
