//! Checking values. The work is counted, so that a change cannot occupy its shard.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::Write as _;

use super::{Format, JsonType, Rule, Rules, Schema, is_bytes, is_duration};
use crate::command::config::Value;
use crate::limits;

/// Characters of a value of a rule that a refusal shows.
const SHOWN_CHARACTERS: usize = 60;

/// Why a value does not have its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// A rule does not hold.
    Violated {
        /// The path in the value, such as `server.ports[0]`; empty for the value itself.
        path: String,
        /// The rule, as the schema states it.
        rule: String,
    },
    /// See [`limits::CONFIG_SCHEMA_STEPS_MAX`].
    TooMuchWork,
}

/// Checks the values of one change, with a bound on the work for all of them.
#[derive(Debug)]
pub struct SchemaChecker {
    steps_left: usize,
    path: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Key(Arc<str>),
    Index(usize),
}

impl Default for SchemaChecker {
    fn default() -> SchemaChecker {
        SchemaChecker { steps_left: limits::CONFIG_SCHEMA_STEPS_MAX, path: Vec::new() }
    }
}

impl SchemaChecker {
    /// Checks that a value has a schema.
    ///
    /// # Errors
    /// The first rule that does not hold, or that the bound of work is reached.
    pub fn check(&mut self, schema: &Schema, value: &Value) -> Result<(), CheckError> {
        self.path.clear();
        self.rules(&schema.root, value)
    }

    fn rules(&mut self, rules: &Rules, value: &Value) -> Result<(), CheckError> {
        self.spend(1)?;
        rules.iter().try_for_each(|rule| self.rule(rule, value))
    }

    /// Counts work in proportion to the values that are visited.
    fn spend(&mut self, steps: usize) -> Result<(), CheckError> {
        self.steps_left = self.steps_left.checked_sub(steps).ok_or(CheckError::TooMuchWork)?;
        Ok(())
    }

    fn rule(&mut self, rule: &Rule, value: &Value) -> Result<(), CheckError> {
        self.spend(1)?;
        if matches!(value, Value::Secret(_)) {
            return self.of_secret(rule, value);
        }
        let holds = match (rule, value) {
            (Rule::Never, _) => false,
            (Rule::Type(types), value) => types.iter().any(|wanted| is_of(value, *wanted)),
            (Rule::Enum(values), value) => {
                self.spend(value.count() + values.len())?;
                values.contains(&canonical(value))
            }
            (Rule::Const(wanted), value) => {
                self.spend(value.count())?;
                *wanted == canonical(value)
            }
            (Rule::Minimum(bound), value) => compare(value, bound).is_none_or(Ordering::is_ge),
            (Rule::Maximum(bound), value) => compare(value, bound).is_none_or(Ordering::is_le),
            (Rule::ExclusiveMinimum(bound), value) => compare(value, bound).is_none_or(Ordering::is_gt),
            (Rule::ExclusiveMaximum(bound), value) => compare(value, bound).is_none_or(Ordering::is_lt),
            (Rule::MultipleOf(of), Value::Int(_) | Value::Float(_)) => {
                whole(value).is_some_and(|number| number % of == 0)
            }
            (Rule::MinLength(min), Value::Text(text)) => text.chars().count() as u64 >= *min,
            (Rule::MaxLength(max), Value::Text(text)) => text.chars().count() as u64 <= *max,
            (Rule::Format(Format::Duration), Value::Text(text)) => is_duration(text),
            (Rule::Format(Format::Bytes), Value::Text(text)) => is_bytes(text),
            (Rule::MinItems(min), Value::List(items)) => items.len() as u64 >= *min,
            (Rule::MaxItems(max), Value::List(items)) => items.len() as u64 <= *max,
            (Rule::UniqueItems, Value::List(items)) => {
                self.spend(value.count())?;
                let mut seen = BTreeSet::new();
                items.iter().all(|item| seen.insert(canonical(item)))
            }
            (Rule::MinProperties(min), Value::Dict(entries)) => entries.len() as u64 >= *min,
            (Rule::MaxProperties(max), Value::Dict(entries)) => entries.len() as u64 <= *max,
            (Rule::Items(_) | Rule::Properties { .. } | Rule::Required(_), value) => {
                return self.inside(rule, value);
            }
            (Rule::AllOf(_) | Rule::AnyOf(_) | Rule::OneOf(_) | Rule::Not(_), value) => {
                return self.combined(rule, value);
            }
            _ => true,
        };
        if holds { Ok(()) } else { Err(self.violated(rule)) }
    }

