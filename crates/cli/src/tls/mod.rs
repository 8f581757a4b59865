//! `tidelock tls`: certificates of hosts and clients, without a certificate authority of the
//! user's.
//!
//! `init` and `client` create certificates offline, and `authority` rotates the CA of a `--secure`
//! cluster. Owns the directories that it writes and what it prints; the server's `tls::issue` owns
//! the contents of certificates. Invariants: keys are readable only to their owner from the moment
//! they exist; a file is replaced at once, so that a node never reads half of one.

mod authority;
mod client;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tidelock_client::CliError;
use tidelock_client::private_file::replace;
use tidelock_core::certified_host::CertifiedHost;
use tidelock_server::tls::issue::{CertificateAuthority, Validity};
use tidelock_server::tls::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, certified_host};
use uuid::Uuid;

use crate::args::{InitArgs, TlsArgs, TlsCommand};
use crate::time::rfc3339;

/// The private key of the authority.
const AUTHORITY_KEY_FILE: &str = "ca.key";

/// The files of a CA in a directory, and for whom it signs.
struct CaFiles<'a> {
    certificate: &'static str,
    key: &'static str,
    signs_for: &'a str,
}

/// Longest name of a host, in bytes: that of DNS.
const HOST_BYTES_MAX: usize = 253;

/// Longest name of a cluster, as `serve` has it.
const CLUSTER_NAME_BYTES_MAX: usize = tidelock_server::config::CLUSTER_NAME_BYTES_MAX;

/// Runs a command of `tls`.
pub fn run(args: TlsArgs) -> Result<(), CliError> {
    match args.command {
        TlsCommand::Init(args) => init(&args),
        TlsCommand::Client(args) => client::run(&args),
        TlsCommand::Authority(args) => authority::run(&args),
    }
}

/// A host of the command line.
struct HostArg {
    name: String,
    /// The uuid of its data directory, if that exists.
    uuid: Option<Uuid>,
}

impl HostArg {
    fn parse(text: &str) -> Result<HostArg, CliError> {
        let (name, uuid) = match text.split_once('=') {
            None => (text, None),
            Some((name, uuid)) => {
                let wrong = |_| CliError::Usage(format!("--hosts: `{uuid}` is not the uuid of a host"));
                (name, Some(Uuid::try_parse(uuid.trim()).map_err(wrong)?))
            }
        };
        let name = name.trim().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
        let is_name = !name.is_empty() && name.len() <= HOST_BYTES_MAX && name.chars().all(is_plain);
        // Its first character: the name is that of a directory too.
        if name.parse::<IpAddr>().is_err()
            && !(is_name && name.starts_with(|char| char != '.' && char != '-'))
        {
            return Err(CliError::Usage(format!(
                "--hosts: `{name}` is not a name or an IP address; write them without ports, such as kv-1.example.org or \
                 10.0.0.1"
            )));
        }
        Ok(HostArg { name, uuid })
    }
}

