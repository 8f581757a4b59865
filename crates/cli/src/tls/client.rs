//! `tidelock tls client`: certificates of clients.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use tidelock_client::CliError;
use tidelock_client::private_file::replace;
use tidelock_server::tls::issue::Validity;

use super::{CaFiles, authority, create_directory, failed};
use crate::args::ClientCertificateArgs;
use crate::time::rfc3339;

/// The client CA. It is not the CA of the hosts, so that a client certificate is not accepted
/// between nodes.
const AUTHORITY: CaFiles<'static> =
    CaFiles { certificate: "client-ca.crt", key: "client-ca.key", signs_for: "clients" };

/// Longest name of a client in bytes: that of a principal.
const NAME_BYTES_MAX: usize = 64;

pub(super) fn run(args: &ClientCertificateArgs) -> Result<(), CliError> {
    check_name(&args.name)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    create_directory(&args.ca_dir)?;
    create_directory(&args.out)?;
    let (authority, is_new) = authority(&args.ca_dir, &AUTHORITY, now)?;
    let validity = Validity::of_days(now, args.days);
    let uri = format!("tidelock://client/{}", args.name);
    let (certificate, key) = authority.issue_client(&uri, validity).map_err(failed)?;
    let path = |extension| args.out.join(format!("{}.{extension}", args.name));
    let (certificate_path, key_path) = (path("crt"), path("key"));
    replace(&key_path, key.as_bytes(), 0o600)?;
    replace(&certificate_path, certificate.as_bytes(), 0o644)?;
    let (name, until) = (&args.name, rfc3339(validity.end_unix_s * 1000));
    let (certificate, key) = (certificate_path.display(), key_path.display());
    let authority = args.ca_dir.join(AUTHORITY.certificate);
    let made = if is_new { "a client CA and a certificate" } else { "a certificate" };
    let text = format!(
        "Made {made} for {name}, {certificate}, valid until {until}.\n\n\
         Nodes accept it with this flag:\n  tidelock serve --client-ca {}\n\n\
         It authenticates the principal that has its name:\n  \
         tidelock auth principal put {name} --role ROLE --certificate-name {uri}\n\n\
         The client presents it:\n  \
         tidelock login https://HOST:8001 --ca ca.crt --client-cert {certificate} --client-key {key}\n",
        authority.display()
    );
    io::stdout().write_all(text.as_bytes()).map_err(CliError::io("standard output"))
}

/// Checks that the name can be part of a URI and of the name of a file.
fn check_name(name: &str) -> Result<(), CliError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    let has_length = (1..=NAME_BYTES_MAX).contains(&name.len());
    if has_length && name.bytes().all(is_plain) && !name.starts_with(['.', '-']) {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "`{name}` cannot be the name of a client: write 1 to {NAME_BYTES_MAX} letters, digits and the characters `.`, `_`, \
         `-` and `@`, of which `.` and `-` are not the first"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_and_of_principals() {
        for name in ["ann", "web-1.example", "a_b@c"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", ".", "..", "../a", "a/b", "a b", "-a", "ä", "a\0", "*", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
