//! Reads keys and certificates from files, from folders, and from the URLs of issuers.
//!
//! The module `keyring` decides when an issuer's keys are fetched.

use super::Future;
use super::authority_files::AuthorityFiles;
use super::keyring::{Fetch, Pace, Source};
use dray_auth::jwk::KeySet;
use dray_client::{Client, Keeper};
use dray_config::Issuer;
use dray_core::{End, Error, ErrorKind, Result};
use dray_net::{Authority, Trust};
use hyper::Method;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Limits of network requests to an issuer. One request per minute is enough to notice a changed
/// key. An attacker who sends bad tokens cannot raise the rate above that.
const URL_PACE: Pace = Pace {
    fetch: Duration::from_secs(10),
    asked: Duration::from_secs(60),
    failed: Duration::from_secs(5),
};

/// Limits of reads of a local key file.
const FILE_PACE: Pace = Pace {
    asked: Duration::from_secs(5),
    ..URL_PACE
};

/// Maximum size in bytes of a file of keys, certificates or revocation lists. A larger file is an
/// error: if only a part of a revocation list were read, a certificate that the unread part revokes
/// would be accepted.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;

/// Start of the names of temporary files in a folder of fetched files. A crash may leave such a
/// file.
pub(super) const TEMPORARY: &str = ".new-";

/// Path of the document that names the URL of an issuer's keys (OpenID Connect Discovery 1.0,
/// section 4).
const DISCOVERY: &str = "/.well-known/openid-configuration";

enum KeyLocation {
    File(PathBuf),
    /// The URL of the keys.
    Url(String),
    /// The URL of the document that names the URL of the keys.
    Discovery(String),
}

/// The configured source of one issuer's keys.
struct IssuerKeys {
    issuer: String,
    from: KeyLocation,
    ca: AuthorityFiles,
}

/// Returns the source of an issuer's keys, as configured.
pub(super) fn source(issuer: &Issuer) -> Source {
    let from = match issuer.keys.as_deref() {
        None => KeyLocation::Discovery(discovery_url(&issuer.url)),
        Some(url) if url.starts_with("https://") => KeyLocation::Url(url.to_owned()),
        Some(file) => KeyLocation::File(file.into()),
    };
    let mut pace = match from {
        KeyLocation::File(_) => FILE_PACE,
        KeyLocation::Url(_) | KeyLocation::Discovery(_) => URL_PACE,
    };
    // A `cache_seconds` that is shorter than the default interval needs more frequent requests.
    let cache = Duration::from_secs(issuer.cache_seconds.max(4));
    pace.asked = pace.asked.min(cache / 4);
    Source {
        issuer: issuer.url.clone(),
        keys: Box::new(IssuerKeys {
            issuer: issuer.url.clone(),
            from,
            ca: AuthorityFiles::new(issuer.ca.clone(), authorities),
        }),
        cache_seconds: issuer.cache_seconds,
        stale_seconds: issuer.stale_seconds,
        pace,
    }
}

/// Returns a warning if an issuer's key file cannot be read or parsed now.
pub(super) fn keys_missing(issuer: &Issuer) -> Option<String> {
    let file = issuer.keys.as_deref();
    let file = file.filter(|file| !file.starts_with("https://"))?;
    let keys = read(Path::new(file));
    let cause = match keys.map(|json| KeySet::parse(&json, super::now())) {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) | Err(error) => error,
    };
    Some(format!(
        "tokens of {} are refused until the keys in {file} can be read: {cause}",
        issuer.url
    ))
}

impl Fetch for IssuerKeys {
    fn fetch(&self, now: u64) -> Future<'_, Result<KeySet>> {
        Box::pin(async move {
            let json = match &self.from {
                KeyLocation::File(path) => read(path)?,
                KeyLocation::Url(url) => self.load(url).await?.to_string().into_bytes(),
                KeyLocation::Discovery(url) => {
                    let document = self.load(url).await?;
                    let named = document.get("jwks_uri").and_then(Value::as_str);
                    let named = named.ok_or_else(|| {
                        self.wrong("the issuer's discovery document has no jwks_uri")
                    })?;
                    self.load(named).await?.to_string().into_bytes()
                }
            };
            KeySet::parse(&json, now)
        })
    }
}

impl IssuerKeys {
    async fn load(&self, url: &str) -> Result<Value> {
        let (client, path) = server_of(url, &self.ca)?
            .ok_or_else(|| self.wrong("the issuer does not serve its keys over HTTPS"))?;
        client.call(Method::GET, path, None).await
    }

    fn wrong(&self, cause: &str) -> Error {
        let operation = format!("get the keys of {}", self.issuer);
        Error::new(ErrorKind::Unauthorized, End::Here, operation)
            .cause(cause)
            .remedy("set the path or URL of the issuer's keys in the endpoint's configuration")
    }
}

