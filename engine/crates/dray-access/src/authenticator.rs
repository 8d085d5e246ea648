//! Authenticates callers: verifies tokens and certificates with dray-auth, and maps the caller to
//! an owner. Checks the permissions of a principal (an authenticated caller) on a path.

use super::keyring::Keyring;
use super::keys::{
    authorities_named, certificates, files, is_der, keys_missing, lists_in, read, source,
};
use super::{Access, Action, Credentials, Future, OWN_PRINCIPAL, Principal, Rights, now};
use dray_api::api_path::ApiPath;
use dray_auth::jwk::KeySet;
use dray_auth::mint::SigningKey;
use dray_auth::x509::{Policy, PolicyFormat, Revocation, Trust};
use dray_auth::{Issuer, Issuers, Mapping, Resource, Verified};
use dray_config::roots::Roots;
use dray_config::{Config, Tls};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use ring::rand::SystemRandom;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval between checks of the files of authorities and revocation lists.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// State of each file when it was read: path, size in bytes and modification time.
type Seen = Vec<(PathBuf, u64, SystemTime)>;

/// The accepted certificate authorities and revocation lists.
struct Certificates {
    trust: Trust,
    /// Files of policies that have no effect.
    idle: BTreeSet<PathBuf>,
    /// Files of policies that cannot be parsed, each with its error.
    damaged: BTreeMap<PathBuf, Error>,
    seen: Seen,
    looked: Instant,
}

impl Certificates {
    /// Logs the damaged policies, and the policies without an effect that are not in `known`.
    fn report(&self, known: &BTreeSet<PathBuf>) {
        for error in self.damaged.values() {
            tracing::error!(
                "{error}; until the file is correct, the endpoint accepts no certificate of the \
                 authorities that the file names and of the authority with the name of the file"
            );
        }
        for word in idle_words(&self.idle, known) {
            tracing::warn!("{word}");
        }
    }
}

/// Implements [`Access`](crate::Access) from the configuration of an endpoint.
pub struct Authenticator {
    keyring: Keyring,
    tls: Tls,
    /// Authorities of client certificates. `None` if the configuration names no authority; the
    /// endpoint then accepts no client certificate.
    certificates: Mutex<Option<Certificates>>,
    mapping: Mapping,
    administrators: Vec<String>,
    roots: Roots,
    /// URLs of all issuers that this endpoint accepts.
    believed: Vec<String>,
}

impl Authenticator {
    /// Creates the authenticator that `config` describes. The keys of a token issuer are fetched
    /// when a token of that issuer first needs them.
    ///
    /// # Errors
    /// If the configuration is wrong, or if a file that the configuration names cannot be read.
    pub fn open(config: &Config, roots: Roots) -> Result<Self> {
        config.map.check()?;
        let issuer = |issuer: &dray_config::Issuer| Issuer {
            url: issuer.url.clone(),
            audiences: issuer.audiences.clone(),
            base: issuer.base.clone(),
            wlcg: issuer.wlcg,
        };
        let mut believed: Vec<String> = config.issuer.iter().map(|one| one.url.clone()).collect();
        believed.extend(config.issuer_local.as_ref().map(|_| own_url(config)));
        believed.extend(config.ui.login.iter().map(|login| login.issuer.clone()));
        let own = config.issuer_local.as_ref();
        let own = own
            .map(|local| own_issuer(config, &local.key))
            .transpose()?;
        let all = config.issuer.iter().map(issuer);
        let all = all.chain(own.iter().map(|(issuer, _)| issuer.clone()));
        let mut issuers = Issuers::new(all)?;
        if let Some((issuer, keys)) = own {
            issuers.set_keys(&issuer.url, keys);
        }
        let certificates = match &config.tls.client_ca {
            Some(_) => {
                let read = read_certificates(&config.tls)?;
                read.report(&BTreeSet::new());
                Some(read)
            }
            None => {
                // Without authorities the revocation lists have no effect. An invalid list is still
                // an error, because the administrator expects the list to be used.
                read_certificates(&config.tls)?;
                None
            }
        };
        for issuer in &config.issuer {
            if let Some(word) = keys_missing(issuer) {
                // Only warn: the file with the keys may appear later, and tokens of other issuers
                // can be verified.
                tracing::warn!("{word}");
            }
        }
        Ok(Self {
            keyring: Keyring::new(issuers, config.issuer.iter().map(source)),
            tls: config.tls.clone(),
            certificates: Mutex::new(certificates),
            mapping: config.map.clone(),
            administrators: config.administrators.clone(),
            roots,
            believed,
        })
    }

