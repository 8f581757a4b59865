//! Each keyword with what it allows and refuses, and schemas that are refused themselves.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::*;

fn text(text: &str) -> Value {
    Value::text(text)
}

fn float(number: f64) -> Value {
    Value::float(number).expect("finite")
}

fn list(items: &[Value]) -> Value {
    Value::List(items.to_vec())
}

fn dict(entries: &[(&str, Value)]) -> Value {
    Value::Dict(entries.iter().map(|(key, value)| ((*key).into(), value.clone())).collect())
}

fn schema(keywords: &[(&str, Value)]) -> Schema {
    Schema::new(dict(keywords)).expect("a schema")
}

/// The path and the rule that a value violates; `None` if it has the schema.
fn violated(schema: &Schema, value: &Value) -> Option<(String, String)> {
    match SchemaChecker::default().check(schema, value) {
        Ok(()) => None,
        Err(CheckError::Violated { path, rule }) => Some((path, rule)),
        Err(CheckError::TooMuchWork) => panic!("too much work"),
    }
}

fn of_type(name: &str) -> Value {
    dict(&[("type", text(name))])
}

/// A keyword with its value, values that have the schema, and values that have it not.
type Row = (&'static str, Value, Vec<Value>, Vec<Value>);

fn rows() -> Vec<Row> {
    let one = Value::Int(1);
    let several = list(&[of_type("string"), dict(&[("minimum", Value::Int(5))])]);
    vec![
        ("type", text("integer"), vec![one.clone(), float(2.0), float(1e300)], vec![float(1.5), text("1")]),
        ("type", text("number"), vec![one.clone(), float(1.5)], vec![text("1"), Value::Bool(true)]),
        ("type", text("string"), vec![text("")], vec![one.clone(), Value::Empty]),
        ("type", text("boolean"), vec![Value::Bool(false)], vec![one.clone()]),
        ("type", text("null"), vec![Value::Empty], vec![text("null")]),
        ("type", text("array"), vec![list(&[])], vec![dict(&[])]),
        ("type", text("object"), vec![dict(&[])], vec![list(&[])]),
        ("type", list(&[text("string"), text("null")]), vec![text("a"), Value::Empty], vec![one.clone()]),
        (
            "enum",
            list(&[text("a"), one.clone()]),
            vec![text("a"), float(1.0)],
            vec![text("b"), Value::Int(2)],
        ),
        ("const", list(std::slice::from_ref(&one)), vec![list(&[float(1.0)])], vec![one.clone(), list(&[])]),
        (
            "minimum",
            Value::Int(3),
            vec![Value::Int(3), float(3.0), text("")],
            vec![Value::Int(2), float(2.9)],
        ),
        ("maximum", float(2.5), vec![Value::Int(2), float(2.5)], vec![Value::Int(3), float(2.6)]),
        ("exclusiveMinimum", Value::Int(3), vec![float(3.1)], vec![Value::Int(3), float(3.0)]),
        ("exclusiveMaximum", Value::Int(3), vec![float(2.9)], vec![Value::Int(3), float(3.0)]),
        (
            "multipleOf",
            Value::Int(5),
            vec![Value::Int(-10), float(15.0), text("1")],
            vec![Value::Int(7), float(5.5)],
        ),
        ("minLength", Value::Int(2), vec![text("ää"), one.clone()], vec![text("ä")]),
        ("maxLength", Value::Int(2), vec![text("ää")], vec![text("äää")]),
        ("format", text("duration"), vec![text("1h30m"), one.clone()], vec![text("30"), text("")]),
        ("format", text("bytes"), vec![text("10MiB")], vec![text("10"), text("MiB")]),
        ("minItems", one.clone(), vec![list(std::slice::from_ref(&one)), one.clone()], vec![list(&[])]),
        ("maxItems", Value::Int(0), vec![list(&[])], vec![list(std::slice::from_ref(&one))]),
        (
            "uniqueItems",
            Value::Bool(true),
            vec![list(&[one.clone(), text("1")])],
            vec![list(&[one.clone(), float(1.0)])],
        ),
        ("uniqueItems", Value::Bool(false), vec![list(&[one.clone(), one.clone()])], vec![]),
        (
            "items",
            of_type("string"),
            vec![list(&[text("a")]), one.clone()],
            vec![list(&[text("a"), one.clone()])],
        ),
        ("required", list(&[text("a")]), vec![dict(&[("a", one.clone())]), one.clone()], vec![dict(&[])]),
        (
            "properties",
            dict(&[("a", of_type("string"))]),
            vec![dict(&[("b", one.clone())])],
            vec![dict(&[("a", one.clone())])],
        ),
        ("additionalProperties", Value::Bool(false), vec![dict(&[])], vec![dict(&[("a", one.clone())])]),
        ("minProperties", one.clone(), vec![dict(&[("a", one.clone())])], vec![dict(&[])]),
        ("maxProperties", Value::Int(0), vec![dict(&[])], vec![dict(&[("a", one.clone())])]),
        ("anyOf", several.clone(), vec![text("a"), Value::Int(5)], vec![Value::Int(4)]),
        ("allOf", several.clone(), vec![text("a")], vec![Value::Int(5), Value::Int(4)]),
        ("oneOf", several, vec![Value::Int(5)], vec![text("a"), Value::Int(4)]),
        ("not", of_type("string"), vec![one.clone()], vec![text("a")]),
        ("title", text("t"), vec![one.clone()], vec![]),
        ("description", text("d"), vec![one.clone()], vec![]),
        ("default", Value::Empty, vec![one.clone()], vec![]),
    ]
}

#[test]
fn each_keyword_allows_and_refuses() {
    for (keyword, value, allowed, refused) in rows() {
        let schema = schema(&[(keyword, value)]);
        for value in allowed {
            assert_eq!(violated(&schema, &value), None, "{keyword}: {}", value.to_json());
        }
        for value in refused {
            assert!(violated(&schema, &value).is_some(), "{keyword}: {}", value.to_json());
        }
        let mut bytes = Vec::new();
        schema.encode(&mut bytes);
        assert_eq!(Schema::decode(&mut Decoder::new(&bytes)), Ok(schema));
    }
}

#[test]
fn a_violation_names_the_path_and_the_rule() {
    let port = dict(&[("maximum", Value::Int(65_535))]);
    let ports = dict(&[("items", port)]);
    let server = dict(&[("properties", dict(&[("ports", ports)])), ("required", list(&[text("ports")]))]);
    let schema =
        schema(&[("properties", dict(&[("server", server)])), ("additionalProperties", Value::Bool(false))]);
    let with = |server: Value| dict(&[("server", server)]);
    let wrong = with(dict(&[("ports", list(&[Value::Int(80), Value::Int(70_000)]))]));
    let expected = |path: &str, rule: &str| Some((path.to_string(), rule.to_string()));
    assert_eq!(violated(&schema, &wrong), expected("server.ports[1]", "maximum 65535"));
    assert_eq!(violated(&schema, &with(dict(&[]))), expected("server", "required \"ports\""));
    let other = dict(&[("other", Value::Int(1))]);
    assert_eq!(violated(&schema, &other), expected("other", "false, nothing is allowed here"));
    let scalar = Schema::new(of_type("integer")).expect("a schema");
    assert_eq!(violated(&scalar, &text("x")), expected("", "type integer"));
}

#[test]
fn a_refused_alternative_leaves_no_path() {
    let inner = dict(&[("properties", dict(&[("a", of_type("string"))]))]);
    let schema = schema(&[
        ("anyOf", list(&[inner, dict(&[("maxProperties", Value::Int(9))])])),
        ("properties", dict(&[("b", of_type("string"))])),
    ]);
    let value = dict(&[("a", Value::Int(1)), ("b", Value::Int(2))]);
    assert_eq!(violated(&schema, &value), Some(("b".into(), "type string".into())));
}

#[test]
fn numbers_are_compared_exactly() {
    // These integers are equal as floats.
    let max = schema(&[("maximum", Value::Int(9_007_199_254_740_992))]);
    assert!(violated(&max, &Value::Int(9_007_199_254_740_993)).is_some());
    let max = schema(&[("maximum", float(9_007_199_254_740_992.0))]);
    assert!(violated(&max, &Value::Int(9_007_199_254_740_993)).is_some());
    let min = schema(&[("minimum", Value::Int(i64::MAX))]);
    assert_eq!(violated(&min, &float(9_223_372_036_854_775_808.0)), None);
    assert!(violated(&min, &float(-1e300)).is_some());
    let min = schema(&[("minimum", float(-2.5))]);
    assert_eq!((violated(&min, &Value::Int(-2)), violated(&min, &Value::Int(-3)).is_some()), (None, true));
}

#[test]
fn what_would_not_be_checked_is_refused() {
    for (keyword, value, reason) in [
        ("pattern", text("^a"), "pattern: this keyword is not known, and would not be checked"),
        ("$ref", text("#/a"), "$ref: this keyword is not known, and would not be checked"),
        (
            "type",
            text("int"),
            "type: there is no type \"int\": they are null, boolean, integer, number, string, array, object",
        ),
        ("type", list(&[]), "type: it is a string"),
        ("format", text("date"), "format: there is no format \"date\": they are duration and bytes"),
        ("minimum", text("1"), "minimum: it is a number"),
        ("multipleOf", Value::Int(0), "multipleOf: it is a whole number above 0"),
        ("multipleOf", float(0.5), "multipleOf: it is a whole number above 0"),
        ("minLength", Value::Int(-1), "minLength: it is a whole number, 0 or more"),
        ("uniqueItems", Value::Int(1), "uniqueItems: it is true or false"),
        ("enum", text("a"), "enum: it is a list"),
        ("required", list(&[Value::Int(1)]), "required: it is a string"),
        ("anyOf", list(&[]), "anyOf: it names at least one schema"),
        (
            "anyOf",
            list(&[of_type("string"), Value::Int(1)]),
            "anyOf/1: a schema is a dict, true or false, not int",
        ),
        ("items", dict(&[("minimum", text("1"))]), "items/minimum: it is a number"),
        (
            "properties",
            dict(&[("a", dict(&[("x", text("1"))]))]),
            "properties/a/x: this keyword is not known, and would not be checked",
        ),
        ("properties", list(&[]), "properties: it is a dict of schemas"),
        ("title", Value::Int(1), "title: it is a string"),
    ] {
        let error = Schema::new(dict(&[(keyword, value)])).expect_err(keyword);
        assert_eq!(error.to_string(), reason);
    }
    let error = Schema::new(Value::Int(1)).expect_err("no schema");
    assert_eq!(error.to_string(), "the schema: a schema is a dict, true or false, not int");
}

#[test]
fn schemas_and_their_checks_are_bounded() {
    let nested = |levels: usize| (0..levels).fold(Value::Bool(true), |inner, _| dict(&[("not", inner)]));
    let deepest = Schema::new(nested(limits::CONFIG_SCHEMA_DEPTH_MAX)).expect("a schema");
    let mut bytes = Vec::new();
    deepest.encode(&mut bytes);
    assert_eq!(Schema::decode(&mut Decoder::new(&bytes)), Ok(deepest));
    let error = Schema::new(nested(limits::CONFIG_SCHEMA_DEPTH_MAX + 1)).expect_err("too deep");
    assert_eq!(error, SchemaError::too_deep());
    let long = text(&"x".repeat(limits::CONFIG_SCHEMA_BYTES_MAX));
    assert_eq!(Schema::new(dict(&[("title", long)])), Err(SchemaError::too_long()));

    // A hundred alternatives, each of which looks at every item.
    let alternatives = vec![dict(&[("items", of_type("string"))]); 100];
    let schema = schema(&[("oneOf", Value::List(alternatives))]);
    let items = Value::List(vec![text("a"); 20_000]);
    let mut checker = SchemaChecker::default();
    let result = (0..10).try_for_each(|_| {
        checker.check(&schema, &items).or_else(|error| match error {
            CheckError::Violated { .. } => Ok(()),
            CheckError::TooMuchWork => Err(error),
        })
    });
    assert_eq!(result, Err(CheckError::TooMuchWork));
}

#[test]
fn texts_of_durations_and_sizes() {
    for duration in ["30s", "1h30m", "500ms", "1d2h3m4s5ms6us7ns", "0s", "106751d"] {
        assert!(is_duration(duration), "{duration}");
    }
    for other in [
        "",
        "30",
        "s",
        "30 s",
        "-1s",
        "1.5h",
        "1m1h",
        "1s1s",
        "1w",
        "30S",
        "106752d",
        "99999999999999999999s",
        "1hx",
    ] {
        assert!(!is_duration(other), "{other}");
    }
    for size in ["0B", "512B", "10KB", "10MiB", "1PB", "8191PiB"] {
        assert!(is_bytes(size), "{size}");
    }
    for other in ["", "10", "MiB", "10 MiB", "-1B", "1.5GiB", "10mib", "10M", "8192PiB", "1MiB1B", "1EB"] {
        assert!(!is_bytes(other), "{other}");
    }
}
