//! Fuzzes the parser with malformed input, for as long as `FUZZ_SECONDS` says, or briefly.
//!
//! Properties: it never panics, it finds the same commands however the bytes arrive, and it finds
//! its own result again when that is encoded. Inputs are mutations of a stored corpus
//! (`tests/server/corpus/resp`). A failing input is added there, so that it is tested from then on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidelock_server::resp::frame::{CommandParseError, Parser};

use super::client::command;

type Commands = Vec<Vec<Vec<u8>>>;

/// Tokens of the protocol, inserted anywhere.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"*",
    b"$",
    b"*1\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"$0\r\n\r\n",
    b"$3\r\nGET\r\n",
    b"\n",
    b"\"",
    b"'",
    b"\\x",
    b"*1048576\r\n",
    b"$8388608\r\n",
    b"+OK\r\n",
    b"99999999999999999999",
    b"-",
    b"0",
    b"PING\r\n",
    b"\0",
    b"\xff",
];

/// Number of inputs without a time limit.
const INPUTS: u64 = 20_000;

#[test]
fn fuzz() {
    let seconds: Option<u64> = std::env::var("FUZZ_SECONDS").ok().map(|text| text.parse().unwrap());
    let seed = std::env::var("FUZZ_SEED").ok().map_or(1, |text| text.parse().unwrap());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let corpus = corpus();
    corpus.iter().for_each(|input| check(input));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut tried: u64 = 0;
    let goes_on = |tried| until.map_or(tried < INPUTS, |until| tried % 1_000 != 0 || Instant::now() < until);
    while goes_on(tried) {
        let input = mutated(&corpus, &mut random);
        let outcome = std::panic::catch_unwind(|| check(&input));
        if let Err(panic) = outcome {
            let name = format!("found-{:016x}", random.u64(..));
            std::fs::write(directory().join(&name), &input).unwrap();
            eprintln!("kept as {name}: \"{}\"", input.escape_ascii());
            std::panic::resume_unwind(panic);
        }
        tried += 1;
    }
    println!("{tried} inputs, seed {seed}");
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/server/corpus/resp")
}

fn corpus() -> Vec<Vec<u8>> {
    let mut files: Vec<_> =
        std::fs::read_dir(directory()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "the corpus is kept");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn mutated(corpus: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = corpus[random.usize(..corpus.len())].clone();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=input.len());
        match random.u8(0..7) {
            0 if at < input.len() => input[at] = random.u8(..),
            1 if at < input.len() => input[at] ^= 1 << random.u8(0..8),
            2 => drop(input.splice(at..at, WORDS[random.usize(..WORDS.len())].iter().copied())),
            3 => input.truncate(at),
            4 => {
                let end = at + random.usize(..=(input.len() - at).min(20));
                drop(input.drain(at..end));
            }
            5 => {
                let other = &corpus[random.usize(..corpus.len())];
                let from = random.usize(..=other.len());
                drop(input.splice(at..at, other[from..].iter().copied()));
            }
            _ => {
                let copy = input[at..].to_vec();
                input.extend_from_slice(&copy);
            }
        }
        input.truncate(8 << 10);
    }
    input
}

fn check(input: &[u8]) {
    let whole = commands(input, input.len().max(1));
    for piece_bytes in [1, 2, 7] {
        assert_eq!(commands(input, piece_bytes), whole, "in pieces of {piece_bytes}");
    }
    let encoded: Vec<u8> = whole.0.iter().flat_map(|arguments| encode(arguments)).collect();
    assert_eq!(commands(&encoded, encoded.len().max(1)), (whole.0, None), "encoded again");
}

fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    command(&arguments.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// All commands up to the first error, and that error.
fn commands(bytes: &[u8], piece_bytes: usize) -> (Commands, Option<CommandParseError>) {
    let (mut parser, mut input, mut found) = (Parser::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece_bytes) {
        input.extend_from_slice(piece);
        loop {
            match parser.parse(&input) {
                Ok(Some(length)) => {
                    found.push(parser.arguments(&input).from(0).map(<[u8]>::to_vec).collect());
                    parser.advance();
                    input.drain(..length);
                }
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
