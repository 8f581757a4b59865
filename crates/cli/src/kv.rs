//! `tidelock kv`: reads and writes keys over the native HTTP API.
//!
//! Owns how keys, values and versions are requested and shown. Values are bytes: a pipe receives
//! exactly the stored bytes, and only output to a terminal is escaped or shortened.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;

use tidelock_api::keys::{KeyItem, KeyPage};
use tidelock_client::http::{HeaderName, Method, header};
use tidelock_client::{Call, CliError, Client, keys, output};

use crate::args::{DelArgs, FenceArg, GetArgs, KvArgs, KvCommand, ListArgs, Output, PutArgs};
use crate::item::{self, Item};

/// The largest value that is read from a file or a pipe: a node's limit of a request body. A node
/// refuses values over its lower limit of values and names that.
const VALUE_BYTES_MAX: u64 = 8 << 20;

/// A table shows this many characters of a value; `kv get` and `--output json` show all of it.
const PREVIEW_CHARACTERS: usize = 60;

/// Runs one of the `kv` commands.
pub fn run(args: KvArgs) -> Result<(), CliError> {
    let client = args.client.client()?;
    let format = args.client.output;
    match args.command {
        KvCommand::Get(get) => get_value(&client, format, &get),
        KvCommand::Put(put) => put_value(&client, format, put),
        KvCommand::Del(del) => delete_key(&client, format, &del),
        KvCommand::List(list) => list_keys(&client, format, &list),
    }
}

fn get_value(client: &Client, format: Output, args: &GetArgs) -> Result<(), CliError> {
    let mut target = keys::path(&args.key.0);
    if args.stale {
        target.push_str("?stale=true");
    }
    let answer = client.ask(&Call::get(target))?;
    match answer.status {
        200 => {}
        404 => return Err(CliError::NotFound),
        _ => return Err(answer.refusal()),
    }
    let version = answer.expect_version()?;
    match format {
        Output::Json => {
            let item = Item::of(&args.key.0).with_version(version).with_value(&answer.body);
            output::line(&item.to_json())
        }
        Output::Text if args.raw || !io::stdout().is_terminal() => output::write(&answer.body),
        Output::Text => output::write(&for_terminal(answer.body, version)),
    }
}

fn put_value(client: &Client, format: Output, args: PutArgs) -> Result<(), CliError> {
    let value = match (args.file, args.value) {
        (Some(path), _) => {
            let name = path.display().to_string();
            read_value(File::open(&path).map_err(CliError::io(name.as_str()))?, &name)?
        }
        (None, Some(value)) if value == "-" => read_value(io::stdin().lock(), "standard input")?,
        (None, value) => value.map(OsString::into_vec).unwrap_or_default(),
    };
    let absent = args.if_absent.then(|| (header::IF_NONE_MATCH, "*".to_owned()));
    let condition = absent.or_else(|| if_version(args.if_version));
    let binding = args.lease.as_ref().map(|lease| format!("?lease={}", keys::query_value(lease.as_bytes())));
    let call = Call {
        method: Method::PUT,
        target: keys::path(&args.key.0) + &binding.unwrap_or_default(),
        conditions: condition.into_iter().chain(if_fence(args.fence.as_ref())).collect(),
        body: &value,
        may_repeat: false,
    };
    let answer = client.ask(&call)?;
    let created = match answer.status {
        201 => true,
        200 => false,
        _ => return Err(answer.refusal()),
    };
    let version = answer.expect_version()?;
    match format {
        Output::Json => {
            let written = Item::of(&args.key.0).with_version(version).with_created(created);
            output::line(&written.to_json())
        }
        Output::Text if created => output::line(&format!("created, version {version}")),
        Output::Text => output::line(&format!("replaced, version {version}")),
    }
}

fn delete_key(client: &Client, format: Output, args: &DelArgs) -> Result<(), CliError> {
    let call = Call {
        method: Method::DELETE,
        target: keys::path(&args.key.0),
        conditions: if_version(args.if_version).into_iter().chain(if_fence(args.fence.as_ref())).collect(),
        body: &[],
        may_repeat: false,
    };
    let answer = client.ask(&call)?;
    match answer.status {
        200 | 204 => {}
        404 => return Err(CliError::NotFound),
        _ => return Err(answer.refusal()),
    }
    match format {
        Output::Json => output::line(&Item::of(&args.key.0).with_deleted().to_json()),
        Output::Text => output::line("deleted"),
    }
}

fn list_keys(client: &Client, format: Output, args: &ListArgs) -> Result<(), CliError> {
    let mut after = args.after.as_ref().map(|key| key.0.clone());
    let mut first = true;
    loop {
        let answer = client.ask_for(200, &Call::get(list_target(args, after.as_deref())))?;
        let page: KeyPage = answer.json()?;
        match format {
            Output::Json => output::line(String::from_utf8_lossy(&answer.body).trim_end())?,
            Output::Text => {
                let form = match first {
                    _ if args.keys => PageForm::Keys,
                    true => PageForm::TableWithHeader,
                    false => PageForm::Table,
                };
                output::write(render_page(&page, form).as_bytes())?;
            }
        }
        if !item::has_more(&page) {
            return Ok(());
        }
        let next = item::next_of(&page).ok_or_else(|| answer.unintelligible("no key in `next`"))?;
        if after.as_ref().is_some_and(|after| next <= *after) {
            return Err(answer.unintelligible("`next` does not go forward"));
        }
        if !args.all {
            if format == Output::Text {
                eprintln!("There are more keys: --all, or --after '{}'", keys::printable(&next));
            }
            return Ok(());
        }
        after = Some(next);
        first = false;
    }
}

