//! The list of all targets.

mod api;
mod commands;
mod configuration;
mod disk;
mod peers;
mod protocols;
mod requests;
mod state;
mod tokens;

/// Properties of one parser, or of some that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line, and of the directory of its corpus.
    pub name: &'static str,
    /// Checks the properties on one input.
    ///
    /// # Panics
    /// When one does not hold.
    pub run: fn(&[u8]),
    /// Inputs to begin with, each accepted by the parser.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub fn all() -> impl Iterator<Item = &'static Target> {
    [
        protocols::TARGETS,
        requests::TARGETS,
        api::TARGETS,
        configuration::TARGETS,
        commands::TARGETS,
        peers::TARGETS,
        state::TARGETS,
        disk::TARGETS,
        tokens::TARGETS,
    ]
    .into_iter()
    .flatten()
}

/// The target of this name.
pub fn named(name: &str) -> Option<&'static Target> {
    all().find(|target| target.name == name)
}

/// The input as text, up to its first malformed byte.
fn text(input: &[u8]) -> &str {
    match std::str::from_utf8(input) {
        Ok(text) => text,
        Err(error) => {
            std::str::from_utf8(&input[..error.valid_up_to()]).expect("invariant: it is valid so far")
        }
    }
}

/// Texts as seeds.
fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
