//! Tests of the blocks in which namespaces are saved, restored and moved between shards.

use super::super::moving::OutgoingConfig;
use super::*;
use crate::command::config::block::{check_block, namespaces_of};
use crate::slots::slot_set::SlotSet;

#[test]
fn a_restored_namespace_goes_on_above_what_the_old_cluster_gave_out() {
    let config = sample();
    let mut restored = Config::default();
    let blocks = blocks(&config);
    for _ in 0..2 {
        for block in &blocks {
            check_block(block).expect("a block");
            restored.restore_block(block).expect("taken, and again without effect");
        }
    }
    assert!(restored.is_pristine());
    assert_eq!(document(&restored, "c", None).as_deref(), Ok(r#"{"f":1}"#));
    assert_eq!(document(&restored, "c", Some(2)).as_deref(), Ok(r#"{"f":1}"#));
    let above = 2 + limits::CONFIG_RESTORE_REVISION_MARGIN + 1;
    assert_eq!(publish(&mut restored, vec![int("p", 2)]), Ok((above, true)));
    assert_eq!(shown(&changes_since(&restored, "c", 2).events), [(above, Some(r#"{"f":2}"#.into()))]);
    assert_eq!(apply(&mut restored, ConfigOperation::Rollback { to: 2, item: None }), Ok((above + 1, true)));
}

#[test]
fn namespaces_move_with_their_slots() {
    let mut config = sample();
    let other = Name::new("other").expect("a name");
    let create = ConfigWrite { namespace: other.clone(), ..write(ConfigOperation::Create) };
    apply_write(&mut config, create.clone()).expect("created");
    let slot = slots::slot_of(b"ns");
    assert_ne!(slot, slots::slot_of(b"other"));
    let moved = SlotSet::from(slot..slot + 1);
    let (mut copy, mut taker) = (OutgoingConfig::new(moved.clone()), Config::default());
    while let Some(part) = copy.next_part(&config) {
        assert_eq!(part.namespace, name());
        taker.import_part(&part).expect("taken");
    }
    config.take_updates();
    config.notify_slots(&moved);
    assert!(config.remove_some(&moved, 1), "nothing is left");
    assert_eq!(ask(&config, Query::Namespace), Err(ConfigError::NoNamespace));
    assert_eq!(config.take_updates().len(), 1, "watchers look elsewhere");
    assert_eq!(document(&taker, "c", None).as_deref(), Ok(r#"{"f":1}"#));
    assert_eq!(
        apply(&mut taker, ConfigOperation::Rollback { to: 1, item: None }),
        Ok((3, true)),
        "history came along"
    );
    assert_eq!(apply_write(&mut config, create), Err(ConfigError::NamespaceExists), "the others stayed");
}

#[test]
fn a_block_is_taken_apart_by_namespaces() {
    let mut config = sample();
    for other in ["a", "z"] {
        let namespace = Name::new(other).expect("a name");
        let operation = ConfigOperation::Publish { changes: vec![int("p", 3)], create: true };
        apply_write(&mut config, ConfigWrite { namespace, ..write(operation) }).expect("published");
    }
    let long = |number: usize| put(&alloc::format!("{number:02}"), Value::text(&"x".repeat(20_000)));
    publish(&mut config, (0..20).map(long).collect()).expect("published");
    let mut restored = Config::default();
    let mut parts = 0;
    for block in blocks(&config) {
        for (name, part) in split_block(&block).expect("a block") {
            assert_eq!(namespaces_of(&part).expect("a block"), name.into_iter().collect());
            restored.take_block(&part).expect("taken");
            parts += 1;
        }
    }
    assert!(parts > 5, "{parts}");
    assert_eq!(restored.digest(0), config.digest(0));
}

#[test]
fn hostile_blocks_are_errors() {
    let blocks = blocks(&sample());
    let block = &blocks[0];
    let mut refused = 0;
    for cut in 0..block.len() {
        // A block may end after any record. Truncated anywhere else, it is refused.
        refused += usize::from(check_block(&block[..cut]).is_err());
        let _ = Config::default().take_block(&block[..cut]);
    }
    assert!(refused > block.len() / 2);
    for bad in [&[][..], &[1], &[0, 9], &[0, PAIR_TAG], &[0, 3, 1, b'a', 7, 1, 0, 1, 1, b'p', 0]] {
        assert!(Config::default().take_block(bad).is_err(), "{bad:?}");
    }
}

/// The tag of a pair's record. A block that begins with it is invalid, because the record of the
/// pair's namespace must come first.
const PAIR_TAG: u8 = 4;

#[test]
fn a_large_namespace_takes_several_blocks_and_round_trips() {
    let mut config = sample();
    let long = |number: usize| Value::text(&"x".repeat(20_000 + number));
    for round in 0..3 {
        let changes =
            (0..40).map(|number| put(&alloc::format!("{number:02}"), long(number + round))).collect();
        publish(&mut config, changes).expect("published");
    }
    let mut restored = Config::default();
    let blocks = blocks(&config);
    assert!(blocks.len() > 15, "{}", blocks.len());
    for block in &blocks {
        assert!(is_block(block) && block.len() <= limits::SNAPSHOT_BLOCK_BYTES_MAX);
        assert_eq!(namespaces_of(block).expect("a block"), [name()].into());
        restored.take_block(block).expect("taken");
    }
    assert_eq!(restored.digest(0), config.digest(0));
    for block in &blocks {
        restored.take_block(block).expect("taken again");
    }
    assert_eq!(restored.digest(0), config.digest(0));
    let at = |config: &Config| document(config, "c", Some(2));
    assert_eq!(at(&restored), at(&config));
}
