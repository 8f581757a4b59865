//! Inheritance: what a namespace does not set itself, it has from its parents, in one revision.

use super::*;
use crate::command::config::{Export, Inheritance};

/// The namespace of this name in one family.
fn member(name: &str) -> Name {
    Name::new(&alloc::format!("{{shop}}/{name}")).expect("a name")
}

pub(super) fn act(
    config: &mut Config,
    name: &Name,
    operation: ConfigOperation,
) -> Result<(u64, bool), ConfigError> {
    apply_write(config, ConfigWrite { namespace: name.clone(), ..write(operation) })
}

fn change(config: &mut Config, name: &str, changes: Vec<Change>) -> Result<(u64, bool), ConfigError> {
    act(config, &member(name), ConfigOperation::Publish { changes, create: true })
}

fn inherit(config: &mut Config, name: &str, parents: &[&str]) -> Result<(u64, bool), ConfigError> {
    let parents = parents.iter().map(|parent| member(parent)).collect();
    act(config, &member(name), ConfigOperation::SetParents { parents })
}

fn read(config: &Config, name: &str, query: Query) -> Result<ConfigReply, ConfigError> {
    config.read(&ConfigRead { namespace: member(name), query })
}

fn shown(config: &Config, name: &str, key: &str) -> Result<String, ConfigError> {
    match read(config, name, Query::Container { key: key.into(), at: None, known: None })? {
        ConfigReply::Container(found) => Ok(found.document()),
        other => panic!("{other:?}"),
    }
}

fn export(config: &Config, name: &str) -> Export {
    match read(config, name, Query::Export { at: None }) {
        Ok(ConfigReply::Export(export)) => export,
        other => panic!("{other:?}"),
    }
}

fn inheritance(config: &Config, name: &str) -> Inheritance {
    match read(config, name, Query::Inheritance) {
        Ok(ConfigReply::Inheritance(inheritance)) => *inheritance,
        other => panic!("{other:?}"),
    }
}

/// `base` with a container of two pairs, and `dev` and `prod` below it; `prod` sets one of them.
fn family() -> Config {
    let mut config = Config::default();
    let app = container("app", vec![one("port", "port"), one("url", "url")]);
    let changes = vec![int("port", 80), put("url", Value::text("base")), app];
    assert_eq!(change(&mut config, "base", changes), Ok((1, true)));
    for name in ["dev", "prod"] {
        assert_eq!(act(&mut config, &member(name), ConfigOperation::Create), Ok((1, true)));
        assert_eq!(inherit(&mut config, name, &["base"]), Ok((2, true)));
    }
    assert_eq!(change(&mut config, "prod", vec![put("url", Value::text("prod"))]), Ok((3, true)));
    config
}