/// Returns a client of the server that a URL names, and the path and query of the URL. Returns
/// `None` if the URL does not begin with `https://`. `authorities` are those of the server.
///
/// # Errors
/// The errors of [`authorities`].
pub(super) fn server_of<'a>(
    url: &'a str,
    authorities: &AuthorityFiles,
) -> Result<Option<(Client, &'a str)>> {
    let Some(rest) = url.strip_prefix("https://") else {
        return Ok(None);
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let address = match host.rsplit_once(':') {
        Some((_, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host.to_owned(),
        _ => format!("{host}:443"),
    };
    let client = Client {
        address,
        trust: Trust::Authority(authorities.read()?),
        identity: None,
        token: None,
        answer_bytes_max: dray_client::ANSWER_BYTES_MAX,
        trace: None,
        kept: Keeper::default(),
    };
    Ok(Some((client, if path.is_empty() { "/" } else { path })))
}

/// Returns the URL of the discovery document of an issuer.
pub(super) fn discovery_url(issuer: &str) -> String {
    format!("{}{DISCOVERY}", issuer.trim_end_matches('/'))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let operation = format!("read {}", path.display());
    Error::new(error.kind().into(), End::Here, operation).cause(error.to_string())
}

/// Reads a key file that the endpoint's configuration names.
///
/// # Errors
/// If the file cannot be read, or has more than [`FILE_BYTES_MAX`] bytes.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            unreadable(path, &error).remedy(
                "correct the path of the key file in the endpoint's configuration, or \
                    the mode of the key file",
            )
        })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let operation = format!("read {}", path.display());
        return Err(Error::new(ErrorKind::LimitExceeded, End::Here, operation)
            .cause(format!("the key file has more than {FILE_BYTES_MAX} bytes"))
            .remedy(
                "correct the path of the key file in the endpoint's configuration, or split \
                the key file",
            ));
    }
    Ok(bytes)
}

/// Returns true for the content of a file in DER form: a certificate or a revocation list.
pub(super) fn is_der(bytes: &[u8]) -> bool {
    const DER_SEQUENCE: u8 = 0x30;
    bytes.first() == Some(&DER_SEQUENCE)
}

/// Returns the revocation lists of a file in DER or PEM form. The content of a list is not checked.
///
/// # Errors
/// If a PEM section is malformed.
pub(super) fn lists_in(
    bytes: &[u8],
) -> std::result::Result<Vec<CertificateRevocationListDer<'_>>, pem::Error> {
    match is_der(bytes) {
        true => Ok(vec![bytes.into()]),
        false => CertificateRevocationListDer::pem_slice_iter(bytes).collect(),
    }
}

/// Returns all certificates of a PEM file, or of the PEM files in a folder, as DER.
///
/// # Errors
/// If a file cannot be read.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let mut all = Vec::new();
    for file in files(path)? {
        let bytes = match read(&file) {
            // A folder of authorities also contains policies and revocation lists. Skip a large
            // file, which is no certificate.
            Err(error) if error.kind == ErrorKind::LimitExceeded && file != path => continue,
            read => read?,
        };
        let found = CertificateDer::pem_slice_iter(&bytes)
            .flatten()
            .collect::<Vec<_>>();
        all.extend(found);
    }
    Ok(all)
}

/// Returns the certificates of the authority to which a file NAME.* of a folder in the layout of the
/// IGTF belongs: those in the files `NAME.pem`, `NAME.0` and so on.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn authorities_named(folder: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>> {
    let mut found = Vec::new();
    // Authorities with the same hash have the endings `.0`, `.1` and so on.
    let numbers = ('0'..='9').map(String::from);
    for ending in std::iter::once("pem".to_owned()).chain(numbers) {
        let file = folder.join(format!("{name}.{ending}"));
        if file.is_file() {
            found.extend(certificates(&file)?);
        }
    }
    Ok(found)
}

/// Returns the sorted files in the folder `path`, without temporary files. If `path` is a file,
/// returns `path` itself.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error: std::io::Error| {
        unreadable(path, &error).remedy(
            "correct the path of the key folder in the endpoint's configuration, or the \
                mode of the key folder",
        )
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let is_temporary = name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        let path = entry.path();
        if !is_temporary && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the authorities in a file or folder, or those of the system if `path` is `None`.
///
/// # Errors
/// If there is no authority, or if a file cannot be read.
pub fn authorities(path: Option<&Path>) -> Result<Authority> {
    match path {
        Some(path) => Authority::new(certificates(path)?),
        None => Authority::new(rustls_native_certs::load_native_certs().certs),
    }
}

#[cfg(test)]
mod tests {
    use super::{FILE_BYTES_MAX, TEMPORARY, files, keys_missing, read};
    use dray_config::Config;

    #[test]
    fn a_file_with_too_many_bytes_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lists.pem");
        let file = std::fs::File::create(&path).expect("created");
        file.set_len(FILE_BYTES_MAX).expect("grown");
        assert_eq!(read(&path).expect("read").len() as u64, FILE_BYTES_MAX);
        file.set_len(FILE_BYTES_MAX + 1).expect("grown");
        let error = read(&path).expect_err("too large");
        assert!(error.cause.contains("more than"), "{error}");
    }

    #[test]
    fn a_temporary_file_that_a_crash_has_left_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let good = folder.path().join("ca.pem");
        let left = folder.path().join(format!("{TEMPORARY}a1b2c3"));
        for path in [&good, &left] {
            std::fs::write(path, "").expect("written");
        }
        assert_eq!(files(folder.path()).expect("read"), [good]);
    }

    #[test]
    fn a_file_of_keys_that_is_not_good_is_told_of_with_its_issuer() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys.jwks");
        let told = |keys: &str| {
            let text = format!(
                "name = \"a\"\nstate = \"/s\"\n[[root]]\nname = \"data\"\npath = \"/data\"\n\
                 [[issuer]]\nurl = \"https://i.example\"\naudiences = [\"a\"]\n{keys}"
            );
            let config = Config::parse("test", &text).expect("good");
            keys_missing(&config.issuer[0])
        };
        let of_file = format!("keys = {file:?}\n");
        for content in [None, Some("no keys at all")] {
            if let Some(content) = content {
                std::fs::write(&file, content).expect("written");
            }
            let word = told(&of_file).expect("told");
            for part in ["https://i.example", "keys.jwks"] {
                assert!(word.contains(part), "{word}");
            }
        }
        // Keys at a URL are fetched only when a token needs them, so nothing is missing at the
        // start.
        assert_eq!(told(""), None);
        assert_eq!(told("keys = \"https://i.example/keys\"\n"), None);
    }
}
