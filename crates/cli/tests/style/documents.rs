//! The documents as a whole: every link leads somewhere, every page is in the table of contents,
//! short enough to be read, and says for whom it is, and code that a page shows is that of its file.
//!
//! Anchors are made as GitHub makes them. Links to other sites are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{files, root};

/// Most lines of a page that a person writes.
const PAGE_LINES_MAX: usize = 350;

/// Pages that are generated, and so may be longer.
const GENERATED: [&str; 2] = ["docs/reference/command-line.md", "docs/reference/permissions.md"];

/// The text of a page outside of blocks of code, a line at a time.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a page. Of equal headings the later ones are numbered.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut seen) = (BTreeSet::new(), BTreeMap::<String, u32>::new());
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let anchor = anchor(line.trim_start_matches('#'));
        let count = seen.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// The targets of the links of a page, and of its images.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    // What is between backquotes is code.
    let text: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).filter(|target| !target.contains("://")).collect()
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            part => normal.push(part),
        }
    }
    normal
}

/// What is wrong with the links of a page, as `target: what`.
fn faults_of_links(page: &Path, text: &str, read: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for link in links(text) {
        let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
        let target = normal(&page.parent().expect("a directory").join(path));
        let target = if path.is_empty() { page.to_owned() } else { target };
        let Some(content) = read(&target) else {
            faults.push(format!("{link}: there is no such file"));
            continue;
        };
        if !fragment.is_empty() && !anchors(&content).contains(fragment) {
            faults.push(format!("{link}: there is no such heading"));
        }
    }
    faults
}

#[test]
fn every_link_leads_somewhere() {
    let mut faults = Vec::new();
    for page in files(&root(), "md") {
        let text = fs::read_to_string(&page).expect("a text");
        let read = |target: &Path| match target.is_dir() {
            true => Some(String::new()),
            // An image has no headings.
            false => fs::read(target).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        };
        let name = page.strip_prefix(root()).expect("below the root").display().to_string();
        faults
            .extend(faults_of_links(&page, &text, read).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(faults.is_empty(), "{} broken links:\n{}", faults.len(), faults.join("\n"));
}

/// The code, its messages and its tests name pages of `docs/` by their path from the root.
#[test]
fn every_page_that_code_names_exists() {
    let mut faults = Vec::new();
    let own = root().join(file!());
    for path in files(&root(), "rs").into_iter().filter(|path| *path != own) {
        let text = fs::read_to_string(&path).expect("a text");
        for rest in text.split("docs/").skip(1) {
            let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
            let name: String = rest.chars().take_while(|c| is_path(*c)).collect();
            if let Some((name, _)) = name.split_once(".md")
                && !root().join("docs").join(format!("{name}.md")).exists()
            {
                faults.push(format!("{}: docs/{name}.md", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "these pages do not exist:\n{}", faults.join("\n"));
}

#[test]
fn every_page_is_listed_short_and_for_somebody() {
    let documents = root().join("docs");
    let summary = documents.join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links(&fs::read_to_string(&summary).expect("the table of contents"))
        .iter()
        .map(|link| documents.join(link))
        .collect();
    for page in files(&documents, "md").into_iter().filter(|page| *page != summary) {
        let name = page.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        assert!(listed.contains(&page), "{name} is not in docs/SUMMARY.md");
        let text = fs::read_to_string(&page).expect("a text");
        let lines = text.lines().count();
        assert!(GENERATED.contains(&&*name) || lines <= PAGE_LINES_MAX, "{name} has {lines} lines");
        let is_measured = name.starts_with("docs/benchmarks/") && !name.ends_with("README.md");
        let first = text.lines().nth(2).unwrap_or_default();
        assert!(is_measured || first.starts_with("For "), "{name} does not begin by saying for whom it is");
    }
}

/// The programs of the tutorial are those that `scripts/test-examples` runs.
#[test]
fn the_tutorial_shows_the_programs_that_are_tested() {
    let page = fs::read_to_string(root().join("docs/tutorial/first-program.md")).expect("the page");
    for (name, language) in [("first.py", "python"), ("first.mjs", "js"), ("first.go", "go")] {
        let program =
            fs::read_to_string(root().join("examples/first-program").join(name)).expect("a program");
        assert!(page.contains(&format!("```{language}\n{program}```\n")), "{name} differs from the page");
    }
}

#[test]
fn broken_links_are_found() {
    let page = Path::new("/docs/a/page.md");
    let other = "# One\n## Two: `x` and (y)\n## One\n```\n# code\n```\n";
    let read = |path: &Path| (path == Path::new("/docs/other.md")).then(|| other.to_owned());
    let faults = |text: &str| faults_of_links(page, text, read);
    for fine in [
        "[a](../other.md#two-x-and-y) [b](../other.md#one-1) [c](https://example.org)",
        "```\n[a](none)\n```\n`[a](none)`",
        "![an image](../other.md)",
    ] {
        assert_eq!(faults(fine), Vec::<String>::new(), "{fine}");
    }
    assert_eq!(faults("[a](none.md)"), ["none.md: there is no such file"]);
    assert_eq!(faults("[a\nb](../other.md#code)"), ["../other.md#code: there is no such heading"]);
    assert_eq!(faults("[a](#x)"), ["#x: there is no such file"]);
}