    fn principal_of(&self, verified: &Verified) -> Result<Principal> {
        let principal = dray_auth::Principal::from(verified);
        let owner = self.mapping.owner(&principal)?.as_str().to_owned();
        Ok(Principal {
            name: format!("{}@{}", verified.subject, verified.issuer),
            is_administrator: self.administrators.contains(&owner),
            owner,
            rights: Rights::Scopes(verified.scopes.clone()),
        })
    }

    fn by_certificate(&self, chain: &[CertificateDer<'static>]) -> Result<Principal> {
        let mut held = self.certificates.lock_unpoisoned();
        let Some(held) = held.as_mut() else {
            return Err(
                Error::new(ErrorKind::Unauthorized, End::Here, "accept the certificate")
                    .cause("this endpoint trusts no certificate authority for client certificates")
                    .remedy("show a token"),
            );
        };
        if held.looked.elapsed() > LOOK_INTERVAL {
            held.looked = Instant::now();
            let new = look(&self.tls).and_then(|seen| match seen == held.seen {
                true => Ok(None),
                false => read_certificates(&self.tls).map(Some),
            });
            match new {
                Ok(Some(new)) => {
                    new.report(&held.idle);
                    *held = new;
                }
                Ok(None) => {}
                // Keep the previous lists, so that revoked certificates stay revoked. The error is
                // logged again at each check until the file is corrected.
                Err(error) => tracing::error!(
                    "cannot reload the certificate authorities and revocation lists: {error}; the \
                     endpoint continues with the authorities and lists that it loaded before"
                ),
            }
        }
        let chain: Vec<&[u8]> = chain.iter().map(AsRef::as_ref).collect();
        let client = held.trust.verify_client(&chain, now())?;
        let name = client.subject.slash().to_owned();
        let principal = dray_auth::Principal::Certificate {
            subject: client.subject,
        };
        let owner = self.mapping.owner(&principal)?.as_str().to_owned();
        Ok(Principal {
            name,
            is_administrator: self.administrators.contains(&owner),
            owner,
            rights: Rights::Rules,
        })
    }
}

impl Access for Authenticator {
    fn authenticate<'a>(&'a self, credentials: Credentials<'a>) -> Future<'a, Result<Principal>> {
        Box::pin(async move {
            match credentials.bearer {
                Some(token) => self.principal_of(&self.keyring.verify(token).await?),
                None if credentials.certificates.is_empty() => {
                    Err(
                        Error::new(ErrorKind::Unauthorized, End::Here, "identify the caller")
                            .cause("the caller shows neither a token nor a certificate")
                            .remedy("send Authorization: Bearer TOKEN"),
                    )
                }
                None => self.by_certificate(credentials.certificates),
            }
        })
    }

    fn allow(&self, principal: &Principal, action: Action, path: &ApiPath) -> Result<()> {
        let has_scopes = !matches!(principal.rights, Rights::Rules);
        self.ask_root(&principal.owner, has_scopes, action, path)?;
        match &principal.rights {
            Rights::Scopes(scopes) => scopes.demand(scope_action(action), &resource(path)?),
            Rights::Granted(scopes) => {
                let (action, resource) = (scope_action(action), resource(path)?);
                scopes.demand(action, &resource).map_err(|error| {
                    let missing = scopes.missing(action, &resource).unwrap_or_default();
                    error
                        .cause(format!("the login does not grant the scope {missing}"))
                        .remedy("ask the endpoint's administrator for a grant with this scope")
                })
            }
            Rights::Rules => Ok(()),
        }
    }

