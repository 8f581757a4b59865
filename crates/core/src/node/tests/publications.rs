//! Publications between whole nodes.

use super::*;
use crate::version::ClusterVersion;

fn cluster() -> Cluster {
    let version = ClusterVersion::NEWEST;
    let mut cluster =
        Cluster::with(3, |options| NodeOptions { founding_version: version, version, ..options });
    cluster.tick(100);
    cluster
}

fn publication(message: &[u8]) -> Publication {
    Publication { channel: "news".into(), message: Bytes::copy_from_slice(message) }
}

const PUBLISHED: Reply = Reply::Node(NodeReply::Published);

#[test]
fn every_node_gets_a_publication_once_and_in_order() {
    let mut cluster = cluster();
    for message in [b"a", b"b", b"c"] {
        assert_eq!(cluster.answer(2, Request::Publish(publication(message))), PUBLISHED);
    }
    cluster.tick(2);
    let expected: Vec<Publication> = [b"a", b"b", b"c"].map(|message| publication(message)).into();
    for node in 1..=3 {
        assert_eq!(cluster.published_at(node), expected, "node {node}");
    }
    for node in &cluster.nodes {
        assert!(!node.publications.has_output(), "few bytes are not acknowledged");
        assert_eq!(node.status().counters.publications_dropped, 0);
    }
}

#[test]
fn what_does_not_fit_a_link_is_dropped_until_the_peer_acknowledges() {
    let mut cluster = cluster();
    let large = publication(&[0; limits::MESSAGE_BYTES_MAX]);
    let node = &mut cluster.nodes[0];
    // Nothing is driven meanwhile, so nothing is acknowledged.
    for _ in 0..8 {
        assert_eq!(node.publish(large.clone()), Ok(()));
    }
    // Seven of a megabyte fit with their overhead; the eighth does not, for each of two peers.
    assert_eq!(node.status().counters.publications_dropped, 2);
    cluster.tick(2);
    assert_eq!(cluster.published_at(1).len(), 8);
    assert_eq!((cluster.published_at(2).len(), cluster.published_at(3).len()), (7, 7));
    // More than fits without acknowledgements.
    for number in 0..200 {
        assert_eq!(cluster.nodes[0].publish(publication(&[0; 100_000])), Ok(()), "{number}");
        cluster.tick(1);
    }
    cluster.tick(2);
    assert_eq!((cluster.published_at(2).len(), cluster.published_at(3).len()), (207, 207));
    assert_eq!(cluster.nodes[0].publish(large), Ok(()));
    cluster.tick(2);
    assert_eq!((cluster.published_at(2).len(), cluster.published_at(3).len()), (208, 208));
    assert_eq!(cluster.nodes[0].status().counters.publications_dropped, 2);
}

#[test]
fn a_node_without_a_link_gets_nothing_and_later_publications_again() {
    let mut cluster = cluster();
    cluster.kill(3);
    cluster.answer(1, Request::Publish(publication(b"lost")));
    cluster.tick(2);
    cluster.revive(3);
    cluster.tick(2);
    cluster.answer(1, Request::Publish(publication(b"arrives")));
    cluster.tick(2);
    assert_eq!(cluster.published_at(2), [publication(b"lost"), publication(b"arrives")]);
    assert_eq!(cluster.published_at(3), [publication(b"arrives")]);
}

#[test]
fn limits_and_older_clusters_refuse_a_publication() {
    let mut cluster = Cluster::elected(3);
    let publish = |publication| Request::Publish(publication);
    assert_eq!(cluster.answer(1, publish(publication(b"x"))), Reply::Refused(Refusal::VersionTooLow));
    let mut cluster = self::cluster();
    let unnamed = Publication { channel: Bytes::new(), message: Bytes::new() };
    let too_long = publication(&[0; limits::MESSAGE_BYTES_MAX + 1]);
    for invalid in [unnamed, too_long] {
        assert!(matches!(cluster.answer(1, publish(invalid)), Reply::Refused(Refusal::Invalid(_))));
    }
    let (node, unnamed) = (&mut cluster.nodes[0], Bytes::from_static(b"\x0c\x01\x00\x00"));
    let before = node.status().counters.frames_invalid;
    node.handle(Event::Frame { from: NodeId(2), payload: unnamed });
    assert_eq!(node.status().counters.frames_invalid, before + 1);
    assert!(!node.publications.has_output());
}
