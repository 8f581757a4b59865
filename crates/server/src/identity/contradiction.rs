//! Settings that contradict the data directory.
//!
//! Owns the comparison of `--peers`, `--shards`, `--replicas`, `--shard-tag`, `--cluster-name` and
//! `--join`, and of the certificate, with the cluster that the directory belongs to. Owns the error
//! texts, too, which name both sides. A node that ignored such a setting would serve another
//! cluster than its operator intends. An absent setting contradicts nothing. Neither does the
//! setting with which the cluster was founded, even if the cluster has changed since: nodes are
//! restarted with the flags of their first start.

use tidelock_core::certified_host::CertifiedHost;
use tidelock_core::storage::control_file::Identity;
use tidelock_core::types::NodeId;
use uuid::Uuid;

use super::is_founder;
use crate::config::{Address, Settings};

/// A setting, and the different value in the directory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// Other founders than those of the cluster.
    #[error(
        "--peers is {given}, but the data directory holds node {node} of cluster {cluster}, which was founded by {held}. \
         The founders of a cluster never change: leave --peers out, or write {held}. To add nodes to this cluster, start \
         them on empty directories with --join; to found another cluster, use an empty directory"
    )]
    Founders {
        /// The founders in the settings, as text.
        given: String,
        /// The founders of the cluster, as text.
        held: String,
        /// The node that the directory belongs to.
        node: NodeId,
        /// The cluster that the directory belongs to.
        cluster: Uuid,
    },
    /// Another number of data shards than the cluster was founded with.
    #[error(
        "--shards is {given}, but the data directory belongs to cluster {cluster}, which was founded with {held} data \
         shards. Leave --shards out, or write {held}; `tidelock cluster add-shard` adds shards to a running cluster"
    )]
    Shards {
        /// Number of data shards in the settings.
        given: u64,
        /// Number of data shards with which the cluster was founded.
        held: u64,
        /// The cluster that the directory belongs to.
        cluster: Uuid,
    },
    /// Another number of replicas than the cluster was founded with.
    #[error(
        "--replicas is {given}, but the data directory belongs to cluster {cluster}, which was founded with {held}. Leave \
         --replicas out; `tidelock cluster set --default placement:member={given}` changes it in a running cluster"
    )]
    Replicas {
        /// Number of voters of a data shard in the settings.
        given: u64,
        /// What the cluster was founded with, as text.
        held: String,
        /// The cluster that the directory belongs to.
        cluster: Uuid,
    },
    /// Other tags of shards than the cluster was founded with.
    #[error(
        "--shard-tag is given, and differs from what cluster {cluster} was founded with. Leave it out; \
         `tidelock cluster set` changes the tags of a shard in a running cluster"
    )]
    ShardTags {
        /// The cluster that the directory belongs to.
        cluster: Uuid,
    },
    /// Another name than that of the cluster.
    #[error(
        "--cluster-name is `{given}`, but the data directory belongs to cluster {cluster} of the name `{held}`. Leave \
         --cluster-name out, or write {held}; for a node of another cluster, use an empty directory"
    )]
    Name {
        /// The cluster name in the settings.
        given: String,
        /// The name of the cluster.
        held: String,
        /// The cluster that the directory belongs to.
        cluster: Uuid,
    },
    /// An address that other machines do not reach, in place of one that they do.
    #[error(
        "peer is {given}, which only this machine reaches, and the other nodes know this one at {known}. Give --peer, --http and \
         --resp as at the first start, on the command line or in the settings file"
    )]
    Loopback {
        /// The address in the settings.
        given: String,
        /// The address at which the other nodes know it.
        known: String,
    },
    /// A certificate for another host than that of the data directory.
    #[error(
        "the certificate in --tls-dir is for host {certified}, but the data directory belongs to host {held}. Use the \
         certificate of that host; `tidelock tls init --hosts NAME={held}` makes one for a directory that exists"
    )]
    CertifiedHost {
        /// The uuid in the certificate.
        certified: Uuid,
        /// The uuid in the data directory.
        held: Uuid,
    },
    /// A certificate for a cluster of another name.
    #[error(
        "the certificate in --tls-dir is for a host of cluster `{certified}`, but the name of the cluster is `{held}`. A cluster \
         keeps the name with which it is founded: give the same --cluster-name to its founders and to `tidelock tls init`"
    )]
    CertifiedName {
        /// The cluster's name in the certificate.
        certified: String,
        /// The name of the cluster.
        held: String,
    },
    /// `--join` for a founder.
    #[error(
        "--join is given, but the data directory holds node {node}, which founded cluster {cluster}. Leave --join out to \
         start that node; to join another cluster, use an empty directory"
    )]
    Join {
        /// The node that the directory belongs to.
        node: NodeId,
        /// The cluster that the directory belongs to.
        cluster: Uuid,
    },
}

