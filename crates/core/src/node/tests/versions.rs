//! What nodes tell their peers about the cluster's version.

use alloc::vec;

use super::*;
use crate::version::{ClusterVersion, Release, SupportedVersions};

#[test]
fn a_peer_is_told_a_version_that_was_recorded_between_its_handshake_and_its_link() {
    let founders: Vec<String> = (1..=2).map(|node| format!("node-{node}")).collect();
    let mut options = options(1, &founders);
    let versions = SupportedVersions { oldest: ClusterVersion(1), newest: ClusterVersion(2) };
    options.host.release = Release { name: "test".into(), versions };
    let mut node = Node::new(options, RecoveredShards::new());
    let (peer, mut actions) = (NodeId(2), Actions::default());
    let told = |actions: &mut Actions| -> Vec<bool> {
        let frames = core::mem::take(&mut actions.frames);
        frames.iter().map(|frame| frame.payload == peer::version(ClusterVersion(2))).collect()
    };
    node.handle(Event::PeerVersions { peer, supported: versions, recorded: ClusterVersion(1) });
    node.handle(Event::LinkUp(peer));
    node.drive(&mut actions);
    assert!(!told(&mut actions).contains(&true), "there is nothing to tell about the first version");
    node.handle(Event::LinkDown(peer));

    node.handle(Event::PeerVersions { peer, supported: versions, recorded: ClusterVersion(1) });
    node.record_version(ClusterVersion(2));
    node.drive(&mut actions);
    assert_eq!((actions.version.take(), told(&mut actions)), (Some(ClusterVersion(2)), vec![]));
    node.handle(Event::LinkUp(peer));
    node.drive(&mut actions);
    assert_eq!(actions.version, None);
    assert_eq!(told(&mut actions).first(), Some(&true), "before anything else");
}
