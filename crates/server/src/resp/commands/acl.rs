//! Permissions: `ACL …`.
//!
//! Maps roles and grants to the ACL format of Redis. It is read-only: `/v1/auth` and `tidelock
//! auth` change permissions. Tidelock grants access to keys, not to commands, so the command
//! categories are derived from the grants. Grants for configuration and for the cluster have no
//! equivalent in Redis and appear in an additional field, `grants`.

use std::collections::{BTreeMap, BTreeSet};

use tidelock_core::auth::{Access, ClusterLevel, Grant, KeyAccess};
use tidelock_core::types::UnixMillis;

use super::super::dispatch::{COMMANDS, Category};
use super::super::encode::Encoder;
use super::super::executor::Executor;
use super::super::frame::CommandArguments;
use super::super::session::{Action, Session};
use super::scan::{encoded, failure};
use super::{Result, is};
use crate::requests;

/// The user of clients without a token, while authentication is not required.
const DEFAULT_USER: &str = "default";

/// `ACL WHOAMI|CAT [category]|GETUSER name|LIST|USERS`
pub fn acl(session: &mut Session, arguments: CommandArguments<'_>) -> Result {
    let subcommand = &arguments[1];
    match arguments.len() {
        2 if is(subcommand, "whoami") => {
            let principal = session.authentication.principal().unwrap_or(DEFAULT_USER).to_owned();
            session.reply(|encoder| encoder.bulk(principal.as_bytes()))
        }
        2 if is(subcommand, "cat") => session.reply(|encoder| {
            encoder.array(Category::ALL.len());
            Category::ALL.iter().for_each(|category| encoder.bulk(category.name().as_bytes()));
        }),
        3 if is(subcommand, "cat") => commands_of(session, &arguments[2]),
        3 if is(subcommand, "getuser") => get_user(session, &arguments[2]),
        2 if is(subcommand, "list") => with_users(session, |users, encoder| {
            encoder.array(users.len());
            users.iter().for_each(|user| encoder.bulk(user.line().as_bytes()));
        }),
        2 if is(subcommand, "users") => with_users(session, |users, encoder| {
            encoder.array(users.len());
            users.iter().for_each(|user| encoder.bulk(user.name.as_bytes()));
        }),
        _ => {
            let subcommand = String::from_utf8_lossy(subcommand);
            let text = format!(
                "ERR unknown subcommand or wrong number of arguments for 'acl|{subcommand}'; known are WHOAMI, CAT, \
                 GETUSER, LIST and USERS; `tidelock auth` changes permissions"
            );
            Err(text.into())
        }
    }
}

/// The commands of a category.
fn commands_of(session: &mut Session, name: &[u8]) -> Result {
    let Some(category) = Category::ALL.into_iter().find(|category| is(name, category.name())) else {
        return Err(format!("ERR Unknown category '{}'", String::from_utf8_lossy(name)).into());
    };
    let named: Vec<&str> =
        COMMANDS.iter().filter(|spec| spec.category() == category).map(|spec| spec.name).collect();
    session.reply(|encoder| {
        encoder.array(named.len());
        named.iter().for_each(|name| encoder.bulk(name.as_bytes()));
    })
}

/// `ACL GETUSER`. A client may see its own principal; other ones need `cluster:admin`.
fn get_user(session: &mut Session, name: &[u8]) -> Result {
    let own = session.authentication.principal().is_some_and(|own| own.as_bytes() == name);
    let name = name.to_vec();
    let show = move |users: Vec<AclUser>, encoder: &mut Encoder<'_>| match users
        .iter()
        .find(|user| user.name.as_bytes() == name)
    {
        Some(user) => user.encode(encoder),
        None => encoder.null(),
    };
    if own {
        let users = users(&session.store.access().rows(), session.context.clock.now());
        return session.reply(|encoder| show(users, encoder));
    }
    with_users(session, show)
}

