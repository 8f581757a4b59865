//! A join token admits one host.
//!
//! It observes the answers that members receive to
//! [`AuthorityChange::Enrol`](tidelock_core::command::AuthorityChange::Enrol). A member signs only
//! after such an answer, so a lost answer admits no host.

use std::collections::BTreeMap;

use tidelock_core::auth::TokenId;
use uuid::Uuid;

use super::Violation;

/// The hosts that each join token has admitted.
#[derive(Debug, Default)]
pub struct Admissions {
    admitted: BTreeMap<TokenId, Uuid>,
}

impl Admissions {
    /// Records that a member was told that the token admits the host.
    ///
    /// # Errors
    /// When the token has admitted another host.
    pub fn admitted(&mut self, token: TokenId, host: Uuid) -> Result<(), Violation> {
        let first = *self.admitted.entry(token).or_insert(host);
        if first == host {
            return Ok(());
        }
        let text = format!("join token {token} has admitted host {first}, and admits host {host}");
        Err(Violation::new("admissions", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_host_is_a_violation() {
        let (mut admissions, host) = (Admissions::default(), Uuid::from_u128);
        assert_eq!(admissions.admitted(TokenId(1), host(7)), Ok(()));
        assert_eq!(admissions.admitted(TokenId(1), host(7)), Ok(()), "the same host again");
        assert_eq!(admissions.admitted(TokenId(2), host(8)), Ok(()));
        assert!(admissions.admitted(TokenId(1), host(8)).is_err());
    }
}