/// Checks that the other nodes can still reach this one, if they could before. A node that was
/// started again without its addresses would tell them to dial it on their own machines.
///
/// # Errors
/// When it would advertise a loopback address, and advertised another one before.
pub fn check_address(settings: &Settings, identity: &Identity) -> Result<(), Contradiction> {
    let given = &settings.advertise.peer;
    let known = identity.hosts.get(&identity.node).map(|host| host.peer_address.as_str());
    let is_lost = |known: &&str| {
        given.is_loopback() && Address::parse("peer", known).is_ok_and(|known| !known.is_loopback())
    };
    match known.filter(is_lost) {
        Some(known) if identity.hosts.len() > 1 => {
            let (given, known) = (given.as_str().to_owned(), known.to_owned());
            Err(Contradiction::Loopback { given, known })
        }
        _ => Ok(()),
    }
}

/// Compares the host in the certificate with that of a directory.
///
/// # Errors
/// When they differ.
pub fn check_host(certified: &CertifiedHost, held: Uuid) -> Result<(), Contradiction> {
    if certified.host == held {
        return Ok(());
    }
    Err(Contradiction::CertifiedHost { certified: certified.host, held })
}

/// Compares the cluster's name in the certificate with that of the cluster.
///
/// # Errors
/// When they differ.
pub fn check_name(certified: &CertifiedHost, held: &str) -> Result<(), Contradiction> {
    if certified.cluster_name == held {
        return Ok(());
    }
    let (certified, held) = (certified.cluster_name.clone(), held.to_owned());
    Err(Contradiction::CertifiedName { certified, held })
}

