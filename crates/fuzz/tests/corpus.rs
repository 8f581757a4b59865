//! Runs every target over its stored corpus, and over as many mutations of it as take a few
//! seconds. A finding of the fuzzer is stored there, so that it is tested from then on.

use tidelock_fuzz::{corpus, targets};

/// Mutations of each corpus.
const MUTATIONS: usize = 400;

/// Bytes of a corpus in the tree, at most, so that it can be reviewed and cloned.
const CORPUS_BYTES_MAX: usize = 400 << 10;
/// Files of a corpus, at most.
const CORPUS_FILES_MAX: usize = 250;

#[test]
fn every_target_holds_on_its_corpus_and_near_it() {
    for target in targets::all() {
        let inputs = corpus::read(target.name).expect("the corpus can be read");
        assert!(!inputs.is_empty(), "{} has no corpus: run write-seeds", target.name);
        inputs.iter().for_each(|input| run(target, input));
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..MUTATIONS {
            run(target, &corpus::mutated(&inputs, &mut random));
        }
    }
}

/// Runs a target, and shows the input before the panic of a finding goes on.
fn run(target: &targets::Target, input: &[u8]) {
    if let Err(panic) = std::panic::catch_unwind(|| (target.run)(input)) {
        eprintln!("{}: b\"{}\"", target.name, input.escape_ascii());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn every_corpus_is_small_and_has_a_target() {
    let root = corpus::directory("");
    let directories = std::fs::read_dir(root).expect("the corpus can be listed");
    for directory in directories {
        let name = directory.expect("an entry").file_name().into_string().expect("a name in UTF-8");
        assert!(targets::named(&name).is_some(), "no target is named {name}");
        let inputs = corpus::read(&name).expect("the corpus can be read");
        let bytes: usize = inputs.iter().map(Vec::len).sum();
        assert!(bytes <= CORPUS_BYTES_MAX, "the corpus of {name} has {bytes} bytes");
        assert!(inputs.len() <= CORPUS_FILES_MAX, "the corpus of {name} has {} files", inputs.len());
    }
}

/// The seeds are made by the product's own encoders, so none may be refused by its target.
#[test]
fn every_seed_is_accepted() {
    for target in targets::all() {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| run(target, seed));
    }
}
