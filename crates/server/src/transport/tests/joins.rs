//! Join requests at a member's listener, and how hosts ask.

use super::super::join::{AskError, JOINS_MAX, JoinRequest, LocalBoxFuture, Welcome, ask};
use super::*;
use std::collections::BTreeMap;
use tidelock_core::command::HostInfo;
use tidelock_core::storage::control_file::KnownHost;
use tokio::sync::Semaphore;

type Decision = Result<Welcome, JoinRefusal>;

fn request() -> JoinRequest {
    let host = HostInfo {
        node: NodeId(0),
        uuid: host(4),
        peer_address: "d:9001".into(),
        http_address: "d:8001".into(),
        resp_address: "d:7001".into(),
        resp_cluster_address: "d:7101".into(),
        tags: [("zone".to_owned(), "a".to_owned())].into(),
        release: tidelock_core::version::Release::default(),
    };
    JoinRequest { cluster_name: Some("blue".into()), data_shards: None, host }
}

fn welcome(hosts: u64) -> Welcome {
    let known = |node| KnownHost { uuid: host(node), peer_address: format!("10.0.0.{node}:9001") };
    Welcome {
        cluster: CLUSTER,
        cluster_name: "blue".into(),
        node: NodeId(4),
        replica: tidelock_core::types::ReplicaId(19),
        founders: vec!["10.0.0.1:9001".into()],
        data_shards: 8,
        replicas: Some(3),
        shard_tags: BTreeMap::new(),
        automatic_division: true,
        founding_version: ClusterVersion(3),
        version: ClusterVersion(3),
        hosts: (1..=hosts).map(|node| (NodeId(node), known(node))).collect::<BTreeMap<_, _>>(),
    }
}

/// A member, node 1, whose join handler is `decide`.
async fn member(decide: impl Fn(JoinRequest) -> LocalBoxFuture<Decision> + 'static) -> Node {
    let mut options = options(1, &[]);
    options.joins = Rc::new(decide);
    Node::start(options).await
}

/// A member that always gives the same answer.
async fn member_with(decision: Decision) -> Node {
    member(move |_| {
        let decision = decision.clone();
        Box::pin(async { decision })
    })
    .await
}

/// A member's answer to a message.
async fn answer_to(node: &Node, message: Message) -> Option<Message> {
    let mut puppet = Puppet::connect(node.address).await;
    puppet.say(message).await;
    let answer = puppet.prove().await;
    puppet.expect_closed().await;
    answer
}

fn join() -> Message {
    Message::Join { versions: PROTOCOL_VERSIONS, request: request(), nonce: NONCE }
}

impl Puppet {
    /// The member's final answer, after its challenge if there is one.
    async fn prove(&mut self) -> Option<Message> {
        match self.hear().await {
            Some(Message::Challenge { nonce, answers }) => {
                assert_eq!(answers, NONCE);
                self.say(accept(nonce)).await;
                self.hear().await
            }
            other => other,
        }
    }

    async fn answer_challenge(&mut self) {
        let Some(Message::Challenge { nonce, .. }) = self.hear().await else { panic!("no challenge") };
        self.say(accept(nonce)).await;
    }
}

#[test]
fn a_recorded_question_is_not_heard() {
    run(async {
        let node = member(|_| panic!("the owner is not asked")).await;
        let mut puppet = Puppet::connect(node.address).await;
        puppet.say(join()).await;
        assert!(matches!(puppet.hear().await, Some(Message::Challenge { .. })));
        puppet.say(accept(NONCE)).await;
        puppet.expect_closed().await;
        assert_eq!(node.transport.counters().handshakes_refused.get(), 1);
    });
}

#[test]
fn a_newcomer_is_welcomed_with_all_that_it_needs() {
    run(async {
        let node = member(|asked| {
            assert_eq!(asked, request());
            Box::pin(async { Ok(welcome(3)) })
        })
        .await;
        assert_eq!(ask(&[node.address.to_string()], &request(), None).await, Ok(welcome(3)));
        assert!(node.events.is_empty() && node.transport.counters().handshakes_refused.get() == 0);
    });
}

