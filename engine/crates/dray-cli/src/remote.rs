//! `dray cp` with one end on another host: push, pull, and resuming after a lost connection.

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
    // The first path is the destination folder. The paths to write in it follow.
    let claims = run.places.claims.iter();
    let paths: Vec<Vec<u8>> = std::iter::once(folder.to_vec())
        .chain(claims.map(|claim| claim.as_bytes().to_vec()))
        .collect();
    let open = || prepare::open_roots(&run.places.sources, &run.targets, run.cp.what.links.into());
    let mut dial = dial(run, address)?;
    // Exit code 0 of a push promises durable data. Only a null destination that the user requested
    // may discard the data.
    dial.may_keep_nothing = matches!(run.places.folder, Folder::RemoteNull(_));
    dial.must_keep_nothing = dial.may_keep_nothing;
    tuned(run, &dial, true, |tuning| {
        drive::push(
            &task(run, tuning),
            &dial,
            &paths,
            open,
            &run.handle,
            run.watch,
        )
    })
}

/// Copies from a remote source to a local sink.
pub(crate) fn pull(run: &Run<'_>, address: &str, paths: &[Vec<u8>]) -> Result<Ended> {
    let selection = run.selection();
    let open = || {
        let by = (&run.transfer, &selection);
        prepare::open_folder(run.places, &run.targets, by, &run.options)
    };
    let mut dial = dial(run, address)?;
    // The sink is this host, and it keeps the data unless the user requested a null destination.
    dial.may_keep_nothing = true;
    dial.keeps_nothing = run.places.folder.keeps_nothing();
    tuned(run, &dial, false, |tuning| {
        drive::pull(
            &task(run, tuning),
            &dial,
            paths,
            open,
            &run.handle,
            run.watch,
        )
    })
}

/// Runs a copy that starts with the number of streams that earlier runs have found. If there is a
/// state folder, stores the number that this run finds.
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
        // An error is ignored here, because `keep` reports that the file cannot be written.
        let _ = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        // Open the file again, because another run may have changed it since.
        open().keep(pair, found, time(clock::now()));
    }
    Ok(ended)
}

/// Returns the number of data connections for a transfer that this host drives.
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
        checkpoint: run.checkpoint.clone(),
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

/// Checks that the addresses of `--bind` belong to this host. With any other address, no retry
/// could succeed.
fn check_bind(addresses: &[IpAddr]) -> Result<()> {
    for address in addresses {
        match UdpSocket::bind((*address, 0)) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                return Err(usage(
                    format!("--bind {address} is not an address of this host"),
                    "give an address of this host; `ip addr` lists the addresses",
                ));
            }
            // Other errors are reported when the address is used.
            _ => {}
        }
    }
    Ok(())
}
