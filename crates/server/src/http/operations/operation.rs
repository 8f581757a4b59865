//! One operation of the interface: a method of a path, the endpoint that serves it, its parameters
//! and its answers.
//!
//! Owns the vocabulary of the tables, so that a row takes a few lines. Answers that any request may
//! get (too long, too late, no leader) are under `default`; those of the operation are under their
//! status.

use hyper::StatusCode;
use serde_json::{Map, Value, json};
use tidelock_api::config::ConfigError;
use tidelock_api::problem::Problem;

use super::super::authentication::EndpointDemand;
use super::super::route::Endpoint;
use super::schemas::schema_of;

/// The media type of most bodies.
pub(super) const JSON: &str = "application/json";
/// Media type of values.
pub(super) const OCTETS: &str = "application/octet-stream";
/// Media type of text for people.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// The form of an operation's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failures {
    /// Problem details, RFC 9457.
    Problems,
    /// The envelope of the configuration centre.
    Envelope,
}

/// A query parameter or a header.
#[derive(Clone, Debug)]
pub(in crate::http) struct Parameter {
    name: &'static str,
    place: &'static str,
    is_required: bool,
    description: &'static str,
    schema: Value,
}

/// A parameter of the query.
pub(super) fn query(name: &'static str, schema: Value, description: &'static str) -> Parameter {
    Parameter { name, place: "query", is_required: false, description, schema }
}

/// A header of the request.
pub(super) fn header(name: &'static str, schema: Value, description: &'static str) -> Parameter {
    Parameter { name, place: "header", is_required: false, description, schema }
}

impl Parameter {
    pub fn required(mut self) -> Parameter {
        self.is_required = true;
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "in": self.place,
            "required": self.is_required,
            "description": self.description,
            "schema": self.schema,
        })
    }
}

/// Any string.
pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

/// A string of this form, a regular expression with the same meaning in JavaScript, Python, Go and
/// Rust.
pub(in crate::http) fn matching(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

/// An integer that is not negative. Generators assume 32 bits for a format that they do not know,
/// such as uint64.
pub(in crate::http) fn number() -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 0 })
}

pub(in crate::http) fn number_in(min: u64, max: u64) -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": min, "maximum": max })
}

/// `true` or `false`; in a query the bare name means `true`.
pub(super) fn flag() -> Value {
    json!({ "type": "boolean" })
}

/// One row of a table.
#[derive(Clone, Debug)]
pub(in crate::http) struct Operation {
    pub path: &'static str,
    pub method: &'static str,
    pub endpoint: Endpoint,
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    failures: Failures,
    parameters: Vec<Parameter>,
    body: Option<(Map<String, Value>, bool)>,
    answers: Map<String, Value>,
}

/// The tag and the error form of the rows that it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag(pub &'static str, pub Failures);

impl Tag {
    /// `route` is a method and a path: `get /v1/keys`.
    pub fn operation(
        self,
        route: &'static str,
        endpoint: impl Into<Endpoint>,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        let (method, path) = route.split_once(' ').expect("invariant: a route is a method and a path");
        Operation {
            path,
            method,
            endpoint: endpoint.into(),
            id,
            tag: self.0,
            summary,
            failures: self.1,
            parameters: Vec::new(),
            body: None,
            answers: Map::new(),
        }
    }
}

impl Operation {
    /// Names of the parameters of the query.
    pub fn query(&self) -> impl Iterator<Item = &'static str> {
        let of_query = |parameter: &&Parameter| parameter.place == "query";
        self.parameters.iter().filter(of_query).map(|parameter| parameter.name)
    }

    /// A `GET` of the same path with the same parameters.
    pub fn reading(
        &self,
        endpoint: impl Into<Endpoint>,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        let (method, endpoint, answers) = ("get", endpoint.into(), Map::new());
        Operation { method, endpoint, id, summary, body: None, answers, ..self.clone() }
    }

    pub fn asks(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Operation {
        self.parameters.extend(parameters);
        self
    }

    /// Requires a JSON body.
    pub fn takes_json(self, schema: Value) -> Operation {
        self.takes([(JSON, schema)])
    }

    /// Requires a body of one of these media types.
    pub fn takes(mut self, types: impl IntoIterator<Item = (&'static str, Value)>) -> Operation {
        self.body = Some((content(types), true));
        self
    }

    /// Makes the body optional.
    pub fn or_nothing(mut self) -> Operation {
        if let Some((_, is_required)) = &mut self.body {
            *is_required = false;
        }
        self
    }

    /// Answers 200 with JSON.
    pub fn gives_json(self, schema: Value, description: &'static str) -> Operation {
        self.gives(200, [(JSON, schema)], description)
    }

    /// Answers with a body of one of these media types.
    pub fn gives(
        mut self,
        status: u16,
        types: impl IntoIterator<Item = (&'static str, Value)>,
        description: &'static str,
    ) -> Operation {
        let types = content(types);
        let mut answer = json!({ "description": description });
        if !types.is_empty() {
            answer["content"] = types.into();
        }
        self.answers.insert(status.to_string(), answer);
        self
    }

    /// Answers with a status and no body.
    pub fn gives_nothing(self, status: u16, description: &'static str) -> Operation {
        self.gives(status, [], description)
    }

    /// Adds a header to the answer with a status.
    pub fn with_header(mut self, status: u16, name: &str, description: &str) -> Operation {
        let answer = &mut self.answers[status.to_string().as_str()];
        answer["headers"][name] = json!({ "description": description, "schema": text() });
        self
    }

    /// Adds errors that are specific to the operation.
    pub fn fails(mut self, statuses: impl IntoIterator<Item = u16>) -> Operation {
        for status in statuses {
            let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
            self.answers.insert(status.to_string(), self.failures.answer(reason.unwrap_or("Failed")));
        }
        self
    }

    pub fn to_json(&self) -> Value {
        let mut answers = self.answers.clone();
        answers.insert("default".to_owned(), self.failures.answer("What any request may fail with"));
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": answers,
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.iter().map(Parameter::to_json).collect();
        }
        if self.endpoint.demand() == EndpointDemand::Open {
            operation["security"] = json!([]);
        }
        if let Some((types, is_required)) = &self.body {
            operation["requestBody"] = json!({ "required": is_required, "content": types });
        }
        operation
    }
}

impl Failures {
    fn answer(self, description: &str) -> Value {
        let types = match self {
            Failures::Problems => content([("application/problem+json", schema_of::<Problem<'static>>())]),
            Failures::Envelope => content([(JSON, schema_of::<ConfigError>())]),
        };
        json!({ "description": description, "content": types })
    }
}

fn content(types: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    types
        .into_iter()
        .map(|(media_type, schema)| (media_type.to_owned(), json!({ "schema": schema })))
        .collect()
}
