//! The stored inputs of the targets, and mutations of them.
//!
//! Files are named by the SHA-1 of their content, as libFuzzer names them: the same input is stored
//! once, and merging adds files without renaming others.

use std::path::{Path, PathBuf};
use std::{fs, io};

use sha1::{Digest, Sha1};

/// Most bytes of a mutated input. Longer ones cost time and reach nothing more.
const INPUT_BYTES_MAX: usize = 8 << 10;

/// The directory of a target's inputs.
pub fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Reads the inputs of a target, in the order of their names. Without a directory there are none.
///
/// # Errors
/// When a file cannot be read.
pub fn read(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let files = match fs::read_dir(directory(target)) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = files.map(|file| Ok(file?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(fs::read).collect()
}

/// Stores an input of a target.
///
/// # Errors
/// When the file cannot be written.
pub fn store(target: &str, input: &[u8]) -> io::Result<()> {
    let directory = directory(target);
    fs::create_dir_all(&directory)?;
    let name: String = Sha1::digest(input).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(directory.join(name), input)
}

/// Changes a random input in some random places.
pub fn mutated(inputs: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = inputs[random.usize(..inputs.len())].clone();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=input.len());
        match random.u8(0..7) {
            0 if at < input.len() => input[at] = random.u8(..),
            1 if at < input.len() => input[at] ^= 1 << random.u8(0..8),
            2 => input.insert(at, random.u8(..)),
            3 => input.truncate(at),
            4 => {
                let end = at + random.usize(..=(input.len() - at).min(20));
                input.drain(at..end);
            }
            5 => {
                let other = &inputs[random.usize(..inputs.len())];
                let from = random.usize(..=other.len());
                input.splice(at..at, other[from..].iter().copied());
            }
            _ => {
                let copy = input[at..].to_vec();
                input.extend_from_slice(&copy);
            }
        }
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}
