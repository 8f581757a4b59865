//! What the client commands of `tidelock` share: the HTTP client of the nodes, its errors, keys in
//! URLs and on the terminal, the user's profiles, and standard output.
//!
//! Below the binary and `tidelock bench`, so that both use one client without the one depending on
//! the other. Knows no command, and no meaning of a request or an answer beyond its status.

mod authorities;
mod certificate;
mod client;
mod connection;
mod connector;
mod error;
pub mod keys;
mod node_url;
pub mod output;
pub mod private_file;
pub mod profiles;
mod token;

pub use authorities::CertificateAuthorities;
pub use certificate::{CertificateArgs, CertificatePaths, ClientCertificate};
pub use client::{Call, Client, Response};
pub use connection::{ClientOptions, ConnectionArgs, DEFAULT_URL};
pub use error::{CliError, Refusal};
pub use node_url::NodeUrl;
pub use output::Output;
pub use token::Token;
pub use ureq::http;
