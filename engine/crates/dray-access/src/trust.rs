//! Fetches authorities, revocation lists and issuers' keys into a folder, as the section `[trust]`
//! of the configuration describes.
//!
//! Non-goals: the time of an update. A command or the endpoint's timer calls [`update`].
//!
//! Invariant owned here: a file in the folder is replaced only by a file that has passed all checks,
//! in one step that a crash cannot interrupt.

mod check;
mod fetch;

use crate::keys::{FILE_BYTES_MAX, TEMPORARY, authorities_named, certificates, files};
use crate::now;
use dray_auth::x509::Validity;
use dray_config::{Config, TrustKind};
use dray_core::{End, Error, ErrorKind, Result};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Maximum number of URLs that are read from one `.crl_url` file.
const URLS_MAX: usize = 16;

/// Maximum size of a `.crl_url` file in bytes.
const URL_FILE_BYTES_MAX: u64 = 64 << 10;

/// Mode of the fetched files. They are public, and other programs may read them too.
const MODE: u32 = 0o644;

/// The result of the update of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The file was replaced.
    Updated,
    /// The fetched file equals the present file.
    Unchanged,
    /// The update failed for this reason. The present file, if there is one, was kept.
    Kept(Error),
}

impl Outcome {
    /// Returns the name in the output of `dray trust update`.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Kept(_) => "kept",
        }
    }
}

/// The report about one file.
#[derive(Debug, Clone)]
pub struct Item {
    /// Path of the file.
    pub file: PathBuf,
    /// Content of the file.
    pub kind: TrustKind,
    /// The result of the update.
    pub outcome: Outcome,
    /// Time in which the file that is in use now is valid. `None` for keys, and if there is no file.
    pub validity: Option<Validity>,
    /// A warning, if the file in use has expired or expires soon.
    pub warning: Option<String>,
}

impl Item {
    /// Returns the report as JSON, with times in seconds since 1970.
    #[must_use]
    pub fn json(&self) -> Value {
        let reason = match &self.outcome {
            Outcome::Kept(error) => Some(error.to_string()),
            Outcome::Updated | Outcome::Unchanged => None,
        };
        json!({
            "file": self.file.display().to_string(),
            "kind": self.kind.word(),
            "result": self.outcome.word(),
            "reason": reason,
            "expires_at": self.validity.map(|validity| validity.not_after),
            "warning": self.warning,
        })
    }
}

/// A file to fetch. The first of the URLs that gives a good file is used.
struct Wanted {
    file: PathBuf,
    kind: TrustKind,
    urls: Vec<String>,
    ca: Option<PathBuf>,
    /// The only authorities that may sign the list. Empty if every trusted authority may.
    signers: Vec<CertificateDer<'static>>,
}

/// Fetches all files of the section `[trust]`. Calls `tell` with the report about each file. A file
/// that cannot be fetched, or that fails a check, does not stop the update of the others.
///
/// # Errors
/// If the section names nothing to fetch, if the folder cannot be created, or if the folder
/// `trust.crl_urls` or the trusted authorities cannot be read.
pub fn update(config: &Config, mut tell: impl FnMut(&Item)) -> Result<()> {
    let folder = config.trust.folder(&config.state);
    let mut wanted = Vec::new();
    for source in &config.trust.source {
        wanted.push(Wanted {
            file: folder.join(&source.name),
            kind: source.kind,
            urls: vec![source.url.clone()],
            ca: source.ca.clone(),
            signers: Vec::new(),
        });
    }
    if let Some(igtf) = &config.trust.crl_urls {
        for (stem, urls) in crl_urls(igtf)? {
            wanted.push(Wanted {
                file: folder.join(format!("{stem}.r0")),
                kind: TrustKind::Crl,
                urls,
                ca: None,
                // Without them, the list of another authority could take the place of this list.
                signers: authorities_named(igtf, &stem)?,
            });
        }
    }
    if wanted.is_empty() {
        let operation = "update the trusted files";
        return Err(Error::new(ErrorKind::InvalidRequest, End::Here, operation)
            .cause("the configuration names nothing to fetch")
            .remedy("add trust.crl_urls or a [[trust.source]] to the configuration"));
    }
    fs::create_dir_all(&folder).map_err(|error| failed("create", &folder, &error))?;
    // Fetch authorities first, so that the lists can be checked with new authorities.
    wanted.sort_by_key(|one| one.kind != TrustKind::Authorities);
    for one in &wanted {
        // Read the authorities again for each list: an earlier file may have changed them.
        let authorities = match one.kind {
            TrustKind::Crl if !one.signers.is_empty() => one.signers.clone(),
            TrustKind::Crl => trusted(config, &folder)?,
            TrustKind::Authorities | TrustKind::Jwks => Vec::new(),
        };
        tell(&one.update(&authorities, now()));
    }
    Ok(())
}