    /// A secret is checked only as text: what it says is unknown here.
    fn of_secret(&mut self, rule: &Rule, value: &Value) -> Result<(), CheckError> {
        match rule {
            Rule::Never => Err(self.violated(rule)),
            Rule::Type(types) if !types.contains(&JsonType::String) => Err(self.violated(rule)),
            Rule::AllOf(_) | Rule::AnyOf(_) => self.combined(rule, value),
            _ => Ok(()),
        }
    }

    /// Rules about what is inside of a value.
    fn inside(&mut self, rule: &Rule, value: &Value) -> Result<(), CheckError> {
        match (rule, value) {
            (Rule::Items(rules), Value::List(items)) => {
                for (position, item) in items.iter().enumerate() {
                    self.at(Step::Index(position), rules, item)?;
                }
            }
            (Rule::Properties { named, additional }, Value::Dict(entries)) => {
                for (key, entry) in entries {
                    if let Some(rules) = named.get(key).or(additional.as_ref()) {
                        self.at(Step::Key(key.clone()), rules, entry)?;
                    }
                }
            }
            (Rule::Required(names), Value::Dict(entries)) => {
                self.spend(names.len())?;
                if let Some(missing) = names.iter().find(|name| !entries.contains_key(*name)) {
                    return Err(self.violated_text(format!("required {missing:?}")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn at(&mut self, step: Step, rules: &Rules, value: &Value) -> Result<(), CheckError> {
        self.path.push(step);
        self.rules(rules, value)?;
        self.path.pop();
        Ok(())
    }

    fn combined(&mut self, rule: &Rule, value: &Value) -> Result<(), CheckError> {
        let (schemas, wanted) = match rule {
            Rule::AllOf(schemas) => return schemas.iter().try_for_each(|rules| self.rules(rules, value)),
            Rule::AnyOf(schemas) => (schemas.as_slice(), 1..=usize::MAX),
            Rule::OneOf(schemas) => (schemas.as_slice(), 1..=1),
            Rule::Not(rules) => (core::slice::from_ref(rules), 0..=0),
            _ => return Ok(()),
        };
        let mut holding = 0;
        for rules in schemas {
            holding += usize::from(self.holds(rules, value)?);
        }
        if wanted.contains(&holding) { Ok(()) } else { Err(self.violated(rule)) }
    }

    /// Whether rules hold. That the work is too much is an error here, too.
    fn holds(&mut self, rules: &Rules, value: &Value) -> Result<bool, CheckError> {
        let depth = self.path.len();
        match self.rules(rules, value) {
            Ok(()) => Ok(true),
            Err(CheckError::Violated { .. }) => {
                self.path.truncate(depth);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn violated(&self, rule: &Rule) -> CheckError {
        self.violated_text(shown(rule))
    }

    fn violated_text(&self, rule: String) -> CheckError {
        let mut path = String::new();
        for step in &self.path {
            // Writing to a string cannot fail.
            let _ = match step {
                Step::Key(key) if path.is_empty() => write!(path, "{key}"),
                Step::Key(key) => write!(path, ".{key}"),
                Step::Index(position) => write!(path, "[{position}]"),
            };
        }
        CheckError::Violated { path, rule }
    }
}

/// A rule as a refusal shows it.
fn shown(rule: &Rule) -> String {
    let list = |texts: &[String]| format!("[{}]", texts.join(","));
    let text = match rule {
        Rule::Never => "false, nothing is allowed here".into(),
        Rule::Type(types) => {
            let names: Vec<&str> = types.iter().map(|wanted| wanted.name()).collect();
            format!("type {}", names.join(" or "))
        }
        Rule::Enum(values) => format!("enum {}", list(values)),
        Rule::Const(value) => format!("const {value}"),
        Rule::Minimum(bound) => format!("minimum {}", bound.to_json()),
        Rule::Maximum(bound) => format!("maximum {}", bound.to_json()),
        Rule::ExclusiveMinimum(bound) => format!("exclusiveMinimum {}", bound.to_json()),
        Rule::ExclusiveMaximum(bound) => format!("exclusiveMaximum {}", bound.to_json()),
        Rule::MultipleOf(of) => format!("multipleOf {of}"),
        Rule::MinLength(min) => format!("minLength {min}"),
        Rule::MaxLength(max) => format!("maxLength {max}"),
        Rule::Format(format) => format!("format {}", format.name()),
        Rule::MinItems(min) => format!("minItems {min}"),
        Rule::MaxItems(max) => format!("maxItems {max}"),
        Rule::UniqueItems => "uniqueItems".into(),
        Rule::MinProperties(min) => format!("minProperties {min}"),
        Rule::MaxProperties(max) => format!("maxProperties {max}"),
        Rule::AnyOf(_) => "anyOf".into(),
        Rule::OneOf(_) => "oneOf".into(),
        Rule::Not(_) => "not".into(),
        Rule::Items(_) => "items".into(),
        Rule::Properties { .. } => "properties".into(),
        Rule::Required(_) => "required".into(),
        Rule::AllOf(_) => "allOf".into(),
    };
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn is_of(value: &Value, wanted: JsonType) -> bool {
    match wanted {
        JsonType::Null => matches!(value, Value::Empty),
        JsonType::Boolean => matches!(value, Value::Bool(_)),
        JsonType::Integer => whole(value).is_some() || is_large_whole(value),
        JsonType::Number => matches!(value, Value::Int(_) | Value::Float(_)),
        JsonType::String => matches!(value, Value::Text(_) | Value::Secret(_)),
        JsonType::Array => matches!(value, Value::List(_)),
        JsonType::Object => matches!(value, Value::Dict(_)),
    }
}

/// The first float beyond every integer of 64 bits.
const INT_END: f64 = 9_223_372_036_854_775_808.0;

/// The number, if it is whole and fits.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Float(float) => {
            let number = float.get();
            let fits = (-INT_END..INT_END).contains(&number);
            // A cast drops the fraction.
            (fits && number as i64 as f64 == number).then_some(number as i64)
        }
        _ => None,
    }
}

/// Whether it is a float of such a size that it has no fraction.
fn is_large_whole(value: &Value) -> bool {
    matches!(value, Value::Float(float) if !(-INT_END..INT_END).contains(&float.get()))
}

/// Compares two numbers exactly; `None` if one is no number.
fn compare(value: &Value, bound: &Value) -> Option<Ordering> {
    match (value, bound) {
        (Value::Int(number), Value::Int(bound)) => Some(number.cmp(bound)),
        (Value::Float(number), Value::Float(bound)) => number.get().partial_cmp(&bound.get()),
        (Value::Int(number), Value::Float(bound)) => Some(compare_mixed(*number, bound.get())),
        (Value::Float(number), Value::Int(bound)) => Some(compare_mixed(*bound, number.get()).reverse()),
        _ => None,
    }
}

fn compare_mixed(int: i64, float: f64) -> Ordering {
    if float >= INT_END {
        return Ordering::Less;
    }
    if float < -INT_END {
        return Ordering::Greater;
    }
    // The cast drops the fraction, which the second comparison takes into account.
    let whole = float as i64;
    int.cmp(&whole).then_with(|| (whole as f64).partial_cmp(&float).unwrap_or(Ordering::Equal))
}

/// The canonical JSON of a value, in which a float without a fraction is written as an integer: in
/// JSON Schema `1` and `1.0` are the same number.
pub(super) fn canonical(value: &Value) -> String {
    match value {
        Value::Float(_) => whole(value).map_or_else(|| value.to_json(), |number| number.to_string()),
        Value::List(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        Value::Dict(entries) => {
            let entry = |(key, value): (&Arc<str>, &Value)| {
                format!("{}:{}", Value::Text(key.clone()).to_json(), canonical(value))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
        Value::Secret(sealed) => sealed.as_str().into(),
        other => other.to_json(),
    }
}
