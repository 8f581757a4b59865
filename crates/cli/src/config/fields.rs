//! The fields of containers: as users type them, and edits that leave the other fields as they are.
//!
//! An edit reads the container and writes all of its fields, on the condition that the namespace is
//! still at the revision that was read. So no change of somebody else is lost.

use std::collections::BTreeMap;

use tidelock_api::config::{Container, ContainerContent, FieldContent, Key, Namespace, Pair, Refers};
use tidelock_client::http::Method;
use tidelock_client::{Call, CliError};

use super::{Session, Target, data, encode, show};
use crate::args::{ContainerEditArgs, TermsArgs};

/// Sets and removes fields of a container.
pub(super) fn edit(session: &Session, args: &ContainerEditArgs) -> Result<(), CliError> {
    let ContainerEditArgs { namespace, key, fields, remove, retype, terms } = args;
    let set: Vec<FieldContent> = fields.iter().map(|field| parse(field)).collect::<Result<_, _>>()?;
    let get = |target: Target| session.client.ask(&Call::get(target.into_text()));
    let read: Namespace = data(&get(Target::of(&[namespace]))?)?;
    let container: Container = data(&get(Target::of(&[namespace, "containers", key]))?)?;
    let parent = container.inherited_from.clone();
    let content = ContainerContent { fields: edited(container, set, remove)?, schema: None };
    let terms = TermsArgs { expected: terms.expected.or(Some(read.revision)), ..terms.clone() };
    let target = Target::of(&[namespace, "containers", key]).with_terms(&terms);
    let target = target.with("retype", retype.then_some(true)).reporting_effects_in(namespace);
    session.change(Method::POST, target, &encode(&content))?;
    if let Some(parent) = parent {
        let (namespace, parent) = (show::name(namespace), show::name(&parent));
        eprintln!("note: {namespace} has fields of its own now, instead of those of {parent}");
    }
    Ok(())
}

/// All fields of a container after an edit. A field that is set takes the place of the one with its
/// key.
fn edited(
    container: Container,
    set: Vec<FieldContent>,
    remove: &[String],
) -> Result<Vec<FieldContent>, CliError> {
    let mut fields = BTreeMap::new();
    for field in container.fields {
        let value = keys_of(field.value).ok_or_else(|| {
            CliError::Usage(format!("field {:?} refers to a pair that is not restored yet", field.key))
        })?;
        fields.insert(
            field.key.clone(),
            FieldContent { key: Key(field.key), field_type: field.field_type, value },
        );
    }
    for key in remove {
        if fields.remove(key).is_none() {
            let has: Vec<&str> = fields.keys().map(String::as_str).collect();
            return Err(CliError::Usage(format!(
                "there is no field {key:?} to remove; the others are {}",
                has.join(", ")
            )));
        }
    }
    fields.extend(set.into_iter().map(|field| (field.key.0.clone(), field)));
    Ok(fields.into_values().collect())
}

/// The keys of the pairs that a field refers to; `None` if one of the pairs is missing.
fn keys_of(pairs: Refers<Option<Pair>>) -> Option<Refers<Key>> {
    Some(match pairs {
        Refers::One(pair) => Refers::One(Key(pair?.key)),
        Refers::List(pairs) => {
            Refers::List(pairs.into_iter().map(|pair| Some(Key(pair?.key))).collect::<Option<_>>()?)
        }
        Refers::Dict(pairs) => {
            let named = pairs.into_iter().map(|(name, pairs)| Some((name, keys_of(pairs)?)));
            Refers::Dict(named.collect::<Option<_>>()?)
        }
    })
}

