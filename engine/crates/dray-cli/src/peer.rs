//! Other hosts: how they are known, and as whom they are asked.

use crate::args::Who;
use crate::exit::usage;
use crate::output;
use dray_client::{Client, Keeper};
use dray_core::{End, Error, ErrorKind, Result};
use dray_endpoint::access::authorities;
use dray_runtime::net::{Identity, Token, Trust};
use dray_store::errno::too_many_open;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a token file that are read: more than any token may have.
const TOKEN_FILE_MAX: u64 = 1 << 16;

/// The mode bit that lets everybody read a file.
const OTHERS_READ: u32 = 0o004;

/// What stands in a HELLO for a caller that shows a certificate and no token.
const NO_TOKEN: &[u8] = b"-";

/// `text` without the name of a host, if it is for `address`, or for every host.
fn meant_for<'t>(text: &'t str, address: &str) -> Option<&'t str> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    match text.split_once('=') {
        Some((name, rest)) if name == host || name == address => Some(rest),
        // A path or a fingerprint has no name of a host before it.
        Some((name, _)) if !name.contains('/') => None,
        _ => Some(text),
    }
}

/// The one of `given` for `address`: its own before one for every host.
fn chosen<'t>(given: &'t [String], address: &str) -> Option<&'t str> {
    let own = given.iter().filter(|text| text.contains('='));
    let common = given.iter().filter(|text| !text.contains('='));
    own.chain(common).find_map(|text| meant_for(text, address))
}

/// How the host at `address` is known.
///
/// # Errors
/// For a fingerprint that is none, and for authorities that cannot be read.
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
            error.remedy("give --peer-key sha256:..., as the other host prints it, or --ca FILE")
        })
}

/// Where this user's programs keep what they remember, if there is such a place.
pub(crate) fn state_folder() -> Option<PathBuf> {
    let of_home = || path_in("HOME").map(|home| home.join(".local/state"));
    let state = path_in("XDG_STATE_HOME").or_else(of_home);
    state.map(|state| state.join("dray"))
}

fn path_in(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// The certificate to show, if there is one.
///
/// # Errors
/// When the one that was named cannot be used.
pub(crate) fn identity(who: &Who) -> Result<Option<Arc<Identity>>> {
    let Some(file) = who.cert.clone().or_else(|| path_in("X509_USER_PROXY")) else {
        return Ok(None);
    };
    Identity::from_files(&file, &file).map(Arc::new).map(Some)
}

/// The token for the host at `address`, where WLCG's discovery looks for one (WLCG Bearer Token
/// Discovery 1.0) after our own places.
///
/// # Errors
/// When the one that was named cannot be read, or is none.
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
        // Whoever may write to /tmp could leave a token of their own there.
        Some(file) if is_own(&file) => read_token(&file).map(Some),
        _ => Ok(None),
    }
}

fn is_own(file: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    file.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.uid() == own)
}

/// What is shown in a session's HELLO.
///
/// # Errors
/// When there is neither a token nor a certificate.
pub(crate) fn shown(who: &Who, address: &str) -> Result<(Token, Option<Arc<Identity>>)> {
    let identity = identity(who)?;
    match (token(who, address)?, &identity) {
        (Some(token), _) => Ok((token, identity)),
        (None, Some(_)) => Ok((Token::new(NO_TOKEN)?, identity)),
        (None, None) => Err(usage(
            "no token for the other host",
            "give --token-file FILE, or set DRAY_TOKEN; or show a certificate with --cert",
        )),
    }
}

/// The control API at `address`.
///
/// # Errors
/// As [`trust`], [`token`] and [`identity`].
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
        kept: Keeper::default(),
    })
}

/// The endpoint that was named, or the one of the environment, as `HOST:PORT`.
///
/// # Errors
/// When there is none.
pub(crate) fn endpoint(named: Option<&str>) -> Result<String> {
    let name = match named {
        Some(name) => name.to_owned(),
        None => std::env::var("DRAY_ENDPOINT").map_err(|_| {
            usage(
                "nothing says which endpoint",
                "name it as HOST[:PORT], or set DRAY_ENDPOINT",
            )
        })?,
    };
    let bare = name.strip_prefix("dray://").unwrap_or(&name);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    dray_open::locations::with_port(bare).ok_or_else(|| {
        let cause = format!("{bare:?} is no endpoint");
        usage(
            cause,
            "write it as HOST[:PORT], an IPv6 address in brackets",
        )
    })
}

/// Reads a token from a file.
///
/// # Errors
/// When it cannot be read, or holds none.
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
                    "run this as the user whose token it is, or have that user give access"
                }
                _ => "name a file with one line of random characters",
            };
            Error::new(error.kind().into(), End::Here, operation)
                .cause(error.to_string())
                .remedy(remedy)
        })?;
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.mode());
    if mode & OTHERS_READ != 0 {
        // Not refused: secrets that a cluster mounts into a container often look so.
        let words = file.display();
        output::note(&format!(
            "note: everybody on this host can read the token file {words}; chmod 600 {words}"
        ));
    }
    Token::new(&bytes)
}

/// What went wrong with an answer that has not the form it should have.
pub(crate) fn odd_answer(what: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        End::Network,
        "read the endpoint's answer",
    )
    .cause(format!("it holds no {what}"))
    .remedy("use the same version of dray at both ends and report this")
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