fn list_target(args: &ListArgs, after: Option<&[u8]>) -> String {
    let mut parameters = vec![];
    if let Some(prefix) = &args.prefix {
        parameters.push(format!("prefix={}", keys::query_value(&prefix.0)));
    }
    if let Some(after) = after {
        parameters.push(format!("after={}", keys::query_value(after)));
    }
    if let Some(limit) = args.limit {
        parameters.push(format!("limit={limit}"));
    }
    if args.keys {
        parameters.push("keys=true".to_owned());
    }
    if args.stale {
        parameters.push("stale=true".to_owned());
    }
    if parameters.is_empty() { "/v1/keys".to_owned() } else { format!("/v1/keys?{}", parameters.join("&")) }
}

fn if_version(version: Option<u64>) -> Option<(HeaderName, String)> {
    version.map(|version| (header::IF_MATCH, format!("\"{version}\"")))
}

fn if_fence(fence: Option<&FenceArg>) -> Option<(HeaderName, String)> {
    let name = HeaderName::from_static(tidelock_api::IF_FENCE_HEADER);
    fence.map(|FenceArg { lock, fence }| (name, format!("{}={fence}", keys::query_value(lock))))
}

fn read_value(source: impl Read, name: &str) -> Result<Vec<u8>, CliError> {
    let mut value = vec![];
    source.take(VALUE_BYTES_MAX + 1).read_to_end(&mut value).map_err(CliError::io(name))?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(CliError::Usage(format!("{name} is longer than {} MiB", VALUE_BYTES_MAX >> 20)));
    }
    Ok(value)
}

/// A value for a terminal: its end is visible, and the version is on the next line.
fn for_terminal(mut value: Vec<u8>, version: u64) -> Vec<u8> {
    if value.last().is_some_and(|&last| last != b'\n') {
        value.push(b'\n');
    }
    value.extend_from_slice(format!("(version {version})\n").as_bytes());
    value
}

/// What is shown of a page of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageForm {
    /// A key per line.
    Keys,
    /// Keys, versions and values: the first page.
    TableWithHeader,
    /// The same of a further page.
    Table,
}

/// Lines of a page, each ended by a line break; nothing for a page without items.
fn render_page(page: &KeyPage, form: PageForm) -> String {
    if page.items.is_empty() {
        return String::new();
    }
    let key = |item: &KeyItem| item::key_of(item).map(|key| keys::printable(&key)).unwrap_or_default();
    if form == PageForm::Keys {
        return page.items.iter().map(|item| key(item) + "\n").collect();
    }
    let rows = page.items.iter().map(|item| {
        let value = item::value_of(item).map(|value| preview(&value)).unwrap_or_default();
        vec![key(item), item.ver.to_string(), value]
    });
    let header: &[&str] = if form == PageForm::Table { &[] } else { &["KEY", "VERSION", "VALUE"] };
    output::table(header, rows.collect()) + "\n"
}

/// The start of a value on one line, with its size if it was shortened.
fn preview(value: &[u8]) -> String {
    let shown = keys::printable(value);
    match shown.char_indices().nth(PREVIEW_CHARACTERS) {
        None => shown,
        Some((end, _)) => format!("{}… ({} bytes)", &shown[..end], value.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_client::keys::KeyArg;

    #[test]
    fn on_a_terminal_the_end_of_a_value_is_visible() {
        for (value, shown) in [
            (&b"bar"[..], &b"bar\n(version 6)\n"[..]),
            (b"bar\n", b"bar\n(version 6)\n"),
            (b"", b"(version 6)\n"),
            (b"\xff", b"\xff\n(version 6)\n"),
        ] {
            assert_eq!(for_terminal(value.to_vec(), 6), shown);
        }
    }

    #[test]
    fn a_page_is_a_table() {
        let page: KeyPage = serde_json::from_str(
            r#"{"items":[{"key":"a","ver":6,"val":"one"},{"key":"longer\n","ver":12,"val":"two\u0000"}]}"#,
        )
        .unwrap();
        assert_eq!(
            render_page(&page, PageForm::TableWithHeader),
            "KEY       VERSION  VALUE\na         6        one\nlonger\\n  12       two\\x00\n"
        );
        assert_eq!(render_page(&page, PageForm::Keys), "a\nlonger\\n\n");
        assert_eq!(render_page(&KeyPage::default(), PageForm::TableWithHeader), "");
    }

    #[test]
    fn long_values_are_shortened_with_their_size() {
        assert_eq!(preview(&[b'x'; PREVIEW_CHARACTERS]), "x".repeat(PREVIEW_CHARACTERS));
        let shown = preview("ü".repeat(PREVIEW_CHARACTERS + 1).as_bytes());
        assert_eq!(shown, format!("{}… (122 bytes)", "ü".repeat(PREVIEW_CHARACTERS)));
    }

    #[test]
    fn list_targets() {
        let none = ListArgs { prefix: None, keys: false, limit: None, after: None, all: false, stale: false };
        assert_eq!(list_target(&none, None), "/v1/keys");
        let all = ListArgs {
            prefix: Some(KeyArg(b"a/&b".to_vec())),
            keys: true,
            limit: Some(10),
            stale: true,
            ..none
        };
        assert_eq!(
            list_target(&all, Some(b"a/\xff")),
            "/v1/keys?prefix=a%2F%26b&after=a%2F%FF&limit=10&keys=true&stale=true"
        );
    }

    #[test]
    fn a_value_over_the_limit_is_refused_before_it_is_sent() {
        let exactly = io::repeat(0).take(VALUE_BYTES_MAX);
        assert_eq!(read_value(exactly, "x").unwrap().len() as u64, VALUE_BYTES_MAX);
        assert!(matches!(read_value(io::repeat(0), "x"), Err(CliError::Usage(_))));
    }
}
