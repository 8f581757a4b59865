//! The codes on the wire of the reasons to refuse a handshake.

use tidelock_core::handshake::HandshakeRefusal;

/// Codes on the wire. A code is never reused.
pub(super) const REFUSAL_CODES: [(HandshakeRefusal, u8); 17] = [
    (HandshakeRefusal::WrongCluster, 1),
    (HandshakeRefusal::UnknownNode, 2),
    (HandshakeRefusal::UnsupportedVersion, 3),
    (HandshakeRefusal::HostMismatch, 4),
    (HandshakeRefusal::SelfConnection, 5),
    (HandshakeRefusal::SameNumber, 6),
    (HandshakeRefusal::WrongDirection, 7),
    (HandshakeRefusal::UnexpectedNode, 8),
    (HandshakeRefusal::Removed, 9),
    (HandshakeRefusal::Outdated, 10),
    (HandshakeRefusal::Duplicate, 11),
    (HandshakeRefusal::StillConnected, 12),
    (HandshakeRefusal::ReleaseTooOld, 13),
    (HandshakeRefusal::ReleaseTooNew, 14),
    (HandshakeRefusal::VersionUnsupported, 15),
    (HandshakeRefusal::CertificateMismatch, 16),
    (HandshakeRefusal::TlsRequired, 17),
];

pub(super) fn code_of(refusal: HandshakeRefusal) -> u8 {
    match refusal {
        HandshakeRefusal::Other(code) => code,
        known => REFUSAL_CODES
            .iter()
            .find(|(refusal, _)| *refusal == known)
            .map(|(_, code)| *code)
            .expect("invariant: every refusal has a code"),
    }
}

pub(super) fn of_code(code: u8) -> HandshakeRefusal {
    REFUSAL_CODES
        .iter()
        .find(|(_, known)| *known == code)
        .map_or(HandshakeRefusal::Other(code), |(refusal, _)| *refusal)
}
