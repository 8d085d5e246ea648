//! The identity of this end: a key, a self-signed certificate for this key, and the fingerprint
//! that other ends pin.
//!
//! Only the key in the certificate counts. Name, dates and issuer of the certificate are not
//! checked.

use dray_auth::x509::{self, Validity};
use dray_core::{End, Error, ErrorKind, Fingerprint, Result};
use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Name of the file, in its folder, that holds the key and the certificate.
pub const IDENTITY_FILE: &str = "identity.pem";

/// Maximum number of bytes that are read from an identity file. A key and a short certificate chain
/// fit.
const IDENTITY_BYTES_MAX: u64 = 64 << 10;

/// Returns the fingerprint of the key in a certificate. Returns `None` if the bytes are not an
/// X.509 certificate.
#[must_use]
pub fn fingerprint_of(certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
    let key = x509::public_key(certificate).ok()?;
    let digest = digest::digest(&digest::SHA256, &key);
    let bytes = digest.as_ref().try_into().ok()?;
    Some(Fingerprint::from_bytes(bytes))
}

/// A private key with its certificate chain, leaf first.
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Reads [`IDENTITY_FILE`] in `folder`. If the file does not exist, creates the folder (0700)
    /// and the file (0600) with a new P-256 key. If several processes do this concurrently, one
    /// process creates the file, and all processes use its key.
    ///
    /// # Errors
    /// If the file cannot be read or created, if it holds no identity, or if users other than its
    /// owner may read or write it.
    pub fn load_or_create(folder: &Path) -> Result<Self> {
        Self::load_or_create_for(folder, &[])
    }

    /// Does the same as [`Identity::load_or_create`]. A new certificate lists the host names and
    /// addresses in `names`, for peers that check names.
    ///
    /// # Errors
    /// The errors of [`Identity::load_or_create`].
    pub fn load_or_create_for(folder: &Path, names: &[String]) -> Result<Self> {
        let path = folder.join(IDENTITY_FILE);
        match File::open(&path) {
            Ok(file) => Self::load(&path, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(folder, &path, names).map_err(|error| cannot("create", &path, &error))?;
                let file = File::open(&path).map_err(|error| cannot("read", &path, &error))?;
                Self::load(&path, file)
            }
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }

    /// Creates an identity with a new P-256 key that is not written to a file. The key is lost when
    /// the value is dropped, and so is any access that was granted to this key.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the key cannot be made, for example because the system has no
    /// random bytes.
    pub fn unkept() -> Result<Self> {
        let unmade = |cause: String| {
            Error::new(ErrorKind::Internal, End::Here, "create a temporary key").cause(cause)
        };
        let pem = new_pem(&[]).map_err(|error| unmade(error.to_string()))?;
        Self::from_pem(pem.as_bytes())
            .ok_or_else(|| unmade("the new key cannot be read".to_owned()))
    }

    fn load(path: &Path, file: File) -> Result<Self> {
        Self::from_pem(&private_bytes(path, file)?).ok_or_else(|| not_an_identity(path))
    }

    fn from_pem(pem: &[u8]) -> Option<Self> {
        Self::new(
            certificates_in(pem)?,
            PrivateKeyDer::from_pem_slice(pem).ok()?,
        )
    }

    fn new(
        certificates: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Option<Self> {
        let fingerprint = fingerprint_of(certificates.first()?)?;
        Some(Self {
            certificates,
            key,
            fingerprint,
        })
    }

    /// Reads a certificate chain and its key from PEM files, as the tools of certificate
    /// authorities write them. The leaf is the first certificate of the chain. Both arguments may
    /// name the same file. Certificates in the file of the key follow those of the first file.
    ///
    /// # Errors
    /// If a file cannot be read or holds no certificate or key, or if users other than its owner
    /// may read or write the key file. The error names the wrong file.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self> {
        let open = |path: &Path| File::open(path).map_err(|error| cannot("read", path, &error));
        let secret = private_bytes(key, open(key)?)?;
        let wrong = |path: &Path, cause: &str| {
            let remedy = "give a PEM file with the certificate, its key, and then the certificates \
                of its issuers";
            not_an_identity(path).cause(cause).remedy(remedy)
        };
        let no_chain = "the file does not hold a complete certificate chain in PEM form";
        let mut chain = Vec::new();
        if certificate != key {
            let mut pem = Vec::new();
            (open(certificate)?.take(IDENTITY_BYTES_MAX))
                .read_to_end(&mut pem)
                .map_err(|error| cannot("read", certificate, &error))?;
            chain = certificates_in(&pem).ok_or_else(|| wrong(certificate, no_chain))?;
        }
        chain.extend(certificates_in(&secret).ok_or_else(|| wrong(key, no_chain))?);
        let own = PrivateKeyDer::from_pem_slice(&secret)
            .map_err(|_| wrong(key, "the file does not hold a private key in PEM form"))?;
        Self::new(chain, own).ok_or_else(|| wrong(certificate, no_chain))
    }

    /// Returns the time in which all certificates of the chain are valid. If this time is empty,
    /// `not_after` is earlier than `not_before`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if a certificate of the chain cannot be parsed.
    pub fn validity(&self) -> Result<Validity> {
        let whole = Validity {
            not_before: 0,
            not_after: u64::MAX,
        };
        self.certificates.iter().try_fold(whole, |both, one| {
            let one = x509::validity(one)?;
            Ok(Validity {
                not_before: both.not_before.max(one.not_before),
                not_after: both.not_after.min(one.not_after),
            })
        })
    }

    /// Returns the fingerprint that other ends pin.
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the certificates that this end presents, leaf first.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

/// Returns all certificates in a PEM file. Returns `None` if a certificate is incomplete.
fn certificates_in(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .ok()
}

/// Reads a file. Fails if users other than the file's owner may read or write it.
fn private_bytes(path: &Path, file: File) -> Result<Vec<u8>> {
    let mode = file
        .metadata()
        .map(|metadata| metadata.permissions().mode());
    let mode = mode.map_err(|error| cannot("read", path, &error))?;
    if mode & 0o077 != 0 {
        let operation = format!("use the identity {}", path.display());
        return Err(
            Error::new(ErrorKind::PermissionDenied, End::Here, operation)
                .cause(format!(
                    "the mode of the key file, {:04o}, lets other users read or write it",
                    mode & 0o7777
                ))
                .remedy(
                    "run chmod 600 on the key file; if another user may have read the key file, \
                        remove it and pin the new key",
                ),
        );
    }
    let mut pem = Vec::new();
    file.take(IDENTITY_BYTES_MAX)
        .read_to_end(&mut pem)
        .map_err(|error| cannot("read", path, &error))?;
    Ok(pem)
}

fn not_an_identity(path: &Path) -> Error {
    let operation = format!("use the identity {}", path.display());
    Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause("the file does not hold a private key and a certificate in PEM form")
        .remedy(
            "move the file away: dray creates a new key, whose fingerprint the other hosts \
            must pin",
        )
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Error {
    let operation = format!("{verb} the identity {}", path.display());
    Error::new(error.kind().into(), End::Here, operation)
        .cause(error.to_string())
        .remedy("choose a folder that this user may write")
}

/// Writes a new identity to a temporary file and links it to `path`. So no process reads an
/// incomplete file. If another process has created `path` first, the link fails and that file is
/// used.
fn create(folder: &Path, path: &Path, names: &[String]) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let pem = new_pem(names).map_err(io::Error::other)?;
    let temporary = temporary_path(folder)?;
    let written = write_private(&temporary, pem.as_bytes()).and_then(|()| {
        match fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    });
    let removed = fs::remove_file(&temporary);
    written.and(removed)
}

fn temporary_path(folder: &Path) -> io::Result<PathBuf> {
    let number = super::join::random::<8>().map_err(io::Error::other)?;
    let number = u64::from_le_bytes(number);
    Ok(folder.join(format!(".{IDENTITY_FILE}.{number:016x}")))
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn new_pem(names: &[String]) -> Result<String, rcgen::Error> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let names = std::iter::once("dray".to_owned()).chain(names.iter().cloned());
    let mut parameters = rcgen::CertificateParams::new(names.collect::<Vec<_>>())?;
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, "dray");
    let certificate = parameters.self_signed(&key)?;
    Ok(format!("{}{}", key.serialize_pem(), certificate.pem()))
}

