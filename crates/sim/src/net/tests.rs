use super::*;

const CALM: NetworkConditions = NetworkConditions {
    delay_min: Micros(100),
    delay_max: Micros(2_000),
    spikes_per_mille: 10,
    drops_per_mille: 0,
    stragglers_per_mille: 500,
};

const FORTH: Direction = Direction { from: NodeId(1), to: NodeId(2) };

struct Fixture {
    net: Network,
    event_queue: EventQueue,
    heard: Vec<(NodeId, Event)>,
}

impl Fixture {
    fn new(seed: u64, conditions: NetworkConditions) -> Fixture {
        let mut fixture = Fixture {
            net: Network::new(2, conditions, seed),
            event_queue: EventQueue::default(),
            heard: vec![],
        };
        for (node, peer) in [(1, 2), (2, 1)] {
            fixture.net.set_reachable(NodeId(node), true);
            fixture.net.set_peers(NodeId(node), vec![NodeId(peer)], &mut fixture.event_queue);
        }
        fixture.net.start(&mut fixture.event_queue);
        fixture
    }

    fn step(&mut self) -> bool {
        match self.event_queue.take() {
            None => return false,
            Some(SimEvent::Deliver(direction)) => {
                let event = self.net.deliver(direction, &mut self.event_queue);
                self.heard.extend(event.map(|event| (direction.to, event)));
            }
            Some(SimEvent::Connect(link)) => self.net.connect(link, &mut self.event_queue),
            Some(SimEvent::GiveUp { link, connection }) => {
                self.net.give_up(link, connection, &mut self.event_queue)
            }
            Some(other) => panic!("the network entered {other:?}"),
        }
        true
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    fn send(&mut self, from: u64, number: u8, droppable: bool) {
        let to = NodeId(3 - from);
        let frame = OutgoingFrame { to, payload: Bytes::from(vec![number]), droppable };
        self.net.send(NodeId(from), frame, &mut self.event_queue);
    }

    /// The events that a node received: frames as their numbers, `U` for a link up, `D` for a link
    /// down.
    fn heard_by(&self, node: u64) -> String {
        let events = self.heard.iter().filter(|(to, _)| to.0 == node);
        let symbols = events.map(|(_, event)| match event {
            Event::LinkUp(_) => "U".into(),
            Event::LinkDown(_) => "D".into(),
            Event::Frame { payload, .. } => payload[0].to_string(),
            other => panic!("{other:?}"),
        });
        symbols.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn frames_arrive_in_order_whole_and_once() {
    for seed in 0..50 {
        let mut fixture = Fixture::new(seed, CALM);
        fixture.settle();
        for number in 1..=5 {
            fixture.send(1, number, false);
        }
        fixture.settle();
        assert_eq!(fixture.heard_by(2), "U 1 2 3 4 5");
        assert_eq!(fixture.heard_by(1), "U");
    }
}

#[test]
fn a_break_loses_a_suffix_and_is_heard_before_the_next_connection() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut fixture = Fixture::new(seed, CALM);
        fixture.settle();
        for number in 1..=3 {
            fixture.send(1, number, false);
        }
        fixture.net.break_link(FORTH, &mut fixture.event_queue);
        fixture.send(1, 9, false);
        fixture.settle();
        outcomes.insert(fixture.heard_by(2));
        assert_eq!(fixture.heard_by(1), "U D U");
        assert_eq!(fixture.net.counters().connections, 2);
    }
    let expected = ["U 1 2 3 D U", "U 1 2 D U", "U 1 D U", "U D U"];
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_partition_stalls_one_direction_and_lets_go() {
    for seed in 0..50 {
        let mut fixture = Fixture::new(seed, CALM);
        fixture.settle();
        fixture.net.channel(FORTH).blocked += 1;
        fixture.send(1, 1, false);
        fixture.send(2, 2, false);
        fixture.settle();
        assert_eq!((fixture.heard_by(1), fixture.heard_by(2)), ("U 2".into(), "U".into()));
        fixture.net.unblock(FORTH, &mut fixture.event_queue);
        fixture.settle();
        assert_eq!(fixture.heard_by(2), "U 1");
    }
}

#[test]
fn a_blocked_connection_is_given_up_and_stands_again_afterwards() {
    let mut fixture = Fixture::new(3, CALM);
    fixture.settle();
    fixture.net.block(FORTH, &mut fixture.event_queue);
    fixture.send(1, 1, false);
    for _ in 0..100 {
        assert!(fixture.step(), "hosts never stop trying to connect");
    }
    assert_eq!((fixture.heard_by(1), fixture.heard_by(2)), ("U D".into(), "U D".into()));
    fixture.net.unblock(FORTH, &mut fixture.event_queue);
    fixture.settle();
    assert_eq!(fixture.heard_by(2), "U D U");
}

#[test]
fn a_dead_host_hears_nothing_and_its_peer_hears_of_it() {
    let mut fixture = Fixture::new(5, CALM);
    fixture.settle();
    fixture.send(2, 1, false);
    fixture.net.node_died(NodeId(1), &mut fixture.event_queue);
    for _ in 0..50 {
        fixture.step();
    }
    assert_eq!((fixture.heard_by(1), fixture.heard_by(2)), ("U".into(), "U D".into()));
    fixture.net.set_reachable(NodeId(1), true);
    fixture.settle();
    assert_eq!((fixture.heard_by(1), fixture.heard_by(2)), ("U U".into(), "U D U".into()));
}

#[test]
fn only_droppable_frames_are_dropped() {
    let mut fixture = Fixture::new(7, NetworkConditions { drops_per_mille: 1000, ..CALM });
    fixture.settle();
    fixture.send(1, 1, true);
    fixture.send(1, 2, false);
    fixture.settle();
    assert_eq!(fixture.heard_by(2), "U 2");
}