fn init(args: &InitArgs) -> Result<(), CliError> {
    let hosts = args.hosts.iter().map(|text| HostArg::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let names: BTreeSet<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    if names.len() < hosts.len() {
        return Err(CliError::Usage("--hosts: a host is listed more than once".to_owned()));
    }
    check_cluster_name(&args.cluster_name)?;
    let out = args.out.as_path();
    create_directory(out)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let files =
        CaFiles { certificate: AUTHORITY_FILE, key: AUTHORITY_KEY_FILE, signs_for: &args.cluster_name };
    let (authority, is_new) = authority(out, &files, now)?;
    let validity = Validity::of_days(now, args.days);
    for host in &hosts {
        let directory = out.join(&host.name);
        let certified = certified(host, &directory, &args.cluster_name)?;
        let (certificate, key) =
            authority.issue(std::slice::from_ref(&host.name), &certified, validity).map_err(failed)?;
        create_directory(&directory)?;
        replace(&directory.join(AUTHORITY_FILE), authority.certificate().as_bytes(), 0o644)?;
        replace(&directory.join(KEY_FILE), key.as_bytes(), 0o600)?;
        replace(&directory.join(CERTIFICATE_FILE), certificate.as_bytes(), 0o644)?;
    }
    let text = instructions(args, &hosts, (is_new, validity));
    io::stdout().write_all(text.as_bytes()).map_err(CliError::io("standard output"))
}

/// The authority of the directory, and whether it was made now.
fn authority(
    directory: &Path,
    files: &CaFiles<'_>,
    now: u64,
) -> Result<(CertificateAuthority, bool), CliError> {
    let (key_path, certificate_path) = (directory.join(files.key), directory.join(files.certificate));
    match fs::read_to_string(&key_path) {
        Ok(key) => {
            let certificate = fs::read_to_string(&certificate_path)
                .map_err(CliError::io(certificate_path.display().to_string()))?;
            let known = CertificateAuthority::load(certificate, &key);
            Ok((known.map_err(|error| unusable(&key_path, &error))?, false))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Without its key the certificate is that of another authority, which must not be lost.
            if certificate_path.exists() {
                let path = certificate_path.display();
                return Err(CliError::Usage(format!(
                    "{path} exists without {}, its key; give another directory, or put the key there",
                    files.key
                )));
            }
            let (authority, key) = CertificateAuthority::new(files.signs_for, now).map_err(failed)?;
            replace(&key_path, key.as_bytes(), 0o600)?;
            replace(&certificate_path, authority.certificate().as_bytes(), 0o644)?;
            Ok((authority, true))
        }
        Err(error) => Err(CliError::io(key_path.display().to_string())(error)),
    }
}

/// What the certificate of a host says: the given uuid, that of its last certificate, or a new one.
fn certified(host: &HostArg, directory: &Path, cluster_name: &str) -> Result<CertifiedHost, CliError> {
    let path = directory.join(CERTIFICATE_FILE);
    let known = match fs::read(&path) {
        Ok(certificate) => Some(certified_host(&certificate).map_err(|error| unusable(&path, &error))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(CliError::io(path.display().to_string())(error)),
    };
    if let Some(known) = &known {
        if known.cluster_name != cluster_name {
            let (path, held) = (path.display(), &known.cluster_name);
            return Err(CliError::Usage(format!(
                "--cluster-name is `{cluster_name}`, and {path} is for a host of cluster `{held}`; give --cluster-name {held}, \
                 or another --out"
            )));
        }
        if let Some(given) = host.uuid.filter(|given| *given != known.host) {
            let (path, held) = (path.display(), known.host);
            return Err(CliError::Usage(format!(
                "--hosts: {path} is for host {held}, not {given}; delete the directory if the host is another one now"
            )));
        }
    }
    let uuid = host.uuid.or(known.map(|known| known.host)).unwrap_or_else(Uuid::new_v4);
    Ok(CertifiedHost { cluster_name: cluster_name.to_owned(), host: uuid })
}

fn check_cluster_name(name: &str) -> Result<(), CliError> {
    let certified = CertifiedHost { cluster_name: name.to_owned(), host: Uuid::max() }.to_string();
    if name.len() <= CLUSTER_NAME_BYTES_MAX && CertifiedHost::of_uris([certified.as_str()]).is_ok() {
        return Ok(());
    }
    Err(CliError::Usage(format!(
        "--cluster-name: `{name}` is not a name; write 1 to {CLUSTER_NAME_BYTES_MAX} letters, digits, dots, dashes and \
         underscores"
    )))
}

/// What to do with the files.
fn instructions(args: &InitArgs, hosts: &[HostArg], (is_new, validity): (bool, Validity)) -> String {
    let out = args.out.display();
    let until = rfc3339(validity.end_unix_s * 1000);
    let count = hosts.len();
    let verb = if is_new { "Made an authority and" } else { "Made" };
    let mut text = format!("{verb} certificates for {count} hosts in {out}, valid until {until}.\n\n");
    text += "Copy the directory of each host to it, readable only to the user that runs the node:\n";
    for HostArg { name, .. } in hosts {
        text += &format!("  scp -r {out}/{name} {name}:/etc/tidelock/tls\n");
    }
    let address = |name: &str, port| match name.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => format!("[{name}]:{port}"),
        _ => format!("{name}:{port}"),
    };
    let first = &hosts[0].name;
    let peers: Vec<String> = hosts.iter().map(|host| address(&host.name, 9001)).collect();
    let name = match args.cluster_name.as_str() {
        tidelock_server::config::DEFAULT_CLUSTER_NAME => String::new(),
        name => format!(" --cluster-name {name}"),
    };
    let addresses = format!(
        "--http {} --resp {} \\\n    --peer {}",
        address(first, 8001),
        address(first, 7001),
        address(first, 9001)
    );
    text += &format!(
        "\nTo found a cluster of these hosts, start each with its own addresses, such as the first:\n  \
         tidelock serve --data-dir /var/lib/tidelock --tls-dir /etc/tidelock/tls {addresses} --peers {}{name}\n\n\
         Clients trust {out}/{AUTHORITY_FILE}:\n  tidelock cluster status --url https://{} --ca {out}/{AUTHORITY_FILE}\n\n\
         {out}/{AUTHORITY_KEY_FILE} makes hosts of this cluster: keep it off the hosts. To renew, run the same \
         command\nagain and copy the directories again; nodes use changed files within ten seconds.\n",
        peers.join(","),
        address(first, 8001),
    );
    text
}

fn create_directory(path: &Path) -> Result<(), CliError> {
    fs::create_dir_all(path).map_err(CliError::io(path.display().to_string()))
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> CliError {
    CliError::Usage(format!("{}: {error}", path.display()))
}

fn failed(error: rcgen::Error) -> CliError {
    CliError::io("making a certificate")(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses() {
        for (text, name) in [
            ("a", "a"),
            ("kv-1.example.org", "kv-1.example.org"),
            ("10.0.0.1", "10.0.0.1"),
            ("[fd00::1]", "fd00::1"),
        ] {
            assert_eq!(HostArg::parse(text).unwrap().name, name);
        }
        let uuid = Uuid::from_u128(7);
        assert_eq!(HostArg::parse(&format!("a={uuid}")).unwrap().uuid, Some(uuid));
        for text in ["", ".", "..", "../a", "a/b", "a:8001", "a b", "-a", "a=", "a=b", "ä"] {
            assert!(HostArg::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cluster_name_is_one_that_serve_takes() {
        assert!(check_cluster_name("blue-1.x_y").is_ok());
        for name in ["", "a/b", "a b", "ä", &"a".repeat(65)] {
            assert!(check_cluster_name(name).is_err(), "{name}");
        }
    }
}
