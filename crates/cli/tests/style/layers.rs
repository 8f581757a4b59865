//! The layers of modules: within a crate a module imports only from those below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{files, root};

/// The modules directly below `src`, and which of them each one names by `crate::`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads the imports of the modules of a crate. Tests are left out: they may use anything.
fn imports(source: &Path) -> Imports {
    let mut imports = Imports::new();
    for path in files(source, "rs") {
        let name = path.strip_prefix(source).expect("below the source").to_string_lossy().into_owned();
        let first = name.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
        let is_test = name.split('/').any(|part| part == "tests" || part == "tests.rs");
        if !is_test && !["lib", "main"].contains(&&*first) {
            let text = fs::read_to_string(&path).expect("a text");
            imports.entry(first).or_default().extend(named(&text));
        }
    }
    let modules: Vec<String> = imports.keys().cloned().collect();
    for (module, named) in &mut imports {
        named.retain(|other| other != module && modules.contains(other));
    }
    imports
}

/// The modules that a file names by `crate::`, outside of comments and of its own tests.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: String = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut found = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        let list = part.strip_prefix('{').and_then(|list| list.split('}').next());
        let names = list.unwrap_or(part).split(if list.is_some() { "," } else { "\0" });
        found.extend(names.map(|name| {
            let name = name.trim_start();
            name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
        }));
    }
    found
}

/// The modules in layers from the lowest, or those that import each other in a circle.
fn layers(mut imports: Imports) -> Result<Vec<Vec<String>>, Vec<String>> {
    let mut layers = Vec::new();
    while !imports.is_empty() {
        let is_lowest = |named: &BTreeSet<String>| !named.iter().any(|other| imports.contains_key(other));
        let lowest: Vec<String> =
            imports.iter().filter(|(_, named)| is_lowest(named)).map(|(module, _)| module.clone()).collect();
        if lowest.is_empty() {
            return Err(imports.into_keys().collect());
        }
        lowest.iter().for_each(|module| drop(imports.remove(module)));
        layers.push(lowest);
    }
    Ok(layers)
}

#[test]
fn modules_import_only_from_below() {
    let layers_min =
        [("api", 2), ("core", 4), ("server", 4), ("sim", 4), ("client", 2), ("bench", 4), ("cli", 2)];
    for (name, layers_min) in layers_min {
        let source = root().join("crates").join(name).join("src");
        match layers(imports(&source)) {
            Ok(layers) => assert!(layers.len() >= layers_min, "{name}: {layers:?}"),
            Err(circle) => {
                panic!("{name}: these modules import each other in a circle, or from one: {circle:?}")
            }
        }
    }
}

#[test]
fn a_circle_is_found() {
    let import = |module: &str, others: &str| {
        (module.to_owned(), others.split_whitespace().map(str::to_owned).collect())
    };
    let fine = Imports::from([import("a", "b c"), import("b", "c"), import("c", "")]);
    assert_eq!(layers(fine), Ok(vec![vec!["c".to_owned()], vec!["b".to_owned()], vec!["a".to_owned()]]));
    let circle = Imports::from([import("a", "b"), import("b", "c"), import("c", "b"), import("d", "")]);
    assert_eq!(layers(circle), Err(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    let text = "use crate::a::B;\n// crate::z\nfn f(x: crate::c::D) {}\nuse crate::{d, e::F};\n\
                #[cfg(test)]\nmod tests { use crate::t; }";
    assert_eq!(named(text), ["a", "c", "d", "e"].map(str::to_owned).into());
}
