//! `kill -9` in every combination: acknowledged writes stay, refused writes never happen, and the
//! cluster serves again as soon as a majority is up.

use crate::harness::load::{addresses, assert_nothing_is_lost, await_acknowledged, under_load};
use crate::harness::{Cluster, eventually};

#[test]
fn kill_the_leader_under_load() {
    let mut cluster = Cluster::start(3);
    let chief = cluster.chief();
    let counters = under_load(addresses(&cluster), |acknowledged| {
        await_acknowledged(acknowledged, 1_000);
        cluster.kill(chief);
        // The cluster serves again: far more writes are acknowledged than can have been in flight.
        await_acknowledged(acknowledged, 1_000);
        cluster.restart(chief);
        await_acknowledged(acknowledged, 200);
    });
    for reader in cluster.numbers() {
        assert_nothing_is_lost(&cluster, reader, &counters);
    }
}

#[test]
fn kill_all_under_load() {
    let mut cluster = Cluster::start(3);
    let counters = under_load(addresses(&cluster), |acknowledged| {
        await_acknowledged(acknowledged, 1_000);
        for number in cluster.numbers() {
            cluster.kill(number);
        }
        for number in cluster.numbers() {
            cluster.spawn(number);
        }
        await_acknowledged(acknowledged, 200);
    });
    for number in cluster.numbers() {
        cluster.wait_ready(number);
        assert_nothing_is_lost(&cluster, number, &counters);
    }
}

#[test]
fn kill_a_single_node_under_load() {
    let mut cluster = Cluster::start(1);
    let counters = under_load(addresses(&cluster), |acknowledged| {
        for _ in 0..2 {
            await_acknowledged(acknowledged, 500);
            cluster.kill(1);
            cluster.restart(1);
        }
        await_acknowledged(acknowledged, 100);
    });
    assert_nothing_is_lost(&cluster, 1, &counters);
}

#[test]
fn without_a_majority_a_stale_read_answers_and_a_linearizable_one_refuses() {
    let mut cluster = Cluster::start(3);
    for key in 0..8 {
        assert_eq!(cluster.put(1, &format!("/v1/keys/k{key}"), b"before").status, 201);
    }
    // Node 3 answers a linearizable read, so it has applied all of these writes.
    for key in 0..8 {
        assert_eq!(cluster.get(3, &format!("/v1/keys/k{key}")).text(), "before");
    }
    cluster.kill(1);
    cluster.kill(2);
    for key in 0..8 {
        let path = format!("/v1/keys/k{key}");
        let stale = cluster.try_send(3, &format!("GET {path}?stale=true"), &[], b"").expect("an answer");
        assert_eq!((stale.status, stale.text()), (200, "before".to_owned()));
    }
    let refused = cluster.try_send(3, "GET /v1/keys/k0", &[], b"").expect("an answer by the deadline");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.is_problem("no-leader"), "{}", refused.text());
    eventually("node 3 says that it is not ready", || (!cluster.is_ready(3)).then_some(()));
    let alive = cluster.try_send(3, "GET /livez", &[], b"").expect("an answer");
    assert_eq!(alive.status, 200);

    cluster.restart(2);
    assert_eq!(cluster.get(3, "/v1/keys/k0").text(), "before");
    assert_eq!(cluster.put(3, "/v1/keys/k0", b"after").status, 200);
}

#[test]
fn a_write_that_was_refused_never_happens() {
    let mut cluster = Cluster::start(3);
    let chief = cluster.chief();
    let others: Vec<usize> = cluster.numbers().into_iter().filter(|&number| number != chief).collect();
    for &other in &others {
        cluster.kill(other);
    }
    // The first writes may reach a leader that does not know yet that it has no majority: their
    // outcome is unknown. Later ones are refused.
    let mut refused = vec![];
    eventually("a write is refused", || {
        let key = format!("/v1/keys/refused/{}", refused.len());
        let answer =
            cluster.try_send(chief, &format!("PUT {key}"), &[], b"x").expect("an answer by the deadline");
        match answer.status {
            503 => assert!(answer.is_problem("no-leader"), "{}", answer.text()),
            504 => assert!(answer.is_problem("unknown-outcome"), "{}", answer.text()),
            status => panic!("{status} without a majority: {}", answer.text()),
        }
        refused.push((key, answer.status));
        (refused.iter().filter(|(_, status)| *status == 503).count() >= 2).then_some(())
    });
    for &other in &others {
        cluster.spawn(other);
    }
    for number in cluster.numbers() {
        cluster.wait_ready(number);
    }
    for (key, status) in refused {
        let read = cluster.get(others[0], &key).status;
        assert!(read == 404 || status == 504, "{key} was refused, and is there");
    }
}
