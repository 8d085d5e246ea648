//! `dray cp` with the other end on another host: push, pull, and going on after a lost connection.

use crate::cp::Run;
use crate::exit::usage;
use crate::output;
use dray_core::Result;
use dray_runtime::drive::{self, Ended, Task};
use dray_runtime::net::{Dial, Fingerprint, Token};
use dray_runtime::place::{LocalSource, Remote};
use dray_runtime::prepare::{self, Buffers};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a token file that are read: more than any token may have.
const TOKEN_FILE_MAX: u64 = 1 << 16;

/// The mode bit that lets everybody read a file.
const OTHERS_READ: u32 = 0o004;

/// Local source, remote sink.
pub(crate) fn push(run: &Run<'_>, sources: &[LocalSource], to: &Remote) -> Result<Ended> {
    // The destination folder, then what will be written in it.
    let claims = run.places.claims.iter();
    let paths: Vec<Vec<u8>> = std::iter::once(to.path.clone())
        .chain(claims.map(|claim| claim.as_bytes().to_vec()))
        .collect();
    let open = || {
        let store = prepare::open_source(&run.targets, run.cp.what.links.into())?;
        prepare::roots(&store, sources)
    };
    let dial = dial(run, &to.address)?;
    drive::push(&task(run), &dial, &paths, open, &run.handle, run.feed)
}

/// Remote source, local sink.
pub(crate) fn pull(
    run: &Run<'_>,
    address: &str,
    paths: &[Vec<u8>],
    folder: &Path,
) -> Result<Ended> {
    let open = || {
        prepare::open_destination(
            folder,
            run.places,
            &run.targets,
            &run.transfer,
            &run.options,
        )
    };
    let dial = dial(run, address)?;
    drive::pull(&task(run), &dial, paths, open, &run.handle, run.feed)
}

fn task(run: &Run<'_>) -> Task {
    Task {
        transfer: run.transfer.clone(),
        first_session: 1,
        selection: run.selection(),
        options: run.options.clone(),
        content: run.content.clone(),
        pool_bytes: run.cp.pool,
        streams: run.cp.streams,
        clear_data: run.cp.peer.clear_data,
        retries: run.cp.peer.retries,
    }
}

fn dial(run: &Run<'_>, address: &str) -> Result<Dial> {
    let peer = &run.cp.peer;
    let key = match &peer.peer_key {
        Some(key) => key.clone(),
        None => std::env::var("DRAY_PEER_KEY").map_err(|_| {
            usage(
                "nothing says which key the other host must have",
                "give --peer-key sha256:..., as dray serve prints it there, or set DRAY_PEER_KEY",
            )
        })?,
    };
    let token = match &peer.token_file {
        Some(file) => read_token(file)?,
        None => {
            let token = std::env::var_os("DRAY_TOKEN").ok_or_else(|| {
                usage(
                    "no token for the other host",
                    "give --token-file FILE, or set DRAY_TOKEN",
                )
            })?;
            Token::new(std::os::unix::ffi::OsStrExt::as_bytes(token.as_os_str()))?
        }
    };
    let pin: Fingerprint = key.parse()?;
    let buffers = Buffers::new(run.cp.pool, run.options.object_bytes);
    let mut dial = Dial::new(address, pin, token);
    dial.bind.clone_from(&peer.bind);
    dial.limits = prepare::limits(buffers);
    Ok(dial)
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
            usage(
                format!("the token file {}: {error}", file.display()),
                "name a file with one line of random characters",
            )
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
