//! Authenticates other hosts by their keys, and chooses the credentials that this host presents to
//! another host.

use crate::args::Who;
use crate::exit::usage;
use crate::output;
use dray_access::authorities;
use dray_client::{Client, Keeper};
use dray_core::{End, Error, Result};
use dray_net::{Identity, Token, Trust};
use dray_store::errno::too_many_open;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of bytes read from a token file. The rest of a longer file is ignored.
const TOKEN_FILE_MAX: u64 = 1 << 16;

/// Mode bit that allows every user to read a file.
const OTHERS_READ: u32 = 0o004;

/// The token that a caller with only a certificate sends in HELLO.
const NO_TOKEN: &[u8] = b"-";

/// Returns the value in `text` if it applies to `address`. `text` is a value for every host, or
/// `HOST=VALUE` for one host.
fn meant_for<'t>(text: &'t str, address: &str) -> Option<&'t str> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    match text.split_once('=') {
        Some((name, rest)) if name == host || name == address => Some(rest),
        // The text is for another host. A value cannot be mistaken for `HOST=VALUE`: a path has a
        // slash before its `=`, and a fingerprint has no `=`.
        Some((name, _)) if !name.contains('/') => None,
        _ => Some(text),
    }
}

/// Returns the value of `given` for `address`. A value for this address has priority over a value
/// for every host.
fn chosen<'t>(given: &'t [String], address: &str) -> Option<&'t str> {
    let own = given.iter().filter(|text| text.contains('='));
    let common = given.iter().filter(|text| !text.contains('='));
    own.chain(common).find_map(|text| meant_for(text, address))
}

/// Returns the conditions under which the key of the host at `address` is trusted.
///
/// # Errors
/// For an invalid fingerprint, and for CA certificates that cannot be read.
pub(crate) fn trust(who: &Who, address: &str) -> Result<Trust> {
    let from_environment: Vec<String> = match std::env::var("DRAY_PEER_KEY") {
        Ok(keys) => keys.split(',').map(|key| key.trim().to_owned()).collect(),
        Err(_) => Vec::new(),
    };
    let key = chosen(&who.peer_key, address).or_else(|| chosen(&from_environment, address));
    if let Some(key) = key {
        return Ok(Trust::Key(key.parse()?));
    }
    let ca = who.ca.clone().or_else(|| path_in("DRAY_CA"));
    authorities(ca.as_deref())
        .map(Trust::Authority)
        .map_err(|error| {
            error.remedy(
                "add --peer-key with the fingerprint that the other host prints (sha256:...), or \
                    add --ca FILE",
            )
        })
}

/// Returns the folder for the persistent state of this user's programs, if the environment defines
/// one.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let of_home = || path_in("HOME").map(|home| home.join(".local/state"));
    let state = path_in("XDG_STATE_HOME").or_else(of_home);
    state.map(|state| state.join("dray"))
}

fn path_in(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Returns the certificate to present to other hosts, if there is one.
///
/// # Errors
/// If the named certificate cannot be used.
pub(crate) fn identity(who: &Who) -> Result<Option<Arc<Identity>>> {
    let Some(file) = who.cert.clone().or_else(|| path_in("X509_USER_PROXY")) else {
        return Ok(None);
    };
    Identity::from_files(&file, &file).map(Arc::new).map(Some)
}

/// Returns the token for the host at `address`. The options and variables of dray come first, then
/// the locations of WLCG Bearer Token Discovery 1.0.
///
/// # Errors
/// If a named token file cannot be read, or has no token.
pub(crate) fn token(who: &Who, address: &str) -> Result<Option<Token>> {
    if let Some(file) = chosen(&who.token_file, address) {
        return read_token(Path::new(file)).map(Some);
    }
    for variable in ["DRAY_TOKEN", "BEARER_TOKEN"] {
        let value: Option<OsString> = std::env::var_os(variable);
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return Token::new(value.as_bytes()).map(Some);
        }
    }
    if let Some(file) = path_in("BEARER_TOKEN_FILE") {
        return read_token(&file).map(Some);
    }
    let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
    let runtime = path_in("XDG_RUNTIME_DIR").map(|folder| folder.join(&name));
    let places = runtime.into_iter().chain([Path::new("/tmp").join(&name)]);
    match places.into_iter().find(|file| file.is_file()) {
        // Only a file of this user is accepted, because every user may write to /tmp.
        Some(file) if is_own(&file) => read_token(&file).map(Some),
        _ => Ok(None),
    }
}