    fn still_allow(
        &self,
        owner: &str,
        principal: &str,
        action: Action,
        path: &ApiPath,
    ) -> Result<()> {
        // The principal of a token is `sub@iss`. The principal of a certificate is its subject.
        let is_of = |issuer: &String| {
            let subject = principal.strip_suffix(issuer.as_str());
            subject.is_some_and(|subject| subject.ends_with('@'))
        };
        let by_token = self.believed.iter().any(is_of);
        let by_certificate = is_certificate(principal) && self.tls.client_ca.is_some();
        let is_own = principal == OWN_PRINCIPAL;
        if !(by_token || by_certificate || is_own) {
            let cause = format!(
                "{principal} is not confirmed by an issuer or certificate authority that this \
                    endpoint trusts"
            );
            return Err(denied(action, path, cause));
        }
        // If the root has no rule, the endpoint's own transfers have access, like a token with
        // scopes. The configuration names the owner and the roots of these transfers.
        self.ask_root(owner, by_token || is_own, action, path)
    }
}

/// Returns true if `principal` is the subject of a certificate. The principal of a token may begin
/// with `/` too, but it ends with `@` and the URL of an issuer.
fn is_certificate(principal: &str) -> bool {
    let place = principal.rsplit_once('@').map(|(_, place)| place);
    principal.starts_with('/') && !place.is_some_and(|place| place.starts_with("https://"))
}

impl Authenticator {
    /// Checks the rules of the root that contains `path`.
    fn ask_root(
        &self,
        owner: &str,
        has_scopes: bool,
        action: Action,
        path: &ApiPath,
    ) -> Result<()> {
        let root = self.roots.find(path)?;
        let changes = matches!(action, Action::Create | Action::MakeFolder | Action::Modify);
        if changes && root.is_read_only {
            let cause = format!("the root {} is read-only", root.name());
            return Err(denied(action, path, cause));
        }
        let (verb, rule) = match action {
            Action::Read => ("read", &root.read),
            Action::Create | Action::MakeFolder | Action::Modify => ("write", &root.write),
            Action::Stage => ("stage", &root.stage),
        };
        let is_ruled_out = match rule {
            Some(owners) => !owners.include(owner),
            // If the root has no rule, the scopes of a token decide. A certificate has no scopes,
            // so its holder has no access.
            None => !has_scopes,
        };
        if is_ruled_out {
            let cause = format!("the root {} does not permit {owner} to {verb}", root.name());
            return Err(denied(action, path, cause));
        }
        Ok(())
    }
}

fn denied(action: Action, path: &ApiPath, cause: String) -> Error {
    let operation = format!("{} {}", words(action), path.text());
    Error::new(ErrorKind::PermissionDenied, End::Here, operation)
        .cause(cause)
        .remedy("ask the endpoint's administrator")
}

const fn words(action: Action) -> &'static str {
    match action {
        Action::Read => "read",
        Action::Create => "create",
        Action::MakeFolder => "create the folder",
        Action::Modify => "change",
        Action::Stage => "stage",
    }
}

const fn scope_action(action: Action) -> dray_auth::Action {
    match action {
        Action::Read => dray_auth::Action::Read,
        Action::Create => dray_auth::Action::Create,
        Action::MakeFolder => dray_auth::Action::MakeFolder,
        Action::Modify => dray_auth::Action::Replace,
        Action::Stage => dray_auth::Action::Stage,
    }
}

/// Converts a path to the form that scopes use, in which the root's name is the first part.
fn resource(path: &ApiPath) -> Result<Resource> {
    let whole = RelPath::parse(path.root.as_bytes())?.join_path(&path.path)?;
    Ok(match path.is_folder {
        true => Resource::folder(whole),
        false => Resource::file(whole),
    })
}

/// Returns the issuer of the tokens that `dray token mint` makes for this endpoint, and its keys.
///
/// # Errors
/// If the key file cannot be read.
pub fn own_issuer(config: &Config, key: &Path) -> Result<(Issuer, KeySet)> {
    let pem = std::fs::read(key).map_err(|error| {
        let operation = format!("read the key of the local issuer {}", key.display());
        Error::new(error.kind().into(), End::Here, operation)
            .cause(error.to_string())
            .remedy(
                "correct issuer_local.key in the endpoint's configuration, or remove this setting",
            )
    })?;
    let key = SigningKey::from_pem(&pem, &SystemRandom::new())?;
    let keys = KeySet::parse(key.public_jwks().as_bytes(), now())?;
    let issuer = Issuer {
        url: own_url(config),
        audiences: vec![own_url(config), config.name.clone()],
        base: "/".to_owned(),
        wlcg: true,
    };
    Ok((issuer, keys))
}

/// Returns the values of `iss` and `aud` in this endpoint's own tokens.
#[must_use]
pub fn own_url(config: &Config) -> String {
    format!("https://{}", config.name)
}

fn look(tls: &Tls) -> Result<Seen> {
    let mut seen = Vec::new();
    for path in [&tls.client_ca, &tls.crl].into_iter().flatten() {
        for file in files(path)? {
            let Ok(metadata) = file.metadata() else {
                continue;
            };
            let time = metadata.modified().unwrap_or(UNIX_EPOCH);
            seen.push((file, metadata.len(), time));
        }
    }
    Ok(seen)
}

