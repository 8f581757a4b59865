//! Width and words of comments and documents.

use std::fs;
use std::path::Path;

use super::{files, root};

const COMMENT_COLUMNS_MAX: usize = 100;
const DOCUMENT_COLUMNS_MAX: usize = 120;

/// Names that the field has another word for. They must not come back as names of types, functions
/// or modules.
const NAMES: [&str; 45] = [
    "Agenda",
    "Cargo",
    "Carrying",
    "Complaint",
    "Complaints",
    "Crew",
    "Deed",
    "Desk",
    "Displaced",
    "Elsewhere",
    "Entrance",
    "Errand",
    "Farewells",
    "Gathering",
    "Happening",
    "HeaderFault",
    "Hub",
    "Judged",
    "Keeper",
    "Knock",
    "Knocker",
    "Lane",
    "Lanes",
    "NotWhole",
    "Outlets",
    "Patience",
    "RecoverError",
    "RecoverReport",
    "Remains",
    "Rests",
    "Roster",
    "Sabotage",
    "Seat",
    "Spoilt",
    "Standing",
    "Story",
    "Struck",
    "Surplus",
    "Surroundings",
    "Temper",
    "Tenure",
    "Unasked",
    "UnderWay",
    "Upkeep",
    "Weather",
];

/// Turns of phrase that a reader stumbles over.
const PHRASES: [&str; 19] = [
    "whoever",
    "who is to",
    "none any more",
    "lay there",
    "for ever",
    "at its first breath",
    "nobody means",
    "farewell",
    "is bent",
    "word counts",
    "whose word",
    "hearsay",
    "threefold",
    "of its own accord",
    "by the same number",
    "knock",
    "of nobody",
    "told of",
    "word of it",
];

/// The comment of a line that holds nothing else.
fn comment(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("//")
}

fn columns(line: &str) -> usize {
    line.chars().count()
}

/// What is wrong with the comments and names of a Rust file, as `line: what`.
fn faults_of_code(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut fault = |what: String| faults.push(format!("{number}: {what}"));
        let Some(comment) = comment(line) else {
            let is_name = |word: &&str| NAMES.contains(word);
            line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '"')
                .filter(is_name)
                .for_each(|name| fault(format!("the name {name}")));
            continue;
        };
        if columns(line) > COMMENT_COLUMNS_MAX && comment.contains(' ') {
            fault(format!("a comment of {} columns", columns(line)));
        }
        phrases(comment).for_each(|phrase| fault(format!("the phrase \"{phrase}\"")));
    }
    faults
}

/// The same of a document. Tables, blocks of code and lines without a place to break are left out.
fn faults_of_document(text: &str) -> Vec<String> {
    let (mut faults, mut is_code) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.trim_start().starts_with('|') {
            continue;
        }
        let can_break = line.trim_start().trim_start_matches("- ").contains(' ') && !line.starts_with('#');
        if columns(line) > DOCUMENT_COLUMNS_MAX && can_break {
            faults.push(format!("{number}: a line of {} columns", columns(line)));
        }
        faults.extend(phrases(line).map(|phrase| format!("{number}: the phrase \"{phrase}\"")));
    }
    faults
}

fn phrases(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    let ends = |rest: &str| !rest.starts_with(char::is_alphanumeric);
    PHRASES.into_iter().filter(move |phrase| text.split(phrase).skip(1).any(ends))
}

fn hold(extension: &str, faults_of: fn(&str) -> Vec<String>) {
    let (root, own) = (root(), Path::new("crates/cli/tests/style"));
    let mut faults = Vec::new();
    for path in files(&root, extension) {
        let name = path.strip_prefix(&root).expect("below the root").to_owned();
        if !name.starts_with(own) {
            let text = fs::read_to_string(&path).expect("a text");
            faults.extend(faults_of(&text).into_iter().map(|fault| format!("{}:{fault}", name.display())));
        }
    }
    assert!(faults.is_empty(), "{} faults of style:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn comments_are_narrow_and_plain() {
    hold("rs", faults_of_code);
}

#[test]
fn documents_are_narrow_and_plain() {
    hold("md", faults_of_document);
}

#[test]
fn what_breaks_the_rules_is_found() {
    let long = format!("// {}", "word ".repeat(20));
    assert_eq!(faults_of_code(&long), ["1: a comment of 103 columns"]);
    assert_eq!(faults_of_code("/// Whoever leads."), ["1: the phrase \"whoever\""]);
    assert_eq!(faults_of_code("/// Once for every node."), Vec::<String>::new());
    assert_eq!(
        faults_of_code("struct Crew;\nlet deed = Deed::new();"),
        ["1: the name Crew", "2: the name Deed"]
    );
    assert_eq!(faults_of_code("let text = \"no Word\"; // code"), Vec::<String>::new());
    let wide = "word ".repeat(25);
    assert_eq!(faults_of_document(&wide), ["1: a line of 125 columns"]);
    assert_eq!(faults_of_document(&format!("| {wide} |\n```\n{wide}\n```")), Vec::<String>::new());
}