impl Wanted {
    fn update(&self, authorities: &[CertificateDer<'static>], now: u64) -> Item {
        let old = present(&self.file);
        let fetched = match &old {
            Ok(old) => self.fetch(old.as_deref(), authorities, now),
            Err(error) => Err(error.clone()),
        };
        let old = old.ok().flatten();
        let mut validity = old.as_deref().and_then(|old| check::valid(self.kind, old));
        let outcome = match fetched {
            Ok((new, found)) => {
                let is_same = old.as_deref() == Some(&*new);
                let written = match is_same {
                    true => Ok(Outcome::Unchanged),
                    false => write(&self.file, &new).map(|()| Outcome::Updated),
                };
                if written.is_ok() {
                    validity = found;
                }
                written.unwrap_or_else(Outcome::Kept)
            }
            Err(error) => Outcome::Kept(error),
        };
        Item {
            file: self.file.clone(),
            kind: self.kind,
            warning: validity.and_then(|validity| validity.warning(now)),
            validity,
            outcome,
        }
    }

    /// Fetches the file from the first URL that gives a good file.
    fn fetch(
        &self,
        old: Option<&[u8]>,
        authorities: &[CertificateDer<'static>],
        now: u64,
    ) -> Result<(Vec<u8>, Option<Validity>)> {
        let mut first: Option<Error> = None;
        for url in &self.urls {
            let is_signed = self.kind == TrustKind::Crl;
            let good = fetch::fetch(url, is_signed, self.ca.as_deref()).and_then(|new| {
                let validity = check::check(self.kind, &new, old, authorities, now);
                Ok((new, validity.map_err(|error| from(error, url))?))
            });
            match good {
                Ok(good) => return Ok(good),
                Err(error) => first = Some(first.unwrap_or(error)),
            }
        }
        Err(first.unwrap_or_else(|| {
            Error::new(
                ErrorKind::InvalidRequest,
                End::Here,
                "fetch the revocation list",
            )
            .cause(format!("no URL is known for {}", self.file.display()))
            .remedy("install the files of the authority again")
        }))
    }
}

/// Adds the URL to the cause of an error about the file from this URL.
fn from(error: Error, url: &str) -> Error {
    let cause = format!("{url}: {}", error.cause);
    error.cause(cause)
}

/// Returns the present content of a file. `None` if the file does not exist.
fn present(path: &Path) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

/// Replaces a file in one step: writes a temporary file, syncs it, renames it, and syncs the folder.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let replaced = || -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .permissions(Permissions::from_mode(MODE))
            .tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    };
    replaced().map_err(|error| failed("write", path, &error))
}

fn failed(verb: &str, path: &Path, error: &io::Error) -> Error {
    let operation = format!("{verb} {}", path.display());
    Error::new(error.kind().into(), End::Here, operation)
        .cause(error.to_string())
        .remedy("correct the folder or its mode (trust.folder in the configuration)")
}

/// Returns the certificates of all authorities that may sign revocation lists.
fn trusted(config: &Config, folder: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let (tls, trust) = (&config.tls, &config.trust);
    let named = [&tls.client_ca, &tls.peers_ca, &trust.crl_urls];
    let mut all = certificates(folder)?;
    for path in named.into_iter().flatten() {
        all.extend(certificates(path)?);
    }
    Ok(all)
}

/// Returns the URLs in the files `NAME.crl_url` of a folder, by NAME. A distribution of the IGTF has
/// several names for a file, which are links. Only one of them is returned: a hash, if there is one.
fn crl_urls(folder: &Path) -> Result<BTreeMap<String, Vec<String>>> {
    let mut names: BTreeMap<PathBuf, String> = BTreeMap::new();
    for file in files(folder)? {
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        let is_list = file.extension().is_some_and(|end| end == "crl_url");
        let (Some(stem), true) = (stem, is_list) else {
            continue;
        };
        let real = fs::canonicalize(&file).map_err(|error| failed("read", &file, &error))?;
        let is_hash = |name: &str| name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit());
        let name = names.entry(real).or_insert_with(|| stem.to_owned());
        if is_hash(stem) && !is_hash(name) {
            stem.clone_into(name);
        }
    }
    let mut urls = BTreeMap::new();
    for (file, name) in names {
        let mut text = String::new();
        File::open(&file)
            .and_then(|opened| opened.take(URL_FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|error| failed("read", &file, &error))?;
        let lines = text.lines().map(str::trim);
        let is_url = |line: &&str| {
            ["http://", "https://", "file:///"]
                .iter()
                .any(|scheme| line.starts_with(scheme))
        };
        let found = lines.filter(is_url).take(URLS_MAX).map(str::to_owned);
        urls.insert(name, found.collect());
    }
    Ok(urls)
}

#[cfg(test)]
mod tests;
