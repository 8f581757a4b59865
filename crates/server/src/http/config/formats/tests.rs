//! Round trips through every format that is read, and refusals of what a format cannot represent.

use std::sync::Arc;

use proptest::prelude::*;

use super::properties::text_of;
use super::*;

/// Text with everything that some format must escape.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~]{0,12}",
        "[\\t\\n\\r\\x00-\\x1f\\x7f-\\xa0 ü\u{2028}\u{feff}😀'\"\\\\:#=!-]{0,8}",
        Just("true".to_owned()),
        Just("null".to_owned()),
        Just("~".to_owned()),
        Just("yes".to_owned()),
        Just("0x1f".to_owned()),
        Just("1_000".to_owned()),
        Just("12:30:45".to_owned()),
        Just("2026-11-21".to_owned()),
        Just(".inf".to_owned()),
        Just("-1.5e3".to_owned()),
        Just("007".to_owned()),
        Just("a\n  b\n\n".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
    ]
}

fn key() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![
        4 => "[a-z]{1,6}",
        1 => "[a-z.\\[\\]0-9]{1,6}",
        1 => text().prop_filter("a key", |text| !text.is_empty() && text.chars().count() < 60),
    ]
    .prop_map(Arc::from)
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_filter_map("finite", Value::float),
        (-1000i32..1000).prop_filter_map("finite", |number| Value::float(f64::from(number))),
        text().prop_map(|text| Value::text(&text)),
        any::<bool>().prop_map(Value::Bool),
    ]
}

/// A value of a pair.
fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4).prop_map(|items| {
            let first = items.first().map(Value::datatype);
            Value::List(items.into_iter().filter(|item| Some(item.datatype()) == first).collect())
        });
        prop_oneof![list, prop::collection::btree_map(key(), inner, 0..4).prop_map(Value::Dict)]
    })
}

/// What a container resolves to: a list or a dict of pairs may mix datatypes and contain null.
fn document() -> impl Strategy<Value = Value> {
    let field = prop_oneof![
        value(),
        prop::collection::vec(value(), 0..4).prop_map(Value::List),
        prop::collection::btree_map(key(), value(), 0..4).prop_map(Value::Dict),
    ];
    prop::collection::btree_map(key(), field, 0..5).prop_map(Value::Dict)
}

fn read(format: Format, file: &str) -> Result<Document, ApiError> {
    format.read(file, 1_000)
}

fn round_trips(format: Format, document: &Value) -> Result<(), TestCaseError> {
    let file = format.write(document).map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
    let read = read(format, &file).map_err(|error| TestCaseError::fail(format!("{error:?}\n{file}")))?;
    prop_assert_eq!(&read.value, document, "{}", file);
    prop_assert_eq!(read.notes.into_lines(), Vec::<String>::new(), "{}", file);
    Ok(())
}

/// Text that some format might not read as text: numbers in all notations, words, and near misses.
fn lookalike() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[+-]?[0-9_]{0,6}(\\.[0-9]{0,4})?([eE][+-]?[0-9]{0,3})?",
        1 => "[+-]?0[xXoObB][0-9a-fA-F]{0,4}",
        1 => "[+-]?\\.?(inf|Inf|INF|nan|NaN|infinity)",
        1 => "(true|True|TRUE|false|yes|No|on|off|y|n|null|Null|NULL|~|)",
        1 => any::<u128>().prop_map(|number| number.to_string()),
        1 => "[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?",
    ]
}

