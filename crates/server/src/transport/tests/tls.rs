//! Links with TLS: which certificates are accepted, and what both sides learn otherwise.

use std::time::SystemTime;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use tempfile::TempDir;

use super::*;
use crate::tls::{TlsAcceptor, TlsPaths};

/// An authority, and the directories of the certificates that it has signed.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directories: RefCell<Vec<TempDir>>,
}

impl Authority {
    fn new() -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer, directories: RefCell::default() }
    }

    /// The TLS of a node with a certificate for this host.
    fn certify(&self, cluster_name: &str, host: Uuid) -> Option<TlsAcceptor> {
        let directory = tempfile::tempdir().unwrap();
        let (key, mut parameters) = (KeyPair::generate().unwrap(), CertificateParams::default());
        let name = format!("tidelock://{cluster_name}/host/{host}");
        parameters.subject_alt_names = vec![SanType::URI(name.try_into().unwrap())];
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        for (file, contents) in
            [("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem()), ("ca.crt", self.issuer.pem())]
        {
            std::fs::write(directory.path().join(file), contents).unwrap();
        }
        let paths = TlsPaths { directory: directory.path().to_owned(), client_ca: None };
        let acceptor = TlsAcceptor::open(paths, SystemTime::now()).unwrap();
        self.directories.borrow_mut().push(directory);
        Some(acceptor)
    }
}

/// Starts node 1 and node 2, which dials it, with these certificates.
async fn start(one: Option<TlsAcceptor>, two: Option<TlsAcceptor>) -> (Node, Node) {
    let one = TransportOptions { tls: one, ..options(1, &[(2, String::new())]) };
    let one = Node::start(one).await;
    let two = TransportOptions { tls: two, ..options(2, &[(1, one.address.to_string())]) };
    (one, Node::start(two).await)
}

/// Waits until both sides have refused a connection because of TLS, without a link.
async fn expect_refused(one: &mut Node, two: &mut Node) {
    let failures = |node: &Node| node.transport.counters().tls_failures.get();
    while failures(one) == 0 || failures(two) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(one.events.try_recv().is_err() && two.events.try_recv().is_err());
}

#[test]
fn frames_pass_between_nodes_that_show_their_certificates() {
    run(async {
        let authority = Authority::new();
        let (mut one, mut two) =
            start(authority.certify("blue", host(1)), authority.certify("blue", host(2))).await;
        one.expect_up(2).await;
        two.expect_up(1).await;
        // Many records of TLS in both directions at once.
        let large = vec![7; 1 << 20];
        for _ in 0..4 {
            one.send(2, large.clone(), false);
            two.send(1, large.clone(), false);
        }
        for _ in 0..4 {
            assert!(two.expect_frame(1).await == large && one.expect_frame(2).await == large);
        }
        one.send(2, "the last frame", false);
        one.transport.stop().await;
        assert_eq!(two.expect_frame(1).await, "the last frame");
        two.expect_down(1).await;
        assert_eq!(two.transport.counters().tls_failures.get(), 0);
    });
}

#[test]
fn a_certificate_of_another_host_or_cluster_is_refused() {
    run(async {
        let authority = Authority::new();
        let own = |node| authority.certify("blue", host(node));
        for (one, two) in [
            (own(1), authority.certify("blue", host(3))),
            (authority.certify("blue", host(3)), own(2)),
            (own(1), authority.certify("green", host(2))),
            (authority.certify("green", host(1)), own(2)),
        ] {
            let (mut one, mut two) = start(one, two).await;
            expect_refused(&mut one, &mut two).await;
        }
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    run(async {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let (one, two) = start(authority.certify("blue", host(1)), stranger.certify("blue", host(2))).await;
        while one.transport.counters().tls_failures.get() == 0
            || two.transport.counters().tls_failures.get() == 0
        {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn nodes_with_and_without_tls_refuse_each_other() {
    run(async {
        let authority = Authority::new();
        let (mut one, mut two) = start(authority.certify("blue", host(1)), None).await;
        expect_refused(&mut one, &mut two).await;
        let (mut one, mut two) = start(None, authority.certify("blue", host(2))).await;
        expect_refused(&mut one, &mut two).await;
    });
}

#[test]
fn a_caller_without_tls_is_told_why_it_is_refused() {
    run(async {
        let authority = Authority::new();
        let options = TransportOptions { tls: authority.certify("blue", host(1)), ..options(1, &[]) };
        let node = Node::start(options).await;
        let mut puppet = Puppet::connect(node.address).await;
        puppet.say(hello(identity(2))).await;
        assert_eq!(puppet.hear().await, Some(refuse(HandshakeRefusal::TlsRequired)));
        puppet.expect_closed().await;
    });
}
