//! Texts that prove who somebody is: tokens, certificates and the names in them, sealed secrets.

use tidelock_client::{NodeUrl, Token};
use tidelock_core::auth::TokenId;
use tidelock_core::certified_host::CertifiedHost;
use tidelock_core::command::config::SealedSecret;
use tidelock_server::tls;
use tidelock_server::token::{BearerToken, JoinTokenText, TOKEN_TEXT_BYTES};

use super::peers::JOIN_TOKEN_CHECKED_BYTES;
use super::{Target, text, texts};
use crate::checksums;

pub const TARGETS: &[Target] = &[
    Target { name: "tokens", run: tokens, seeds: token_seeds },
    Target { name: "certificates", run: certificates, seeds: certificate_seeds },
    Target { name: "names", run: names, seeds: name_seeds },
];

/// A token is shown as it is read, whatever its checksum was, and clients send every token that a
/// node accepts.
fn tokens(input: &[u8]) {
    let (mut bearer, mut join) = (input.to_vec(), input.to_vec());
    checksums::token(&mut bearer, TOKEN_TEXT_BYTES - 9);
    checksums::token(&mut join, JOIN_TOKEN_CHECKED_BYTES);
    for text in [input, &bearer] {
        if let Ok(token) = BearerToken::parse(text) {
            assert_eq!(token.reveal().as_bytes(), text);
            let sent = Token::parse(&token.reveal()).expect("a client has it");
            assert_eq!(sent.expose().as_bytes(), text);
            assert!(JoinTokenText::parse(text).is_err());
        }
    }
    for text in [input, &join] {
        if let Ok(token) = JoinTokenText::parse(text) {
            assert_eq!(token.reveal().as_bytes(), text);
            assert!(BearerToken::parse(text).is_err());
        }
    }
    let text = text(input);
    if let Ok(id) = text.parse::<TokenId>() {
        assert_eq!(id.to_string(), text);
    }
}

fn token_seeds() -> Vec<Vec<u8>> {
    let secret = "CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk";
    texts(&[
        &format!("tdl_0000000000000007_{secret}_00000000"),
        &format!("tdj_00000000000000ab_{secret}_{secret}_00000000"),
        "00000000000000ab",
    ])
}

/// Certificates in PEM are read or refused, and always alike.
fn certificates(input: &[u8]) {
    let host = tls::certified_host(input);
    if let Ok(host) = &host {
        assert_eq!(CertifiedHost::of_uris([&*host.to_string()]), Ok(host.clone()));
        assert!(tls::fingerprint_of(input).is_some(), "what names a host, is a certificate");
    }
}

fn certificate_seeds() -> Vec<Vec<u8>> {
    vec![
        CERTIFICATE.as_bytes().to_vec(),
        b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".to_vec(),
    ]
}

/// Made once by `tidelock tls init`; nothing checks its time here.
const CERTIFICATE: &str = include_str!("certificate.pem");

/// Names of hosts in certificates, sealed secrets and URLs of nodes are shown as they are read.
fn names(input: &[u8]) {
    let text = text(input);
    if let Ok(host) = CertifiedHost::of_uris([text]) {
        assert_eq!(host.to_string(), text);
    }
    if let Some(sealed) = SealedSecret::parse(text) {
        assert_eq!(sealed.as_str(), text);
        assert_eq!(SealedSecret::new(sealed.key_id(), sealed.base64()), Some(sealed));
    }
    if let Ok(url) = text.parse::<NodeUrl>() {
        let shown = url.to_string();
        assert_eq!(shown.parse::<NodeUrl>().as_ref(), Ok(&url), "{shown}");
        let _ = (url.address(), url.at("10.0.0.1:8001"));
    }
}

fn name_seeds() -> Vec<Vec<u8>> {
    texts(&[
        "tidelock://blue-1.x_y/host/6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "sealed:v1:k1:AAAA+/==",
        "http://127.0.0.1:8001",
        "https://[::1]:8443/",
    ])
}
