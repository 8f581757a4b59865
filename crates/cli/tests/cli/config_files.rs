//! Configuration files of real applications: imported, searched, changed, compared, rolled back and
//! exported, by the command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::harness::Cluster;
use crate::harness::shell::Shell;

/// A file of `tests/files`.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn path(file: &Path) -> &str {
    file.to_str().expect("a path that is text")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(file(name)).expect("a file of the tests")
}

fn text(shell: &Shell, arguments: &[&str]) -> String {
    String::from_utf8(shell.done(arguments)).expect("text")
}

fn exported(shell: &Shell, container: &str, format: &str) -> String {
    text(shell, &["config", "container", "get", "files", container, "--format", format])
}

/// The lines that only one of two texts has.
fn differing<'a>(one: &'a str, other: &'a str) -> (Vec<&'a str>, Vec<&'a str>) {
    let without = |one: &'a str, other: &'a str| {
        let others: BTreeSet<&str> = other.lines().collect();
        one.lines().filter(|line| !others.contains(line)).collect()
    };
    (without(one, other), without(other, one))
}

/// What a file becomes, in the format in which it was imported, without comments.
fn canonical(name: &str) -> String {
    let mut lines: Vec<String> =
        read(name).lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    if name.ends_with(".properties") {
        lines.sort();
    }
    lines.concat()
}

/// Imports a file, finds one of its 60 values by a search, changes it, and takes the change back.
fn change_one_value(name: &str, format: &str, (pair, value, line): (&str, &str, [&str; 2]), found_by: &str) {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    let source = file(name);
    let import = ["config", "import", "files", path(&source), "--container", "app", "--author", "ann"];
    text(&shell, &["config", "ns", "create", "files"]);
    assert_eq!(text(&shell, &import), "revision 2\n");
    let first = exported(&shell, "app", format);
    assert_eq!(first, canonical(name), "nothing was changed by the import");
    assert_eq!(text(&shell, &import), "nothing changed; still revision 2\n");

    let found = text(&shell, &["config", "search", found_by]);
    assert!(found.lines().any(|line| line.contains(pair) && line.ends_with("app")), "{found}");
    let set = ["config", "pair", "set", "files", pair, value, "--author", "bob", "--message", "more of it"];
    assert_eq!(text(&shell, &set), "revision 3\n");
    assert_eq!(differing(&first, &exported(&shell, "app", format)), (vec![line[0]], vec![line[1]]));

    let diff = text(&shell, &["config", "diff", "files", "app", "--from", "2"]);
    let changed = |sign: &str| diff.lines().filter(|line| line.starts_with(sign)).count();
    assert_eq!((changed("-"), changed("+")), (2, 2), "the names of the files, and one line: {diff}");
    let blame = text(&shell, &["config", "blame", "files", "app"]);
    let of_bob: Vec<&str> = blame.lines().filter(|line| line.contains("bob")).collect();
    assert!(of_bob.len() == 1 && of_bob[0].contains("more of it"), "{blame}");
    assert!(of_bob[0].contains(pair.strip_prefix("app.").expect("a pair of the container")), "{blame}");
    let history = text(&shell, &["config", "history", "files", "--pair", pair]);
    assert_eq!(history.lines().filter(|line| line.contains(pair)).count(), 2, "{history}");

    assert_eq!(text(&shell, &["config", "rollback", "files", "2", "--pair", pair]), "revision 4\n");
    assert_eq!(exported(&shell, "app", format), first);
    // Published with another value, as one revision, and rolled back as a whole.
    let directory = tempfile::tempdir().expect("a directory");
    let changes = directory.path().join("changes.json");
    let body = serde_json::json!({"changes": [{"pair": pair, "value": value.parse::<i64>().expect("a number")},
        {"pair": "unused", "value": 1}]});
    std::fs::write(&changes, body.to_string()).expect("a file");
    assert_eq!(text(&shell, &["config", "publish", "files", path(&changes)]), "revision 5\n");
    assert_eq!(differing(&first, &exported(&shell, "app", format)), (vec![line[0]], vec![line[1]]));
    assert_eq!(text(&shell, &["config", "rollback", "files", "4"]), "revision 6\n");
    assert_eq!(exported(&shell, "app", format), first);
    let unused = shell.command(&["config", "pair", "set", "files", "unused", "1"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&unused.stderr).contains("no container refers to pair \"unused\""));
}

#[test]
fn one_value_of_a_yaml_file_is_found_changed_and_taken_back() {
    let change = ("app.spring.datasource.hikari.maximum-pool-size", "64");
    let lines = ["      maximum-pool-size: 32", "      maximum-pool-size: 64"];
    change_one_value("application.yaml", "yaml", (change.0, change.1, lines), "pool-size");
}

#[test]
fn one_value_of_a_properties_file_is_found_changed_and_taken_back() {
    let change = ("app.query.cache.size", "20000");
    let lines = ["query.cache.size=10000", "query.cache.size=20000"];
    change_one_value("application.properties", "properties", (change.0, change.1, lines), "10000");
}

#[test]
fn files_of_applications_are_exported_as_they_were_imported() {
    let cluster = Cluster::start(1);
    let shell = Shell::of(&cluster);
    text(&shell, &["config", "ns", "create", "files"]);
    for (container, name, format) in [
        ("spring", "application.yaml", "yaml"),
        ("search", "application.properties", "properties"),
        ("game", "configmap.yaml", "yaml"),
        ("nginx", "nginx.properties", "properties"),
        ("python", "pyproject.toml", "toml"),
    ] {
        let source = file(name);
        let import = ["config", "import", "files", path(&source), "--container", container];
        text(&shell, &import);
        let json = exported(&shell, container, "json");
        // Through every format that can carry the document, it comes back the same.
        let directory = tempfile::tempdir().expect("a directory");
        for format in ["json", "yaml", "toml", "properties"] {
            let get = ["config", "container", "get", "files", container, "--format", format];
            let output = shell.command(&get).output().expect("it runs");
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr);
                assert!(why.contains("null in TOML") || why.contains("TOML"), "{name} as {format}: {why}");
                continue;
            }
            let copy = directory.path().join(format!("copy.{format}"));
            std::fs::write(&copy, &output.stdout).expect("a file");
            let again = text(&shell, &["config", "import", "files", path(&copy), "--container", container]);
            assert!(again.starts_with("nothing changed"), "{name} as {format}: {again}");
            let other = format!("{container}-{format}");
            text(&shell, &["config", "import", "files", path(&copy), "--container", &other]);
            assert_eq!(exported(&shell, &other, "json"), json, "{name} as {format}");
        }
        let (source, same) = (canonical(name), exported(&shell, container, format));
        assert_eq!(differing(&source, &same), (vec![], vec![]), "{name}");
    }
}