fn is_own(file: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    file.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.uid() == own)
}

/// Returns the credentials that the client sends in HELLO.
///
/// # Errors
/// If the user has neither a token nor a certificate.
pub(crate) fn shown(who: &Who, address: &str) -> Result<(Token, Option<Arc<Identity>>)> {
    let identity = identity(who)?;
    match (token(who, address)?, &identity) {
        (Some(token), _) => Ok((token, identity)),
        (None, Some(_)) => Ok((Token::new(NO_TOKEN)?, identity)),
        (None, None) => Err(usage(
            "no token for the other host was given",
            "add --token-file FILE, set DRAY_TOKEN, or present a certificate with --cert",
        )),
    }
}

/// Returns a client of the control API at `address`.
///
/// # Errors
/// The errors of [`trust`], [`token`] and [`identity`].
pub(crate) fn client(who: &Who, address: &str) -> Result<Client> {
    let token = match token(who, address)? {
        Some(token) => Some(token.text()?),
        None => None,
    };
    Ok(Client {
        address: address.to_owned(),
        trust: trust(who, address)?,
        identity: identity(who)?,
        token,
        answer_bytes_max: dray_client::ANSWER_BYTES_MAX,
        trace: None,
        kept: Keeper::default(),
    })
}

/// Returns the address `HOST:PORT` of the endpoint to call: `named`, or else the value of the
/// environment variable `DRAY_ENDPOINT`.
///
/// # Errors
/// If both are missing, or if the text is not the address of an endpoint.
pub(crate) fn endpoint(named: Option<&str>) -> Result<String> {
    let name = match named {
        Some(name) => name.to_owned(),
        None => std::env::var("DRAY_ENDPOINT").map_err(|_| {
            usage(
                "the command contains no address of an endpoint",
                "add the endpoint's address HOST[:PORT] to the command, or set DRAY_ENDPOINT",
            )
        })?,
    };
    let bare = name.strip_prefix("dray://").unwrap_or(&name);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    dray_open::locations::with_port(bare).ok_or_else(|| {
        let cause = format!("{bare:?} is not the address of an endpoint");
        usage(
            cause,
            "write the address as HOST[:PORT], with an IPv6 address in brackets",
        )
    })
}

/// Reads a token from a file.
///
/// # Errors
/// If the file cannot be read, or has no token.
pub(crate) fn read_token(file: &Path) -> Result<Token> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|opened| opened.take(TOKEN_FILE_MAX).read_to_end(&mut bytes))
        .map_err(|error| {
            let operation = format!("read the token file {}", file.display());
            if let Some(lack) = too_many_open(End::Here, &operation, &error) {
                return lack;
            }
            let remedy = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "run the command as the owner of the token file, or ask the owner for read \
                        access"
                }
                _ => "write one line of random characters to the token file",
            };
            Error::new(error.kind().into(), End::Here, operation)
                .cause(error.to_string())
                .remedy(remedy)
        })?;
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.mode());
    if mode & OTHERS_READ != 0 {
        // Only warn, because a secret that a cluster mounts into a container often has this mode.
        let words = file.display();
        output::note(&format!(
            "note: every user of this host can read the token file {words}; run chmod 600 {words}"
        ));
    }
    Token::new(&bytes)
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn what_is_for_one_host_goes_before_what_is_for_all() {
        let given = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let files = given(&["/all", "a=/of-a", "b:77=/of-b"]);
        assert_eq!(chosen(&files, "a:4735"), Some("/of-a"));
        assert_eq!(chosen(&files, "b:77"), Some("/of-b"));
        assert_eq!(chosen(&files, "b:78"), Some("/all"));
        assert_eq!(chosen(&given(&["a=/of-a"]), "c:1"), None);
        assert_eq!(chosen(&given(&["/odd=name/x"]), "c:1"), Some("/odd=name/x"));
    }
}