/// Reads all users, which needs `cluster:admin`, and replies with `encode`.
fn with_users(
    session: &mut Session,
    encode: impl FnOnce(Vec<AclUser>, &mut Encoder<'_>) + 'static,
) -> Result {
    let (store, protocol, clock) = (session.store.clone(), session.protocol, session.context.clock);
    Ok(Action::Wait(Box::pin(async move {
        let answered = store.ask(requests::access()).await;
        encoded(protocol, |encoder| match answered {
            Ok(access) => encode(users(&access, clock.now()), encoder),
            Err(no_answer) => encoder.error(&failure(no_answer)),
        })
    })))
}

/// A principal in the ACL format of Redis.
struct AclUser {
    name: String,
    /// Whether clients are this user without authentication (`nopass`).
    needs_no_password: bool,
    /// The categories of the commands that it can use.
    categories: Vec<Category>,
    /// Key patterns, such as `%R~app:*`.
    keys: Vec<String>,
    /// Patterns of the channels that it may publish to or subscribe to, such as `&app:*`: a channel
    /// counts as a key. Redis does not distinguish the two.
    channels: Vec<String>,
    /// Its grants.
    grants: Vec<String>,
}

/// All principals, and `default` if authentication is not required.
fn users(access: &Access, now: UnixMillis) -> Vec<AclUser> {
    let everyone = (!access.is_required()).then(|| AclUser {
        name: DEFAULT_USER.to_owned(),
        needs_no_password: true,
        categories: Category::ALL.to_vec(),
        keys: vec!["~*".to_owned()],
        channels: vec!["&*".to_owned()],
        grants: vec![],
    });
    let principals = access.principals().iter().map(|(name, principal)| {
        let roles = principal.roles.iter().filter_map(|role| access.role(role));
        let in_force = roles.filter(|role| role.is_in_force(now));
        let grants = in_force.flat_map(|role| role.grants.iter());
        AclUser::new(name, &grants.collect::<Vec<_>>())
    });
    everyone.into_iter().chain(principals).collect()
}

impl AclUser {
    fn new(name: &str, grants: &[&Grant]) -> AclUser {
        let may = |wanted: KeyAccess, all: bool| {
            grants.iter().any(|grant| {
                matches!(grant, Grant::Keys { access, prefix } if *access == wanted && (!all || prefix.is_empty()))
            })
        };
        let sees_nodes = grants.iter().any(|grant| match grant {
            Grant::Cluster(ClusterLevel::Read | ClusterLevel::Operate | ClusterLevel::Admin) => true,
            Grant::Keys { .. } | Grant::Config { .. } => false,
        });
        let has = |category: &Category| match category {
            Category::Read => may(KeyAccess::Read, false),
            Category::Write => may(KeyAccess::Write, false),
            Category::Keyspace => may(KeyAccess::Read, true),
            Category::Transaction | Category::Scripting | Category::PubSub | Category::Connection => true,
            Category::Dangerous => sees_nodes,
        };
        let keys = patterns(grants);
        let prefix = |pattern: &String| pattern.find('~').map(|at| format!("&{}", &pattern[at + 1..]));
        let channels = keys.iter().filter_map(prefix).collect();
        let texts: BTreeSet<String> = grants.iter().map(ToString::to_string).collect();
        AclUser {
            name: name.to_owned(),
            needs_no_password: false,
            categories: Category::ALL.into_iter().filter(has).collect(),
            keys,
            channels,
            grants: texts.into_iter().collect(),
        }
    }

    /// Its commands, as in `+@read`.
    fn commands(&self) -> String {
        let mut text = "-@all".to_owned();
        for category in &self.categories {
            text += " +@";
            text += category.name();
        }
        text
    }

    /// Its line in `ACL LIST`.
    fn line(&self) -> String {
        let AclUser { name, keys, channels, .. } = self;
        let password = if self.needs_no_password { " nopass" } else { "" };
        let keys: String = keys.iter().map(|pattern| format!("{pattern} ")).collect();
        let channels: String = channels.iter().map(|pattern| format!("{pattern} ")).collect();
        format!("user {name} on{password} {keys}resetchannels {channels}{}", self.commands())
    }

    fn encode(&self, encoder: &mut Encoder<'_>) {
        let texts = |encoder: &mut Encoder<'_>, texts: &[&str]| {
            encoder.array(texts.len());
            texts.iter().for_each(|text| encoder.bulk(text.as_bytes()));
        };
        encoder.map(7);
        encoder.bulk(b"flags");
        let flags: &[&str] = if self.needs_no_password { &["on", "nopass"] } else { &["on"] };
        texts(encoder, flags);
        encoder.bulk(b"passwords");
        texts(encoder, &[]);
        for (field, text) in [("commands", self.commands()), ("keys", self.keys.join(" "))] {
            encoder.bulk(field.as_bytes());
            encoder.bulk(text.as_bytes());
        }
        encoder.bulk(b"channels");
        encoder.bulk(self.channels.join(" ").as_bytes());
        encoder.bulk(b"selectors");
        texts(encoder, &[]);
        encoder.bulk(b"grants");
        texts(encoder, &self.grants.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// The patterns of keys that grants cover, as in `%R~app:*`.
fn patterns(grants: &[&Grant]) -> Vec<String> {
    let mut by_prefix: BTreeMap<&[u8], (bool, bool)> = BTreeMap::new();
    for grant in grants {
        if let Grant::Keys { access, prefix } = grant {
            let (reads, writes) = by_prefix.entry(prefix).or_default();
            match access {
                KeyAccess::Read => *reads = true,
                KeyAccess::Write => *writes = true,
                // Redis has no equivalent of this permission.
                KeyAccess::Watch => {}
            }
        }
    }
    let pattern = |(prefix, access): (&[u8], (bool, bool))| {
        let sign = match access {
            (true, true) => "~",
            (true, false) => "%R~",
            (false, true) => "%W~",
            (false, false) => return None,
        };
        Some(format!("{sign}{}*", prefix.iter().map(|&byte| literal(byte)).collect::<String>()))
    };
    by_prefix.into_iter().filter_map(pattern).collect()
}

/// Escapes one byte for a pattern. Spaces and unprintable bytes become `?`, which matches any byte.
fn literal(byte: u8) -> String {
    match byte {
        b'*' | b'?' | b'[' | b']' | b'\\' => format!("\\{}", char::from(byte)),
        b'!'..=b'~' => char::from(byte).to_string(),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(texts: &[&str]) -> AclUser {
        let grants: Vec<Grant> = texts.iter().map(|text| text.parse().expect("a grant")).collect();
        AclUser::new("app", &grants.iter().collect::<Vec<_>>())
    }

    #[test]
    fn grants_become_patterns_and_categories() {
        for (grants, line) in [
            (&[][..], "user app on resetchannels -@all +@transaction +@scripting +@pubsub +@connection"),
            (
                &["read keys:app:", "write keys:app:", "read keys:b"],
                "user app on ~app:* %R~b* resetchannels &app:* &b* -@all +@read +@write +@transaction +@scripting +@pubsub \
                 +@connection",
            ),
            (
                &["write keys:", "watch keys:x"],
                "user app on %W~* resetchannels &* -@all +@write +@transaction +@scripting +@pubsub +@connection",
            ),
            (
                &["read keys:", "cluster:read"],
                "user app on %R~* resetchannels &* -@all +@read +@keyspace +@transaction +@scripting +@pubsub +@connection \
                 +@dangerous",
            ),
            (
                &["read keys:a%20b%2A%5B"],
                "user app on %R~a?b\\*\\[* resetchannels &a?b\\*\\[* -@all +@read +@transaction +@scripting +@pubsub +@connection",
            ),
        ] {
            assert_eq!(user(grants).line(), line);
        }
        assert_eq!(user(&["write config:web", "cluster:read"]).grants, ["cluster:read", "write config:web"]);
    }

    #[test]
    fn every_command_has_the_category_of_its_keys() {
        for spec in COMMANDS {
            let expected = match spec.category() {
                Category::Read => spec.flags.contains(&"readonly"),
                Category::Write => spec.flags.contains(&"write"),
                _ => spec.keys.0 == 0,
            };
            assert!(expected, "{}", spec.name);
        }
    }
}
