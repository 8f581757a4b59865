//! Creation of a `--secure` cluster: its CA, the first certificate, and the administrator.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidelock_core::auth::{ADMIN_ROLE, Caller, Principal};
use tidelock_core::certified_host::CertifiedHost;
use tidelock_core::command::{AccessChange, AuthorityChange};
use uuid::Uuid;

use super::files::{CertificateDirectory, NewAuthority, failed, replace_file};
use super::{NodeCertificateError, is_temporary, names};
use crate::config::Settings;
use crate::requests::{self, TypedRequest};
use crate::store::Store;
use crate::tls::AUTHORITY_FILE;
use crate::tls::issue::{CertificateAuthority, HOST_DAYS, Validity};
use crate::token::BearerToken;
use crate::worker::Worker;

/// File with the administrator's token, in the data directory.
const ROOT_TOKEN_FILE: &str = "root.token";

/// Principal of the administrator.
const ROOT: &str = "root";

/// Time between two attempts while this node is not the leader yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Generates the CA and the first certificate of this node.
pub(super) fn make(settings: &Settings, files: &CertificateDirectory) -> Result<(), NodeCertificateError> {
    if settings.advertise.peer.is_loopback() {
        let peer = settings.advertise.peer.as_str();
        tracing::info!(peer, "no node of another machine can join a new cluster at this address: see --peer");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let cluster_name = settings.founding_name().to_owned();
    let (authority, authority_key) = CertificateAuthority::new(&cluster_name, now)?;
    let host = CertifiedHost { cluster_name, host: Uuid::new_v4() };
    let validity = Validity::of_days(now, HOST_DAYS);
    let (certificate, key) = authority.issue(&names(settings), &host, validity)?;
    files.begin()?;
    files.write_authority_key(&authority_key)?;
    files.write_all((certificate.as_bytes(), key.as_bytes()), authority.certificate().as_bytes())
}

/// Stores the CA and the administrator in the prime shard, requires authentication, and then
/// deletes the file with the CA's private key. Does nothing if the file does not exist.
pub(crate) async fn establish(settings: &Settings, worker: &Worker) -> Result<(), NodeCertificateError> {
    let files = CertificateDirectory::of(&settings.data_dir);
    if !settings.secure {
        return Ok(());
    }
    let Some(NewAuthority { certificate, key }) = files.authority()? else { return Ok(()) };
    let node = worker.for_caller(Caller::Node);
    let token_path = settings.data_dir.join(ROOT_TOKEN_FILE);
    let token = root_token(&token_path)?;
    complete(&node, || {
        let (certificate, key) = (certificate.clone(), key.clone());
        requests::change_authorities(AuthorityChange::Add { certificate, key })
    })
    .await?;
    let principal =
        || Principal { roles: [ADMIN_ROLE.to_owned()].into(), certificate_names: BTreeSet::new() };
    let changes = [
        AccessChange::PutPrincipal { name: ROOT.to_owned(), principal: principal() },
        AccessChange::AddToken {
            id: token.id,
            principal: ROOT.to_owned(),
            digest: token.digest(),
            lifetime_ms: None,
        },
        AccessChange::Require(true),
    ];
    for change in changes {
        complete(&node, || requests::change_access(change.clone())).await?;
    }
    files.forget_authority()?;
    log(settings, &token_path, &files);
    Ok(())
}

/// Sends a change, and retries until this node is the leader.
async fn complete<A>(
    node: &Worker,
    request: impl Fn() -> TypedRequest<Result<A, tidelock_core::command::Denial>>,
) -> Result<(), NodeCertificateError> {
    loop {
        match node.ask(request()).await {
            Ok(answer) => return answer.map(drop).map_err(NodeCertificateError::Denied),
            Err(error) if is_temporary(&error) => tokio::time::sleep(RETRY_INTERVAL).await,
            Err(error) => return Err(NodeCertificateError::NoAnswer(error)),
        }
    }
}

/// The administrator's token: reads that of an interrupted start, or generates one.
fn root_token(path: &Path) -> Result<BearerToken, NodeCertificateError> {
    let known = fs::read(path).ok();
    if let Some(token) = known.and_then(|text| BearerToken::parse(text.trim_ascii()).ok()) {
        return Ok(token);
    }
    let token = BearerToken::generate().map_err(|error| failed(path, error))?;
    replace_file(path, format!("{}\n", token.reveal()).as_bytes(), 0o600)?;
    Ok(token)
}

fn log(settings: &Settings, token: &Path, files: &CertificateDirectory) {
    let ca = files.directory().join(AUTHORITY_FILE);
    let url = format!("https://{}", settings.advertise.http);
    tracing::info!(
        token = %token.display(), ca = %ca.display(),
        "created a cluster with its own certificate authority. Log in with the administrator's token: \
         `tidelock login {url} --ca {} < {}`. Create a join token for each further host: `tidelock cluster join-token`",
        ca.display(), token.display()
    );
}