#[test]
fn what_is_not_set_is_inherited_and_follows_the_parent() {
    let mut config = family();
    assert_eq!(shown(&config, "dev", "app").unwrap(), r#"{"port":80,"url":"base"}"#);
    assert_eq!(shown(&config, "prod", "app").unwrap(), r#"{"port":80,"url":"prod"}"#);
    assert_eq!(change(&mut config, "base", vec![int("port", 81)]), Ok((2, true)));
    assert_eq!(shown(&config, "dev", "app").unwrap(), r#"{"port":81,"url":"base"}"#);
    assert_eq!(shown(&config, "prod", "app").unwrap(), r#"{"port":81,"url":"prod"}"#);
    // Each has one revision for it, with the author of the change.
    let prod = &config.namespaces[&member("prod")];
    assert_eq!((prod.revision, prod.history.back().unwrap().stamp.author.as_ref()), (4, "ann"));
    assert_eq!(prod.history.back().unwrap().action, Action::Inherit { from: member("base"), revision: 2 });
    // What a namespace sets does not follow.
    assert_eq!(change(&mut config, "base", vec![put("url", Value::text("other"))]), Ok((3, true)));
    assert_eq!(config.namespaces[&member("prod")].revision, 4);
    assert_eq!(shown(&config, "prod", "app").unwrap(), r#"{"port":81,"url":"prod"}"#);
}

#[test]
fn a_deleted_override_shows_what_is_inherited() {
    let mut config = family();
    assert_eq!(change(&mut config, "prod", vec![delete_pair("url")]), Ok((4, true)));
    assert_eq!(shown(&config, "prod", "app").unwrap(), r#"{"port":80,"url":"base"}"#);
    let inherited = ConfigError::Inherited { item: Item::Pair("url".into()), from: member("base") };
    assert_eq!(change(&mut config, "prod", vec![delete_pair("url")]), Err(inherited));
    // A rollback restores what was set, and what was inherited stays inherited.
    let rollback = ConfigOperation::Rollback { to: 3, item: None };
    assert_eq!(act(&mut config, &member("prod"), rollback), Ok((5, true)));
    assert_eq!(shown(&config, "prod", "app").unwrap(), r#"{"port":80,"url":"prod"}"#);
    let sources = export(&config, "prod").pairs;
    assert_eq!(sources["port"].source.as_deref(), Some(&member("base")));
    assert_eq!(sources["url"].source, None);
}

#[test]
fn a_change_that_a_child_cannot_follow_changes_nothing() {
    let mut config = family();
    assert_eq!(change(&mut config, "prod", vec![container("own", vec![one("p", "port")])]), Ok((4, true)));
    let before = config.digest(0);
    let changes = vec![delete_container("app"), delete_pair("port"), delete_pair("url")];
    let error = ConfigError::PairInUse { pair: "port".into(), container: "own".into() };
    let error = ConfigError::InChild { namespace: member("prod"), error: error.into() };
    assert_eq!(change(&mut config, "base", changes), Err(error));
    assert_eq!(config.digest(0), before);
    let delete = ConfigOperation::Delete { force: true };
    assert_eq!(act(&mut config, &member("base"), delete), Err(ConfigError::HasChildren(member("dev"))));
}

#[test]
fn the_first_parent_gives_what_several_have_also_through_others() {
    let mut config = family();
    assert_eq!(change(&mut config, "eu", vec![int("port", 443), int("tax", 19)]), Ok((1, true)));
    assert_eq!(act(&mut config, &member("shop"), ConfigOperation::Create), Ok((1, true)));
    assert_eq!(inherit(&mut config, "shop", &["eu", "prod"]), Ok((2, true)));
    assert_eq!(shown(&config, "shop", "app").unwrap(), r#"{"port":443,"url":"prod"}"#);
    assert_eq!(inherit(&mut config, "shop", &["prod", "eu"]), Ok((3, true)));
    assert_eq!(shown(&config, "shop", "app").unwrap(), r#"{"port":80,"url":"prod"}"#);
    // A change of the grandparent arrives once.
    assert_eq!(change(&mut config, "base", vec![int("port", 82)]), Ok((2, true)));
    assert_eq!(config.namespaces[&member("shop")].revision, 4);
    assert_eq!(shown(&config, "shop", "app").unwrap(), r#"{"port":82,"url":"prod"}"#);
    assert_eq!(export(&config, "shop").pairs["port"].source.as_deref(), Some(&member("base")));
    let found = inheritance(&config, "prod");
    assert_eq!((found.parents, found.children), (vec![member("base")], vec![member("shop")]));
    assert_eq!(inherit(&mut config, "shop", &[]), Ok((5, true)));
    assert!(export(&config, "shop").pairs.is_empty());
    assert!(inheritance(&config, "prod").children.is_empty());
}

#[test]
fn impossible_parents_are_refused() {
    let mut config = family();
    let refused =
        |config: &mut Config, name: &str, parents: &[&str]| inherit(config, name, parents).unwrap_err();
    assert_eq!(refused(&mut config, "base", &["prod"]), ConfigError::ParentCycle(member("prod")));
    assert_eq!(refused(&mut config, "base", &["base"]), ConfigError::ParentCycle(member("base")));
    assert_eq!(refused(&mut config, "dev", &["prod", "prod"]), ConfigError::ParentCycle(member("prod")));
    assert_eq!(refused(&mut config, "dev", &["none"]), ConfigError::NoParent(member("none")));
    let parents = vec![name()];
    let elsewhere = act(&mut config, &member("dev"), ConfigOperation::SetParents { parents });
    assert_eq!(elsewhere, Err(ConfigError::ParentElsewhere(name())));
    let names: Vec<String> = (0..7).map(|number| alloc::format!("level{number}")).collect();
    for (position, level) in names.iter().enumerate() {
        assert_eq!(act(&mut config, &member(level), ConfigOperation::Create), Ok((1, true)));
        let above = if position == 0 { "prod" } else { &*names[position - 1] };
        let result = inherit(&mut config, level, &[above]);
        // `base` and `prod` are above the first.
        let is_deep = position + 3 > limits::CONFIG_INHERITANCE_DEPTH_MAX;
        assert_eq!(result == Err(ConfigError::InheritanceTooLarge), is_deep, "{position}: {result:?}");
    }
    for number in 0..limits::CONFIG_DESCENDANTS_MAX {
        let child = alloc::format!("child{number}");
        assert_eq!(act(&mut config, &member(&child), ConfigOperation::Create), Ok((1, true)));
        let result = inherit(&mut config, &child, &["dev"]);
        // Others inherit from `base`, too.
        let most = limits::CONFIG_DESCENDANTS_MAX - 2 - (limits::CONFIG_INHERITANCE_DEPTH_MAX - 2);
        assert_eq!(result.is_ok(), number < most, "{number}: {result:?}");
    }
}

/// Every namespace of a level inherits from all of the level above, so the number of paths is 8^7.
#[test]
fn many_paths_between_namespaces_cost_no_more_than_their_number() {
    let mut config = Config::default();
    let level = |number: usize| (0..8).map(move |position| alloc::format!("{number}-{position}"));
    for number in 0..limits::CONFIG_INHERITANCE_DEPTH_MAX {
        for name in level(number) {
            assert_eq!(act(&mut config, &member(&name), ConfigOperation::Create), Ok((1, true)));
            let parents: Vec<String> = if number == 0 { Vec::new() } else { level(number - 1).collect() };
            let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
            assert!(inherit(&mut config, &name, &parents).is_ok(), "{name}");
        }
    }
    assert_eq!(change(&mut config, "0-0", vec![int("p", 1)]), Ok((2, true)));
    assert_eq!(export(&config, "7-7").pairs["p"].source.as_deref(), Some(&member("0-0")));
}

#[test]
fn watchers_of_a_child_receive_a_change_of_the_parent_once() {
    let mut config = family();
    config.take_updates();
    assert_eq!(change(&mut config, "base", vec![int("port", 81)]), Ok((2, true)));
    let told: Vec<Name> = config.take_updates().into_iter().map(|update| update.namespace).collect();
    assert_eq!(told, [member("base"), member("dev"), member("prod")]);
    let query = Query::NamespaceChanges { after: Some(WatchPosition::through(3)) };
    let Ok(ConfigReply::NamespaceChanges(changes)) = read(&config, "prod", query) else { panic!() };
    let expected = Some(String::from(r#"{"port":81,"url":"prod"}"#));
    assert_eq!(named(&changes.events), [(4, "app", expected)]);
}

#[test]
fn a_snapshot_keeps_relations_and_sources() {
    let config = family();
    let mut restored = Config::default();
    blocks(&config).iter().for_each(|block| restored.take_block(block).expect("a block"));
    assert_eq!(restored.digest(0), config.digest(0));
    assert_eq!(change(&mut restored, "base", vec![int("port", 81)]), Ok((2, true)));
    assert_eq!(shown(&restored, "prod", "app").unwrap(), r#"{"port":81,"url":"prod"}"#);
}

/// Every namespace equals what its own content and its parents give, after random changes.
#[test]
fn random_changes_of_a_family_agree_with_a_computation_from_scratch() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut config = Config::default();
        for step in 0..150 {
            let name = NAMES[random.usize(..4)];
            let before = config.digest(0);
            let operation = match random.u8(..10) {
                0 => ConfigOperation::Create,
                1 | 2 => {
                    let mut parents: Vec<Name> = NAMES.iter().map(|name| member(name)).collect();
                    random.shuffle(&mut parents);
                    parents.truncate(random.usize(..3));
                    ConfigOperation::SetParents { parents }
                }
                3 => ConfigOperation::Rollback { to: random.u64(1..6), item: None },
                _ => {
                    let key = alloc::format!("p{}", random.u8(..3));
                    let change = match random.u8(..8) {
                        0 => delete_pair(&key),
                        1 => container("c", vec![one("f", &key)]),
                        2 => delete_container("c"),
                        _ => int(&key, random.i64(..5)),
                    };
                    ConfigOperation::Publish { changes: vec![change], create: random.bool() }
                }
            };
            let preview = Query::Preview(
                crate::command::config::Preview { expected: None, operation: operation.clone() }.into(),
            );
            let preview = read(&config, name, preview);
            let result = act(&mut config, &member(name), operation);
            if result.is_err() {
                assert_eq!(config.digest(0), before, "seed {seed}, step {step}: {result:?} left a trace");
                assert_eq!(preview.err(), result.err(), "seed {seed}, step {step}");
            }
            judge(&config, &NAMES.map(member), (seed, step));
        }
    }
}

fn judge(config: &Config, names: &[Name], at: (u64, u32)) {
    for name in names {
        let Some(namespace) = config.namespaces.get(name) else { continue };
        for (key, pair) in &namespace.contents.pairs {
            let inherited = namespace.parents.iter().find_map(|parent| {
                let held = config.namespaces[&**parent].contents.pairs.get(key)?;
                Some((held.value.clone(), held.source.clone().unwrap_or_else(|| parent.clone())))
            });
            if let Some(source) = &pair.source {
                assert_eq!(Some((pair.value.clone(), source.clone())), inherited, "{name} {key} at {at:?}");
            }
        }
        for parent in &namespace.parents {
            let held = &config.namespaces[&**parent].contents;
            assert!(held.pairs.keys().all(|key| namespace.contents.pairs.contains_key(key)), "{at:?}");
            assert!(held.containers.keys().all(|key| namespace.contents.containers.contains_key(key)));
            assert!(config.children[&**parent].contains(name));
        }
    }
}

/// A secret is sealed for the namespace that sets it, so no other namespace may hold it as its own.
#[test]
fn an_inherited_secret_stays_inherited() {
    let mut config = family();
    assert_eq!(change(&mut config, "base", vec![put("password", secrets::sealed(1))]), Ok((2, true)));
    let mask = || put("password", Value::text(crate::command::config::SECRET_MASK));
    assert_eq!(change(&mut config, "prod", vec![mask()]), Ok((4, false)));
    let keep = Change::KeepSecret { key: "password".into() };
    assert_eq!(change(&mut config, "prod", vec![keep]), Ok((4, false)));
    let item = Item::Pair("password".into());
    let inherited = Err(ConfigError::Inherited { item: item.clone(), from: member("base") });
    let schema = Change::SetSchema { item, schema: None };
    assert_eq!(change(&mut config, "prod", vec![schema]), inherited);
    assert_eq!(change(&mut config, "prod", vec![put("password", secrets::sealed(2))]), Ok((5, true)));
    assert_eq!(export(&config, "prod").pairs["password"].source, None);
}
