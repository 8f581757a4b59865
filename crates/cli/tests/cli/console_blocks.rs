//! Runs the `console` blocks of the documents, and compares their output.
//!
//! In a block fenced as `console`, a line with `$ ` is a command and the lines below it are its
//! output; a line `…` stands for any lines. Addresses of the documents are replaced by those of the
//! cluster under test, and numbers are not compared: versions differ from run to run.
//!
//! Invariant: every page with such a block is in the list below, so each block is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Cluster, Options};

/// Declares a test for each list of pages, which runs their blocks in order on one new cluster of
/// that many nodes, with one data shard as a reader has it, and `PAGES`, all of these pages.
macro_rules! console_pages {
    ($($test:ident($nodes:literal): [$($page:literal),* $(,)?];)*) => {
        $(
            #[test]
            fn $test() {
                let cluster = Cluster::start_with($nodes, &Options { flags: vec!["--shards", "1"] });
                cluster.await_newest_version();
                [$($page),*].iter().for_each(|page| run_page(&cluster, page));
            }
        )*
        const PAGES: &[&str] = &[$($($page),*),*];
    };
}

console_pages! {
    readme_then_configuration(3): [
        "README.md",
        "docs/tutorial/configuration.md",
        "docs/reference/configuration.md",
    ];
    first_steps(1): ["docs/tutorial/one-node.md", "docs/reference/http.md"];
    keys(3): ["docs/reference/http-keys.md"];
    dialects(3): ["docs/reference/http-dialects.md"];
    the_only_node(1): ["docs/reference/http-cluster.md"];
    consistency(3): ["docs/explanation/consistency.md"];
}

/// A command and its documented output.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    command: String,
    output: String,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = vec![];
    let mut inside = false;
    for line in document.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => {
                    examples.push(Example { command: command.to_owned(), output: String::new() });
                }
                (None, Some(example)) if !line.is_empty() => {
                    example.output.push_str(line);
                    example.output.push('\n');
                }
                _ => {}
            },
        }
    }
    examples
}

/// `text` with every run of digits as `#`.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            other => out.push(other),
        }
    }
    out
}

/// Whether the output is as documented. A documented line `…` stands for any lines, also none.
fn is_as_documented(shown: &[&str], documented: &[&str]) -> bool {
    match documented.split_first() {
        None => shown.is_empty(),
        Some((&"…", rest)) => (0..=shown.len()).any(|skipped| is_as_documented(&shown[skipped..], rest)),
        Some((line, rest)) => {
            shown.split_first().is_some_and(|(first, others)| first == line && is_as_documented(others, rest))
        }
    }
}

fn run_page(cluster: &Cluster, page: &str) {
    let document = fs::read_to_string(root().join(page)).expect("a page");
    let binary = Path::new(env!("CARGO_BIN_EXE_tidelock"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary.parent().expect("a directory").display());
    // In a terminal curl shows no progress for such short answers; here its output goes to a pipe.
    let curl_home = tempfile::tempdir().expect("a temporary directory");
    fs::write(curl_home.path().join(".curlrc"), "silent\nshow-error\n").expect("a file");
    // Files that the examples write go here.
    let directory = tempfile::tempdir().expect("a temporary directory");
    for Example { command, output } in examples(&document) {
        let mut line = command.clone();
        for number in cluster.numbers() {
            for host in ["127.0.0.1", "localhost"] {
                line = line.replace(&format!("{host}:800{number}"), &cluster.address(number).to_string());
            }
        }
        let run = Command::new("sh")
            .args(["-c", &line])
            .current_dir(directory.path())
            .env("PATH", &path)
            .env("CURL_HOME", curl_home.path())
            .env("XDG_CONFIG_HOME", directory.path())
            .env("TIDELOCK_URL", cluster.url(1, ""))
            .output()
            .expect("a shell");
        assert_ne!(run.status.code(), Some(127), "{page}: {command}: is curl installed?");
        let shown = String::from_utf8_lossy(&run.stdout) + String::from_utf8_lossy(&run.stderr);
        let (shown, output) = (without_numbers(&shown), without_numbers(&output));
        let lines: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        let documented: Vec<&str> = output.lines().collect();
        assert!(
            is_as_documented(&lines, &documented),
            "{page}: {command}\nprinted:\n{shown}\ndocumented:\n{output}"
        );
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and every page of `docs/`, by their path from the root.
fn pages() -> Vec<String> {
    let (mut pages, mut directories) = (vec!["README.md".to_owned()], vec![root().join("docs")]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root()).expect("below the root");
                pages.push(name.to_string_lossy().into_owned());
            }
        }
    }
    pages
}

#[test]
fn every_console_block_is_run() {
    for page in pages() {
        let document = fs::read_to_string(root().join(&page)).expect("a page");
        // A block in a list is indented, and `examples` would not see it.
        let blocks = document.lines().filter(|line| line.trim_start().starts_with("```console")).count();
        let seen = document.lines().filter(|line| *line == "```console").count();
        assert_eq!(blocks, seen, "{page}: a console block is indented or has attributes");
        assert_eq!(blocks > 0, PAGES.contains(&&*page), "{page}: {blocks} console blocks");
        assert_eq!(blocks > 0, !examples(&document).is_empty(), "{page}: a console block without a command");
    }
}

#[test]
fn examples_are_found() {
    let document =
        "text\n```console\n$ one\nprinted 6\n\nmore\n$ two\n```\n$ not an example\n```sh\n$ nor this\n```\n";
    let example =
        |command: &str, output: &str| Example { command: command.to_owned(), output: output.to_owned() };
    assert_eq!(examples(document), [example("one", "printed 6\nmore\n"), example("two", "")]);
    assert_eq!(without_numbers("{\"ver\":16} (6 != 18)"), "{\"ver\":#} (# != #)");
    assert!(is_as_documented(&["a", "b", "c"], &["a", "…", "c"]));
    assert!(is_as_documented(&["a", "c"], &["a", "…", "c", "…"]));
    assert!(!is_as_documented(&["a", "b"], &["a"]) && !is_as_documented(&["a"], &["a", "b"]));
}