/// `KEY=PAIR`, `KEY=PAIR,PAIR` or `KEY=NAME:PAIR,NAME:PAIR`, or JSON of any of these.
pub(super) fn parse(field: &str) -> Result<FieldContent, CliError> {
    let Some((key, refers)) = field.split_once('=') else {
        return Err(CliError::Usage(format!("{field:?} is no field: write KEY=PAIR")));
    };
    if refers.starts_with(['{', '[']) {
        let value: Refers<Key> = serde_json::from_str(refers).map_err(|error| {
            CliError::Usage(format!("{field:?} is no field: in JSON it is {{\"name\":\"PAIR\"}}: {error}"))
        })?;
        let field_type = if matches!(value, Refers::List(_)) { 2 } else { 3 };
        return Ok(FieldContent { key: pair_key(key), field_type, value });
    }
    let parts: Vec<&str> = refers.split(',').filter(|part| !part.is_empty()).collect();
    let named =
        |part: &&str| part.split_once(':').map(|(name, pair)| (name.to_owned(), Refers::One(pair_key(pair))));
    let named: Option<BTreeMap<String, Refers<Key>>> = parts.iter().map(named).collect();
    let (field_type, value) = match named {
        Some(named) if !parts.is_empty() => (3, Refers::Dict(named)),
        _ if refers.contains(',') => (2, Refers::List(parts.into_iter().map(pair_key).collect())),
        _ => (1, Refers::One(pair_key(refers))),
    };
    Ok(FieldContent { key: pair_key(key), field_type, value })
}

fn pair_key(text: &str) -> Key {
    Key(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_refer_to_one_a_list_or_a_dict() {
        let parsed = |field| parse(field).map(|field| encode(&field)).ok();
        for (field, body) in [
            ("a=p", r#"{"key":"a","fieldType":1,"value":"p"}"#),
            ("a=p,q", r#"{"key":"a","fieldType":2,"value":["p","q"]}"#),
            ("a=p,", r#"{"key":"a","fieldType":2,"value":["p"]}"#),
            ("a=,", r#"{"key":"a","fieldType":2,"value":[]}"#),
            ("a=x:p,y:q", r#"{"key":"a","fieldType":3,"value":{"x":"p","y":"q"}}"#),
        ] {
            assert_eq!(parsed(field).as_deref(), Some(body.as_bytes()));
        }
        assert_eq!(parsed("a"), None);
    }

    #[test]
    fn an_edit_leaves_the_other_fields_as_they_are() {
        let container = || -> Container {
            let pair = |key: &str| format!(r#"{{"key":"{key}","value":1,"datatype":1,"namespace":"n"}}"#);
            let text = format!(
                r#"{{"key":"c","namespace":"n","checkSum":"","fields":[
                    {{"key":"a","fieldType":1,"value":{}}},
                    {{"key":"b","fieldType":2,"value":[{}]}},
                    {{"key":"c","fieldType":3,"value":{{"x":{{"y":{}}}}}}}]}}"#,
                pair("p"),
                pair("q"),
                pair("r")
            );
            serde_json::from_str(&text).expect("a container")
        };
        let after = |set: &[&str], remove: &[&str]| {
            let set = set.iter().map(|field| parse(field).expect("a field")).collect();
            let remove: Vec<String> = remove.iter().map(|&key| key.to_owned()).collect();
            edited(container(), set, &remove).map(|fields| String::from_utf8(encode(&fields)).expect("JSON"))
        };
        let (a, b) =
            (r#"{"key":"a","fieldType":1,"value":"p"}"#, r#"{"key":"b","fieldType":2,"value":["q"]}"#);
        let c = r#"{"key":"c","fieldType":3,"value":{"x":{"y":"r"}}}"#;
        let d = r#"{"key":"d","fieldType":1,"value":"s"}"#;
        assert_eq!(after(&["d=s"], &[]).ok(), Some(format!("[{a},{b},{c},{d}]")));
        let changed = r#"{"key":"a","fieldType":1,"value":"s"}"#;
        assert_eq!(after(&["a=s"], &["b"]).ok(), Some(format!("[{changed},{c}]")));
        let unknown = after(&[], &["z"]).expect_err("there is no such field").to_string();
        assert!(unknown.contains("\"z\"") && unknown.contains("a, b, c"), "{unknown}");
    }
}
