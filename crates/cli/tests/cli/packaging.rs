//! What packages are made of: completions, manual pages, and the settings file.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::harness::tidelock;

fn printed(arguments: &[&str]) -> String {
    let output = tidelock().args(arguments).output().expect("the binary starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn completions_know_the_commands_and_their_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        for word in ["serve", "election-timeout-ms", "transfer", "completions"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

/// bash itself completes a command line with the script.
#[test]
fn bash_completes_subcommands() {
    let script = printed(&["completions", "bash"])
        + "\nCOMP_WORDS=(tidelock kv pu); COMP_CWORD=2; _tidelock tidelock pu kv; echo \"${COMPREPLY[@]}\"";
    // It is longer than an argument may be.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("script");
    fs::write(&file, script).expect("the file can be written");
    let completed = Command::new("bash").arg(&file).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "put");
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pages = directory.path().join("man");
    let made = tidelock().arg("man").arg(&pages).stdout(Stdio::null()).status().expect("the binary starts");
    assert!(made.success());
    let names: BTreeSet<String> = fs::read_dir(&pages)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    for name in ["tidelock.1", "tidelock-serve.1", "tidelock-kv-put.1", "tidelock-config-draft-publish.1"] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    let page = fs::read_to_string(pages.join("tidelock-kv-put.1")).expect("a page");
    assert!(page.contains(".TH tidelock-kv-put 1") && page.contains("if\\-absent"), "{page}");
    // Each command that a page refers to has a page.
    for name in &names {
        let page = fs::read_to_string(pages.join(name)).expect("a page");
        for line in page.lines().filter(|line| line.ends_with("(1)") && line.starts_with("tidelock")) {
            let referred = line.trim_end_matches("(1)").replace("\\-", "-") + ".1";
            assert!(names.contains(&referred), "{name} refers to {referred}");
        }
    }
    assert!(printed(&["man"]).contains("\n.SH SUBCOMMANDS\n"));
}

/// The settings file of the package is valid as it is, and each example in it is a setting of the
/// right type.
#[test]
fn every_example_of_the_settings_file_is_a_setting() {
    let text = include_str!("../../../../packaging/tidelock.toml");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("settings.toml");
    // The number is checked after all names and types have been read, and before anything is
    // written: no node starts here.
    let refused = |line: &str| {
        fs::write(&file, format!("{text}\n{line}\nelection_timeout_ms = 0\n")).expect("a file");
        let output = tidelock().arg("serve").arg("--config").arg(&file).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let names_the_file = |said: &str| said.contains("settings.toml");
    for wrong in ["htpp = \"127.0.0.1:8001\"", "secure = \"yes\""] {
        assert!(names_the_file(&refused(wrong)), "{wrong} is read");
    }
    let is_example = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let examples: Vec<&str> = text.lines().filter(is_example).collect();
    assert!(examples.len() > 15, "{examples:?}");
    for example in examples {
        let said = refused(&example[1..]);
        assert!(!names_the_file(&said), "{example}: {said}");
    }
}