fn read_certificates(tls: &Tls) -> Result<Certificates> {
    // Record the state before the files are read. A file that changes during the read is then read
    // again.
    let seen = look(tls)?;
    let mut trust = Trust::new(Revocation {
        // Accept an authority that has no revocation list. If an authority has a list that is past
        // its `nextUpdate` time, refuse all certificates of that authority.
        demanded: false,
        stale: false,
    });
    let mut policies = BTreeMap::new();
    let mut damaged = BTreeMap::new();
    for path in tls.client_ca.iter() {
        for file in files(path)? {
            if let Some((policy, error)) = policy(&file)? {
                trust.add_policy(&policy);
                // A distribution of the IGTF has several names for a file, which are links.
                let place = file.canonicalize().unwrap_or(file);
                damaged.extend(error.map(|error| (place.clone(), error)));
                policies.insert(place, policy);
                continue;
            }
            for certificate in certificates(&file)? {
                let added = trust.add_authority(&certificate);
                added.map_err(|error| in_file(error, &file))?;
            }
        }
    }
    for path in tls.crl.iter() {
        for file in files(path)? {
            for list in revocation_lists(&file, file == *path)? {
                let added = trust.add_revocation_list(&list);
                added.map_err(|error| in_file(error, &file))?;
            }
        }
    }
    let mut idle = policies;
    idle.retain(|_, policy| trust.is_policy_idle(policy));
    Ok(Certificates {
        idle: idle.into_keys().collect(),
        damaged,
        trust,
        seen,
        looked: Instant::now(),
    })
}

/// Reads the policy in a file `NAME.signing_policy` or `NAME.namespaces`. If the file cannot be
/// parsed, returns the error and a policy that denies the authority of the file. Returns `None` for a
/// file with another name.
fn policy(file: &Path) -> Result<Option<(Policy, Option<Error>)>> {
    let format = match file.extension().and_then(|ending| ending.to_str()) {
        Some("signing_policy") => PolicyFormat::Signing,
        Some("namespaces") => PolicyFormat::Namespaces,
        _ => return Ok(None),
    };
    let text = String::from_utf8_lossy(&read(file)?).into_owned();
    let name = file.file_stem().and_then(|name| name.to_str());
    let own = match (file.parent(), name) {
        (Some(folder), Some(name)) => authorities_named(folder, name)?,
        _ => Vec::new(),
    };
    let own: Vec<&[u8]> = own.iter().map(AsRef::as_ref).collect();
    Ok(Some(match Policy::parse(format, &text, &own) {
        Ok(policy) => (policy, None),
        Err(error) => {
            let denying = Policy::denying(format, &text, &own);
            let denying = denying.map_err(|error| in_file(error, file))?;
            (denying, Some(in_file(error, file)))
        }
    }))
}

/// Returns a warning for each file of `idle` that is not in `known`.
fn idle_words(idle: &BTreeSet<PathBuf>, known: &BTreeSet<PathBuf>) -> Vec<String> {
    let new = idle.difference(known);
    new.map(|file| {
        format!(
            "the policy {} has no effect, because it names no authority of tls.client_ca: correct \
                the name of the authority in the file, add the authority, or remove the file",
            file.display()
        )
    })
    .collect()
}

/// Adds the file's name to the cause of an error.
fn in_file(error: Error, file: &Path) -> Error {
    let cause = format!("{}: {}", file.display(), error.cause);
    error.cause(cause)
}

/// Reads the revocation lists in a file, in PEM or DER form. A damaged list is an error. If it
/// counted as empty, the revoked certificates would be accepted again. `is_named` is true if the
/// configuration names the file itself, and false for a file in a configured folder.
fn revocation_lists(
    file: &Path,
    is_named: bool,
) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let wrong = |kind, cause: String| {
        Error::new(kind, End::Here, "read the revocation list")
            .cause(format!("{}: {cause}", file.display()))
            .remedy("fetch the revocation list again, or correct tls.crl in the configuration")
    };
    let is_list = is_named || is_named_a_list(file);
    let bytes = match read(file) {
        Err(error) if error.kind == ErrorKind::LimitExceeded && !is_list => return Ok(Vec::new()),
        read => read.map_err(|error| wrong(error.kind, error.cause))?,
    };
    if is_der(&bytes) && !is_list {
        return Ok(Vec::new());
    }
    let lists: Vec<_> = lists_in(&bytes)
        .map_err(|error| wrong(ErrorKind::InvalidRequest, error.to_string()))?
        .into_iter()
        .map(|list| list.as_ref().to_vec().into())
        .collect();
    if lists.is_empty() && is_list {
        let cause = "the file holds no revocation list".to_owned();
        return Err(wrong(ErrorKind::InvalidRequest, cause));
    }
    Ok(lists)
}

/// Returns true if the file's name is that of a revocation list: `NAME.crl`, or OpenSSL's
/// `HASH.r0`. A folder of authorities contains other files too.
fn is_named_a_list(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| {
        let number = extension.strip_prefix('r');
        extension == "crl"
            || number.is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
            })
    })
}

#[cfg(test)]
mod tests;
