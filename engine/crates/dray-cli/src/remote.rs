//! `dray cp` with the other end on another host: push, pull, and resuming after a lost connection.

use crate::exit::usage;
use crate::run::Run;
use crate::{output, peer};
use dray_api::timestamp::time;
use dray_core::Result;
use dray_endpoint::clock;
use dray_net::{Dial, Trust};
use dray_open::locations::Folder;
use dray_open::prepare;
use dray_runtime::assembly::{self, Buffers};
use dray_runtime::drive::{self, Ended, StreamCount, Task, Tuning};
use dray_runtime::tune::memory::{self, Pairs};
use std::fs::DirBuilder;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;

/// Copies a local source to a folder of the host at `address`.
pub(crate) fn push(run: &Run<'_>, address: &str, folder: &[u8]) -> Result<Ended> {
    // The destination folder, then the paths that will be written in it.
    let claims = run.places.claims.iter();
    let paths: Vec<Vec<u8>> = std::iter::once(folder.to_vec())
        .chain(claims.map(|claim| claim.as_bytes().to_vec()))
        .collect();
    let open = || prepare::open_roots(&run.places.sources, &run.targets, run.cp.what.links.into());
    let mut dial = dial(run, address)?;
    // Exit code 0 of a push means durable data, unless the user requested a null destination.
    dial.may_keep_nothing = matches!(run.places.folder, Folder::RemoteNull(_));
    dial.must_keep_nothing = dial.may_keep_nothing;
    tuned(run, &dial, true, |tuning| {
        drive::push(
            &task(run, tuning),
            &dial,
            &paths,
            open,
            &run.handle,
            run.feed,
        )
    })
}

/// Copies a remote source to a local sink.
pub(crate) fn pull(run: &Run<'_>, address: &str, paths: &[Vec<u8>]) -> Result<Ended> {
    let selection = run.selection();
    let open = || {
        let by = (&run.transfer, &selection);
        prepare::open_folder(run.places, &run.targets, by, &run.options)
    };
    let mut dial = dial(run, address)?;
    // This host keeps the data, or discards it if the user requested a null destination.
    dial.may_keep_nothing = true;
    dial.keeps_nothing = run.places.folder.keeps_nothing();
    tuned(run, &dial, false, |tuning| {
        drive::pull(
            &task(run, tuning),
            &dial,
            paths,
            open,
            &run.handle,
            run.feed,
        )
    })
}

/// Runs a copy with the number of streams that earlier runs found, and stores the number that this
/// run finds, if there is a state folder.
fn tuned(
    run: &Run<'_>,
    dial: &Dial,
    reads_here: bool,
    carry: impl FnOnce(Tuning) -> Result<Ended>,
) -> Result<Ended> {
    let folder = peer::state_folder().filter(|_| streams(run) == StreamCount::Tuned);
    let Some(folder) = folder else {
        return carry(Tuning::default());
    };
    let other = match &dial.trust {
        Trust::Key(key) => key.to_string(),
        Trust::Authority(_) => dial.address.clone(),
    };
    let pair = memory::pair(&other, reads_here);
    let open = || Pairs::open(&folder, time(clock::now()), output::note);
    let tuning = Tuning {
        known: open().of(&pair, time(clock::now())),
        ..Tuning::default()
    };
    let ended = carry(tuning)?;
    if let Some(found) = ended.found {
        // If the folder cannot be created, `keep` reports that the file cannot be written.
        let _ = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        // Read the file again: another run may have changed it in the meantime.
        open().keep(pair, found, time(clock::now()));
    }
    Ok(ended)
}

/// Returns the number of data connections when this host drives the transfer.
fn streams(run: &Run<'_>) -> StreamCount {
    let usual = StreamCount::Fixed(dray_core::options::STREAMS_USUAL);
    run.cp.streams.unwrap_or(usual)
}

fn task(run: &Run<'_>, tuning: Tuning) -> Task {
    Task {
        transfer: run.transfer.clone(),
        first_session: 1,
        selection: run.selection(),
        options: run.options.clone(),
        content: run.content.clone(),
        pool_bytes: run.cp.pool,
        streams: streams(run),
        tuning,
        threads: run.targets.threads,
        clear_data: run.cp.peer.clear_data,
        retries: run.cp.peer.retries,
    }
}

fn dial(run: &Run<'_>, address: &str) -> Result<Dial> {
    let peer = &run.cp.peer;
    check_bind(&peer.bind)?;
    let (token, identity) = peer::shown(&peer.who, address)?;
    let buffers = Buffers::new(run.cp.pool, run.options.object_bytes);
    let mut dial = Dial::new(address, peer::trust(&peer.who, address)?, token);
    dial.identity = identity;
    dial.bind.clone_from(&peer.bind);
    dial.limits = assembly::limits(buffers);
    Ok(dial)
}

/// Checks that `--bind` names addresses of this host. A retry could not succeed with another
/// address.
fn check_bind(addresses: &[IpAddr]) -> Result<()> {
    for address in addresses {
        match UdpSocket::bind((*address, 0)) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                return Err(usage(
                    format!("--bind {address} is not an address of this host"),
                    "name one of its own: `ip addr` shows them",
                ));
            }
            // Other errors appear when the address is used.
            _ => {}
        }
    }
    Ok(())
}