#[test]
fn a_newcomer_asks_on_until_somebody_can_decide() {
    run(async {
        let (sender, mut asked) = mpsc::unbounded_channel();
        let reported = sender.clone();
        let leaderless = member(move |_| {
            reported.send("leaderless").unwrap();
            Box::pin(async { Err(JoinRefusal::NoLeader) })
        })
        .await;
        let asked_before = Cell::new(0);
        let busy_twice = member(move |_| {
            sender.send("busy").unwrap();
            asked_before.set(asked_before.get() + 1);
            let decision = if asked_before.get() < 3 { Err(JoinRefusal::Busy) } else { Ok(welcome(1)) };
            Box::pin(async { decision })
        })
        .await;
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = silent.local_addr().unwrap().to_string();
        drop(silent);
        let addresses = [nobody, leaderless.address.to_string(), busy_twice.address.to_string()];
        assert_eq!(ask(&addresses, &request(), None).await, Ok(welcome(1)));
        for _ in 0..3 {
            assert_eq!(asked.try_recv(), Ok("leaderless"));
            assert_eq!(asked.try_recv(), Ok("busy"));
        }
    });
}

#[test]
fn a_refusal_for_good_ends_the_question() {
    run(async {
        let node = member_with(Err(JoinRefusal::Refused("not with these tags".into()))).await;
        let address = node.address.to_string();
        let refused = AskError::Refused { address: address.clone(), reason: "not with these tags".into() };
        assert_eq!(ask(&[address], &request(), None).await, Err(refused));
    });
}

#[test]
fn a_host_that_cannot_be_a_newcomer_is_refused_unheard() {
    run(async {
        use HandshakeRefusal as R;
        let node = member(|_| panic!("the owner is not asked")).await;
        let address = node.address.to_string();
        let copy = JoinRequest { host: HostInfo { uuid: host(1), ..request().host }, ..request() };
        let refused = AskError::Handshake { address: address.clone(), refusal: R::SelfConnection };
        assert_eq!(ask(&[address], &copy, None).await, Err(refused));
        let versions = VersionRange { min: 900, max: 901 };
        let newer = Message::Join { versions, request: request(), nonce: NONCE };
        assert_eq!(answer_to(&node, newer).await, Some(refuse(R::UnsupportedVersion)));
        let older =
            Message::Join { versions: VersionRange { min: 1, max: 1 }, request: request(), nonce: NONCE };
        let unanswered = Message::Refuse { refusal: R::UnsupportedVersion, answers: Uuid::nil() };
        assert_eq!(answer_to(&node, older).await, Some(unanswered));
        assert_eq!(node.transport.counters().handshakes_refused.get(), 3);
        // Callers cannot send answers.
        assert_eq!(answer_to(&node, Message::Welcome(welcome(1))).await, None);
    });
}

#[test]
fn newcomers_that_wait_are_bounded_and_take_nobody_elses_place() {
    run(async {
        let gate = Rc::new(Semaphore::new(0));
        let opened = gate.clone();
        let (sender, mut asked) = mpsc::unbounded_channel();
        let mut node = member(move |_| {
            sender.send(()).unwrap();
            let gate = gate.clone();
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                Ok(welcome(1))
            })
        })
        .await;
        node.set_peers(&[(2, node.address)]);
        let mut waiting = vec![];
        for _ in 0..JOINS_MAX {
            let mut puppet = Puppet::connect(node.address).await;
            puppet.say(join()).await;
            puppet.answer_challenge().await;
            asked.recv().await.unwrap();
            waiting.push(puppet);
        }
        assert_eq!(answer_to(&node, join()).await, Some(Message::JoinRefused(JoinRefusal::Busy)));
        let _link = Puppet::link(node.address, identity(2)).await;
        node.expect_up(2).await;
        opened.add_permits(JOINS_MAX + 1);
        for puppet in &mut waiting {
            assert_eq!(puppet.hear().await, Some(Message::Welcome(welcome(1))));
        }
        assert_eq!(answer_to(&node, join()).await, Some(Message::Welcome(welcome(1))));
    });
}

#[test]
fn a_stop_does_not_wait_for_a_decision() {
    run(async {
        let (sender, mut asked) = mpsc::unbounded_channel();
        let node = member(move |_| {
            sender.send(()).unwrap();
            Box::pin(std::future::pending())
        })
        .await;
        let mut puppet = Puppet::connect(node.address).await;
        puppet.say(join()).await;
        puppet.answer_challenge().await;
        asked.recv().await.unwrap();
        node.transport.stop().await;
        assert_eq!(puppet.hear().await, None);
    });
}

#[test]
fn a_cluster_too_large_for_a_welcome_says_so() {
    run(async {
        let node = member_with(Ok(welcome(10_000))).await;
        let answer = answer_to(&node, join()).await;
        let Some(Message::JoinRefused(JoinRefusal::Refused(reason))) = answer else { panic!("{answer:?}") };
        assert!(reason.contains("more hosts"), "{reason}");
    });
}