/// Compares settings with a directory whose node is a member of its cluster.
///
/// # Errors
/// The first setting that contradicts the directory.
pub fn check(settings: &Settings, identity: &Identity) -> Result<(), Contradiction> {
    let (node, cluster) = (identity.node, identity.cluster_id);
    if let Some(given) = settings.given_founders().filter(|given| *given != identity.founders) {
        let (given, held) = (given.join(","), identity.founders.join(","));
        return Err(Contradiction::Founders { given, held, node, cluster });
    }
    if let Some(given) = settings.given_shards().filter(|given| *given != identity.data_shards) {
        return Err(Contradiction::Shards { given, held: identity.data_shards, cluster });
    }
    if let Some(given) = settings.given_replicas().filter(|given| Some(*given) != identity.replicas) {
        let held = identity.replicas.map_or_else(
            || "a vote of every founder in every shard".to_owned(),
            |replicas| format!("{replicas} replicas"),
        );
        return Err(Contradiction::Replicas { given, held, cluster });
    }
    if !settings.shard_tags.is_empty() && settings.shard_tags != identity.shard_tags {
        return Err(Contradiction::ShardTags { cluster });
    }
    if let Some(given) = settings.cluster_name().filter(|given| *given != identity.cluster_name) {
        let (given, held) = (given.to_owned(), identity.cluster_name.clone());
        return Err(Contradiction::Name { given, held, cluster });
    }
    if !settings.join().is_empty() && is_founder(identity) {
        return Err(Contradiction::Join { node, cluster });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawSettings;
    use tidelock_core::storage::control_file::KnownHost;

    fn identity(node: u64) -> Identity {
        Identity {
            cluster_id: Uuid::from_u128(9),
            node: NodeId(node),
            cluster_name: "blue".into(),
            founders: vec!["a:1".into(), "b:1".into()],
            data_shards: 4,
            replicas: Some(3),
            ..Identity::joining(Uuid::from_u128(1))
        }
    }

    #[test]
    fn a_node_that_others_reach_does_not_move_to_loopback() {
        let host = |address: &str| KnownHost { uuid: Uuid::nil(), peer_address: address.to_owned() };
        let identity = |own, others: &[&str]| Identity {
            hosts: (1..).map(NodeId).zip([own].iter().chain(others).map(|address| host(address))).collect(),
            ..identity(1)
        };
        let text = |toml: &str, identity: &Identity| {
            let raw: RawSettings = toml::from_str(toml).unwrap();
            let checked = check_address(&Settings::new(raw).unwrap(), identity);
            checked.map_err(|contradiction| contradiction.to_string())
        };
        let cluster = identity("10.0.0.1:9001", &["10.0.0.2:9001"]);
        let refused = text("", &cluster).unwrap_err();
        assert!(
            refused.starts_with("peer is 127.0.0.1:9001,") && refused.contains("10.0.0.1:9001"),
            "{refused}"
        );
        for toml in ["peer = '10.0.0.1:9001'", "peer = '10.0.0.9:9001'", "advertise_peer = '10.0.0.1'"] {
            assert_eq!(text(toml, &cluster), Ok(()), "{toml}");
        }
        assert_eq!(text("", &identity("127.0.0.2:9001", &["127.0.0.3:9001"])), Ok(()), "all on one machine");
        assert_eq!(text("", &identity("10.0.0.1:9001", &[])), Ok(()), "nobody dials it");
    }

    fn checked(toml: &str, identity: &Identity) -> Result<(), String> {
        let raw: RawSettings = toml::from_str(toml).unwrap();
        check(&Settings::new(raw).unwrap(), identity).map_err(|contradiction| contradiction.to_string())
    }

    #[test]
    fn what_is_left_out_and_what_the_cluster_was_founded_with_is_no_contradiction() {
        for toml in [
            "",
            "peers = ['b:1', 'a:1']\npeer = 'a:1'",
            // A founder that has moved, and a node that took over another founder's address.
            "peers = ['b:1', 'a:1']\npeer = 'c:1'",
            "shards = 4\nreplicas = 3\ncluster_name = 'blue'",
        ] {
            assert_eq!(checked(toml, &identity(1)), Ok(()), "{toml}");
            assert_eq!(checked(toml, &identity(3)), Ok(()), "{toml}");
        }
        assert_eq!(checked("join = ['x:1']", &identity(3)), Ok(()), "it has joined");
    }

    #[test]
    fn contradictions_name_both_sides_and_what_to_do() {
        let cluster = Uuid::from_u128(9).to_string();
        for (toml, clues) in [
            ("peers = ['a:1', 'b:1', 'c:1']\npeer = 'a:1'", ["a:1,b:1,c:1", "founded by a:1,b:1", "--join"]),
            ("peers = ['a:1']\npeer = 'a:1'", ["--peers is a:1,", "write a:1,b:1", "node 1"]),
            ("shards = 8", ["--shards is 8", "4 data shards", "add-shard"]),
            ("replicas = 5", ["--replicas is 5", "3 replicas", "--default placement:member=5"]),
            ("shard_tags = ['owner=us']", ["--shard-tag", "founded with", "cluster set"]),
            ("cluster_name = 'green'", ["`green`", "`blue`", "leave --cluster-name out"]),
            ("join = ['x:1']", ["--join is given", "node 1, which founded", "empty directory"]),
        ] {
            let message = checked(toml, &identity(1)).unwrap_err();
            for clue in clues.iter().copied().chain([cluster.as_str()]) {
                assert!(message.to_lowercase().contains(&clue.to_lowercase()), "{toml} said: {message}");
            }
        }
    }
}