fn has_list_in_list(value: &Value) -> bool {
    match value {
        Value::List(items) => {
            items.iter().any(|item| matches!(item, Value::List(_)) || has_list_in_list(item))
        }
        Value::Dict(entries) => entries.values().any(has_list_in_list),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn json_round_trips(document in document()) {
        round_trips(Format::Json, &document)?;
    }

    #[test]
    fn yaml_round_trips(document in document()) {
        round_trips(Format::Yaml, &document)?;
    }

    #[test]
    fn toml_round_trips(document in document()) {
        round_trips(Format::Toml, &document)?;
    }

    #[test]
    fn properties_round_trip(document in document()) {
        if has_list_in_list(&document) {
            prop_assert!(Format::Properties.write(&document).is_err());
        } else {
            round_trips(Format::Properties, &document)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    /// In properties all is text: values are shown as they were written, in lists and dicts, too.
    #[test]
    fn properties_show_what_was_written(text in lookalike()) {
        let file = format!("a={text}\nl[0]={text}\nd.k[0].x={text}\n");
        let read = read(Format::Properties, &file).map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
        let mut shown = vec![];
        for (_, value) in properties::flatten(&read.value).unwrap() {
            shown.push(text_of(value));
        }
        prop_assert_eq!(shown, vec![text.clone(), text.clone(), text]);
    }

    /// In a format with types a plain scalar is refused, shown as it was written, or noted as a
    /// number that is shown differently. Other readers of the format read the same number.
    #[test]
    fn typed_formats_say_what_they_show_otherwise(text in lookalike()) {
        for (format, file) in [
            (Format::Yaml, format!("a: {text}\n")),
            (Format::Toml, format!("a = {text}\n")),
            (Format::Json, format!("{{\"a\": {text}}}\n")),
        ] {
            let Ok(read) = read(format, &file) else { continue };
            let Value::Dict(entries) = &read.value else { unreachable!() };
            let value = &entries["a"];
            let is_word = matches!(value, Value::Empty | Value::Bool(_));
            let is_number = matches!(value, Value::Int(_) | Value::Float(_));
            let is_same = text_of(value) == text;
            let notes = read.notes.into_lines();
            // Exponents as programs write them, and all digits of a float, are not noted.
            let is_noted = is_number && !is_same && !(text.contains('e') && text.contains(['+', '-', '.']));
            prop_assert!(notes.len() == 1 || !is_noted || text_is_in_full(&text, value), "{notes:?}: {file}");
            prop_assert!(notes.is_empty() || (is_number && !is_same), "{notes:?}: {file}");
            prop_assert!(is_word || is_same || is_number, "{value:?} of {file}");
            if let (Value::Float(number), Format::Yaml) = (value, format) {
                prop_assert_eq!(Ok(number.get()), text.parse::<f64>());
            }
        }
    }
}

fn text_is_in_full(text: &str, value: &Value) -> bool {
    matches!(value, Value::Float(number) if format!("{:.1}", number.get()) == text || number.get().to_string() == text)
}

fn of_json(json: &str) -> Value {
    read(Format::Json, json).unwrap().value
}

/// Every text in every format, and the JSON of the value that it is read as; `!` if it is refused;
/// `*` if there is a note.
#[test]
fn texts_become_numbers_only_by_the_rules_of_their_format() {
    // Text, properties, YAML, TOML, JSON.
    for (text, expected) in [
        ("30", ["30", "30", "30", "30"]),
        ("-7", ["-7", "-7", "-7", "-7"]),
        ("1.5", ["1.5", "1.5", "1.5", "1.5"]),
        ("1.0", ["1.0", "1.0", "1.0", "1.0"]),
        ("1.10", ["\"1.10\"", "1.1*", "1.1*", "1.1*"]),
        ("7e4", ["\"7e4\"", "70000.0*", "70000.0*", "70000.0*"]),
        ("1e10", ["\"1e10\"", "10000000000.0*", "10000000000.0*", "10000000000.0*"]),
        ("1E5", ["\"1E5\"", "100000.0*", "100000.0*", "100000.0*"]),
        ("1e300", ["1e300", "1e300", "1e300", "1e300"]),
        ("1e999", ["\"1e999\"", "!", "!", "!"]),
        ("01234", ["\"01234\"", "\"01234\"", "!", "!"]),
        ("0777", ["\"0777\"", "\"0777\"", "!", "!"]),
        ("-007", ["\"-007\"", "\"-007\"", "!", "!"]),
        ("00.5", ["\"00.5\"", "\"00.5\"", "!", "!"]),
        ("01e2", ["\"01e2\"", "\"01e2\"", "!", "!"]),
        ("00", ["\"00\"", "\"00\"", "!", "!"]),
        ("0", ["0", "0", "0", "0"]),
        ("0.50", ["\"0.50\"", "0.5*", "0.5*", "0.5*"]),
        ("-0", ["\"-0\"", "0*", "0*", "-0.0*"]),
        ("-0.0", ["-0.0", "-0.0", "-0.0", "-0.0"]),
        ("+5", ["\"+5\"", "5*", "5*", "!"]),
        (".5", ["\".5\"", "0.5*", "!", "!"]),
        ("5.", ["\"5.\"", "5.0*", "!", "!"]),
        ("0x1F", ["\"0x1F\"", "31*", "31*", "!"]),
        ("0o17", ["\"0o17\"", "15*", "15*", "!"]),
        ("0b11", ["\"0b11\"", "\"0b11\"", "3*", "!"]),
        ("1_000", ["\"1_000\"", "\"1_000\"", "1000*", "!"]),
        ("12:30:45", ["\"12:30:45\"", "\"12:30:45\"", "!", "!"]),
        ("2026-11-21", ["\"2026-11-21\"", "\"2026-11-21\"", "!", "!"]),
        ("1.2.3", ["\"1.2.3\"", "\"1.2.3\"", "!", "!"]),
        ("9223372036854775807", ["9223372036854775807"; 4]),
        ("9223372036854775808", ["\"9223372036854775808\"", "!", "!", "!"]),
        ("123456789012345678901234567890", ["\"123456789012345678901234567890\"", "!", "!", "!"]),
        ("true", ["true", "true", "true", "true"]),
        ("True", ["\"True\"", "true", "!", "!"]),
        ("yes", ["\"yes\"", "\"yes\"", "!", "!"]),
        ("no", ["\"no\"", "\"no\"", "!", "!"]),
        ("on", ["\"on\"", "\"on\"", "!", "!"]),
        ("null", ["\"null\"", "null", "!", "null"]),
        ("~", ["\"~\"", "null", "!", "!"]),
        (".inf", ["\".inf\"", "!", "!", "!"]),
        ("nan", ["\"nan\"", "\"nan\"", "!", "!"]),
    ] {
        let [properties, yaml, toml, json] = expected;
        for (format, nested, expected) in [
            (Format::Properties, "a=T\nd.k=T\nl[0]=T\nl[1]=T\n", properties),
            (Format::Yaml, "a: T\nd:\n  k: T\nl: [T, T]\n", yaml),
            (Format::Toml, "a = T\nd = {k = T}\nl = [T, T]\n", toml),
            (Format::Json, "{\"a\":T,\"d\":{\"k\": T},\"l\":[T,\nT]}", json),
        ] {
            let shown = match read(format, &nested.replace('T', text)) {
                Err(_) => "!".to_owned(),
                Ok(Document { value, notes }) => {
                    let (plain, star) = match expected.strip_suffix('*') {
                        Some(plain) => (plain, "*"),
                        None => (expected, ""),
                    };
                    let everywhere = format!(r#"{{"a":{plain},"d":{{"k":{plain}}},"l":[{plain},{plain}]}}"#);
                    assert_eq!(value.to_json(), everywhere, "{format:?}: {text}");
                    let notes = notes.into_lines();
                    assert_eq!(notes.len(), 4 * star.len(), "{format:?}: {text}: {notes:?}");
                    expected.to_owned()
                }
            };
            assert_eq!(shown, expected, "{format:?}: {text}");
        }
    }
}

#[test]
fn notes_name_the_line_and_are_counted_beyond_a_bound() {
    let notes = |format: Format, file: &str| read(format, file).unwrap().notes.into_lines();
    let expected = "line 3: 1.10 was read as the float 1.1; put it in quotes to keep the text";
    assert_eq!(notes(Format::Yaml, "a: ü\n# 1.20\nv: 1.10\ns: \"1.30\"\n"), [expected]);
    assert_eq!(notes(Format::Toml, "a = \"ü\"\n# 1.20\nv = 1.10\ns = \"1.30\"\n"), [expected]);
    assert_eq!(notes(Format::Json, "{\"a\":\"ü \\\" 1.20\",\n\n\"v\": 1.10}"), [expected]);
    // The value of an anchor was written where it is defined.
    assert_eq!(notes(Format::Yaml, "a: &v 1.10\nb: *v\n").len(), 2);
    let many = format!("[{}]", vec!["1.10"; 50].join(","));
    let many = notes(Format::Json, &many);
    assert_eq!(many.len(), 21);
    assert_eq!(many[20], "30 more numbers are shown otherwise than the file writes them");
    assert_eq!(notes(Format::Yaml, "a: !!float 1\nb: !!str 1.10\nc: !!int \"7\"\n").len(), 2);
    let tagged = read(Format::Yaml, "a: !!float 1\nb: !!float &x 2\nc: !!int 7\nd: !!str 1\n").unwrap();
    assert_eq!(tagged.value, of_json(r#"{"a":1.0,"b":2.0,"c":7,"d":"1"}"#));
    for text in ["1.0e+16", "1e+21", "1.0e-7", "1e-7", "10000000000000000.0", "0.0000001"] {
        assert_eq!(notes(Format::Yaml, &format!("a: {text}\n")), [""; 0], "{text}");
    }
}

#[test]
fn a_type_that_is_stated_counts_in_properties() {
    let file =
        "#@ {\"type\":\"float\"}\na=1.10\n#@ {\"type\":\"int\"}\nb=007\n#@ {\"type\":\"string\"}\nc=5\n";
    let read = read(Format::Properties, file).unwrap().value;
    assert_eq!(read, of_json(r#"{"a":1.1,"b":7,"c":"5"}"#));
}

/// The document of the reference, in every format.
#[test]
fn files_look_as_people_write_them() {
    let document = of_json(
        r#"{"b":true,"d":{"df":1.123,"di":123,"ds":"string"},"f":1.123,"l":[123,1.0,true],"n":"1","s":"a b"}"#,
    );
    let shown = |format: Format| format.write(&document).unwrap();
    assert_eq!(
        shown(Format::Properties),
        "b=true\nd.df=1.123\nd.di=123\nd.ds=string\nf=1.123\nl[0]=123\nl[1]=1.0\nl[2]=true\n\
         #@ {\"type\":\"string\"}\nn=1\ns=a b\n"
    );
    assert_eq!(
        shown(Format::Env),
        "B=true\nD_DF=1.123\nD_DI=123\nD_DS=string\nF=1.123\nL_0=123\nL_1=1.0\nL_2=true\nN=1\nS='a b'\n"
    );
    assert_eq!(
        shown(Format::Toml),
        "b = true\nf = 1.123\nl = [123, 1.0, true]\nn = \"1\"\ns = \"a b\"\n\n\
         [d]\ndf = 1.123\ndi = 123\nds = \"string\"\n"
    );
    assert_eq!(
        shown(Format::Yaml),
        "b: true\nd:\n  df: 1.123\n  di: 123\n  ds: string\nf: 1.123\nl:\n- 123\n- 1.0\n- true\n\"n\": \"1\"\ns: a b\n"
    );
}

#[test]
fn what_a_format_cannot_carry_is_refused() {
    let empty = of_json(r#"{"a":{"b":null}}"#);
    for (format, can) in [
        (Format::Json, true),
        (Format::Yaml, true),
        (Format::Toml, false),
        (Format::Properties, true),
        (Format::Env, true),
    ] {
        assert_eq!(format.write(&empty).is_ok(), can, "{format:?}");
        if can && format != Format::Env {
            let file = format.write(&empty).unwrap();
            assert_eq!(read(format, &file).unwrap().value, empty, "{format:?}");
        }
    }
    let nested = of_json(r#"{"a":[[1],[2]]}"#);
    assert!(Format::Properties.write(&nested).is_err() && Format::Env.write(&nested).is_err());
    assert!(Format::Env.write(&of_json(r#"{"a.b":1,"a":{"b":2}}"#)).is_err(), "the same name twice");
    assert!(Format::Env.write(&of_json(r#"{"a":[]}"#)).is_err());
    for (format, file) in [
        (Format::Json, "{\"a\":1,\"a\":2}"),
        (Format::Json, "{\"a\":18446744073709551615}"),
        (Format::Yaml, "a: .nan"),
        (Format::Yaml, "a: 1\na: 2"),
        (Format::Yaml, "a: [1"),
        (Format::Toml, "a = 2026-11-21"),
        (Format::Toml, "a = inf"),
        (Format::Toml, "a = 1\na = 2"),
        (Format::Properties, "a=1\na=2"),
        (Format::Properties, "a=1\na.b=2"),
        (Format::Properties, "a[1]=1"),
        (Format::Properties, "a[0][0]=1"),
        (Format::Properties, "=1"),
        (Format::Properties, "a=\\uD800"),
        (Format::Properties, "a=\\u12"),
        (Format::Properties, "#@ {\"type\":\"int\"}\na=x"),
        (Format::Env, "A=1"),
    ] {
        assert!(read(format, file).is_err(), "{format:?}: {file}");
    }
}

#[test]
fn properties_are_read_as_java_does() {
    let file = "# a comment\n! another\n\n  key.one = value \n".to_owned()
        + "colon:value\nspace value\nlong=a\\\n   b\\\\\nesc\\=aped\\:=\\u00fc\\uD83D\\uDE00\nempty\nlist[1]=2\nlist[0]=1\n";
    let expected = r#"{"colon":"value","empty":"","esc=aped:":"ü😀","key":{"one":"value "},"list":[1,2],"long":"ab\\","space":"value"}"#;
    assert_eq!(read(Format::Properties, &file).unwrap().value, of_json(expected));
}

#[test]
fn aliases_and_depth_cannot_exhaust_a_node() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(read(Format::Json, &deep).is_err());
    assert!(read(Format::Yaml, &deep).is_err());
    assert!(read(Format::Toml, &format!("a = {deep}")).is_err());
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..9 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(read(Format::Yaml, &laughs).is_err());
}

#[test]
fn values_are_counted_while_they_are_read() {
    for (format, file) in [
        (Format::Json, r#"{"a":[1,2,{"b":3}]}"#),
        (Format::Yaml, "a: [1, 2, {b: 3}]"),
        (Format::Toml, "a = [1, 2, {b = 3}]"),
        (Format::Properties, "a[0]=1\na[1]=2\na[2].b=3\n"),
    ] {
        assert!(format.read(file, 6).is_ok(), "{format:?}");
        assert!(format.read(file, 2).is_err(), "{format:?}");
    }
}