#[cfg(test)]
mod tests {
    use super::{Fingerprint, IDENTITY_FILE, Identity};
    use dray_core::ErrorKind;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn first_use_makes_a_private_file_and_later_uses_find_the_same_key() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("deep/er");
        let first = Identity::load_or_create(&folder).expect("made");
        let second = Identity::load_or_create(&folder).expect("read");
        assert_eq!(first.fingerprint(), second.fingerprint());
        let names: Vec<_> = fs::read_dir(&folder).expect("a folder").collect();
        assert_eq!(names.len(), 1, "nothing temporary stays: {names:?}");
        let mode = fs::metadata(folder.join(IDENTITY_FILE)).expect("there");
        assert_eq!(mode.permissions().mode() & 0o7777, 0o600);
        let text = first.fingerprint().to_string();
        assert_eq!(text.len(), "sha256:".len() + 64);
        assert_eq!(
            text.parse::<Fingerprint>().expect("good"),
            first.fingerprint()
        );
        assert_eq!(
            text.to_uppercase()
                .replace("SHA", "sha")
                .parse::<Fingerprint>()
                .expect("good"),
            first.fingerprint()
        );
    }

    #[test]
    fn keys_that_are_not_kept_differ() {
        let made = || Identity::unkept().expect("made").fingerprint();
        assert_ne!(made(), made());
    }

    #[test]
    fn many_first_users_agree_on_one_key() {
        let place = tempfile::tempdir().expect("a folder");
        let load = || {
            Identity::load_or_create(place.path())
                .expect("made")
                .fingerprint()
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("ran"))
                .collect()
        });
        assert!(all.iter().all(|other| *other == all[0]));
    }

    #[test]
    fn an_identity_open_to_others_or_damaged_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        Identity::load_or_create(place.path()).expect("made");
        let path = place.path().join(IDENTITY_FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
        let error = Identity::load_or_create(place.path()).expect_err("open to others");
        assert_eq!(error.kind, ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("0640"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
        fs::write(&path, "no PEM").expect("written");
        let error = Identity::load_or_create(place.path()).expect_err("damaged");
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
    }

    #[test]
    fn odd_fingerprints_are_refused() {
        for bad in [
            "",
            "sha256:",
            "md5:00",
            &format!("sha256:{}", "g".repeat(64)),
            &format!("sha256:{}", "0".repeat(63)),
            &format!("sha256:{}é", "0".repeat(62)),
        ] {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
