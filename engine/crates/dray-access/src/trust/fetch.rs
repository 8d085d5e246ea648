//! Fetches a file from a web server or from a folder.

use crate::keys::{FILE_BYTES_MAX, certificates, read};
use dray_core::{End, Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Maximum time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(15);

/// Maximum time of one request with its answer. The largest revocation lists of the IGTF have some
/// MiB.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// Maximum number of redirects in a row.
const REDIRECTS_MAX: u32 = 5;

/// Fetches the file at a URL. If `is_signed`, the file protects itself by a signature, so the server
/// need not use TLS. `ca` names the authorities of the server; `None` means those of the system.
///
/// # Errors
/// If the file cannot be fetched or is larger than the maximum size of a file of keys.
pub(super) fn fetch(url: &str, is_signed: bool, ca: Option<&Path>) -> Result<Vec<u8>> {
    if let Some(path) = url.strip_prefix("file://") {
        return read(Path::new(path));
    }
    let failed = |error: &ureq::Error| {
        let kind = match error {
            ureq::Error::Timeout(_) => ErrorKind::TimedOut,
            ureq::Error::StatusCode(404) => ErrorKind::NotFound,
            ureq::Error::BodyExceedsLimit(_) => ErrorKind::LimitExceeded,
            _ => ErrorKind::Unreachable,
        };
        Error::new(kind, End::Network, format!("fetch {url}"))
            .cause(error.to_string())
            .remedy("check the URL, and the connection from this host to the server")
    };
    let mut answer = agent(is_signed, ca)?
        .get(url)
        .call()
        .map_err(|error| failed(&error))?;
    let body = answer.body_mut().with_config().limit(FILE_BYTES_MAX);
    body.read_to_vec().map_err(|error| failed(&error))
}

fn agent(is_signed: bool, ca: Option<&Path>) -> Result<ureq::Agent> {
    let roots = match ca {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let roots = roots
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .https_only(!is_signed)
        .proxy(ureq::Proxy::try_from_env())
        .max_redirects(REDIRECTS_MAX)
        .user_agent(concat!("dray/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT_MAX))
        .timeout_global(Some(REQUEST_MAX));
    Ok(config.build().into())
}
