//! `dray cp`: chooses how to move the data, runs the copy, and prints the report.

use crate::args::Cp;
use crate::exit::{Exit, Stop, usage};
use crate::progress::Feed;
use crate::report::Report;
use crate::run::Run;
use crate::spans::Spans;
use crate::{globus, output, plan, remote, signals, third_party};
use dray_core::{End, Error, ErrorKind, LogChoice, Result, StripeChoice, TransferId};
use dray_open::locations::{self, Folder, Places, Sources};
use dray_open::prepare::{self, Targets};
use dray_runtime::drive::{self, Ended, Ending};
use dray_runtime::handle::Handle;
use dray_runtime::listing::{self, Checkpoint, CheckpointOptions};
use dray_runtime::observe::Observer;
use dray_runtime::select::Filter;
use dray_session::{Event, Progress};
use dray_telemetry::Traced;
use std::sync::Arc;
use std::time::Instant;

/// Runs `dray cp`.
pub(crate) fn run(cp: &Cp) -> Result<Exit, Stop> {
    if cp.say.quiet {
        output::set_quiet(cp.what.json);
    }
    if cp.dry_run {
        return plan::run(&cp.what, &cp.owed, &cp.peer.who, false);
    }
    if globus::is_meant(&cp.what.paths) {
        return globus::run(cp);
    }
    refuse_stripes(cp)?;
    let spans = Spans::begin(cp)?;
    let done = copy_files(cp, &spans);
    spans.end(&done);
    done
}

fn copy_files(cp: &Cp, spans: &Spans) -> Result<Exit, Stop> {
    if third_party::is_meant(&cp.what.paths) {
        return between_endpoints(cp, spans);
    }
    refuse_options_of_endpoints(cp)?;
    let places = cp.what.places()?;
    let is_remote = matches!(places.folder, Folder::Remote(_) | Folder::RemoteNull(_));
    refuse_log(cp, is_remote)?;
    Filter::new(&cp.what.selection())?;
    let transfer = match &cp.transfer_id {
        Some(id) => id.clone(),
        None => prepare::command_id(&places, &cp.what.selection())?,
    };
    signals::watch(
        "stopping; finished data is kept. Press Ctrl-C again to abort. \
         Run the same command to resume.",
    )?;
    let feed = Feed::start(&cp.say)?;
    if !cp.say.quiet {
        feed.began(&transfer);
    }
    let began = Instant::now();
    let sessions = spans.sessions(transfer.as_str(), &places);
    let watch = Traced {
        inner: &feed,
        spans: &sessions,
    };
    let checkpoint = checkpoint(cp, &places, &transfer)?;
    let run = Run {
        cp,
        checkpoint,
        places: &places,
        transfer,
        options: cp.options(&places),
        content: cp.what.content(),
        targets: Targets {
            folders: locations::targets(&cp.what.target)?,
            limits: cp.limit_target.iter().cloned().collect(),
            direct: cp.direct_io,
            preallocates: cp.preallocate,
            stripes: cp.stripe,
            lustre_attribute: cp.what.lustre_attribute.clone(),
            shares_blocks: places.are_local() && cp.may_share_blocks(),
            threads: cp.threads.unwrap_or_default(),
            log: cp.log.map(LogChoice::Stored),
        },
        feed: &feed,
        watch: &watch,
        handle: Handle::default(),
    };
    let reads_server = places.sources.are_served();
    stop_on_signals(&run, began, reads_server);
    run.targets.check_limits()?;
    let ended = carry_on(&run);
    match &ended {
        Ok(ended) => sessions.end(error_of(&ended.ending)),
        Err(error) => sessions.end(Some(error)),
    }
    let transfer = run.transfer;
    let collected = feed.finish();
    let ended = match ended {
        Ok(ended) => ended.with_least(
            u64::from(!cp.allow_empty),
            "add --allow-empty to accept a copy that finds no files",
        ),
        Err(error) => not_begun(error)?,
    };
    let report = Report {
        transfer,
        ending: ended.ending,
        progress: ended.progress,
        collected,
        took: began.elapsed(),
        reads_server,
    };
    Ok(report.tell(cp.what.json))
}

/// Runs a copy between two endpoints.
fn between_endpoints(cp: &Cp, spans: &Spans) -> Result<Exit, Stop> {
    refuse_log(cp, true)?;
    if cp.listing_checkpoint.is_some() {
        return Err(refused_checkpoint().into());
    }
    let transfer = match &cp.transfer_id {
        Some(id) => id.clone(),
        None => prepare::new_transfer_id()?,
    };
    signals::watch("no longer watching; the transfer continues at the endpoint")?;
    third_party::run(cp, &transfer, spans.context())
}

/// Refuses options that work only for a copy between two endpoints.
fn refuse_options_of_endpoints(cp: &Cp) -> Result<(), Stop> {
    third_party::refuse_owed(&cp.owed)?;
    if !cp.replica.is_empty() {
        return Err(usage(
            "--replica works only between two endpoints",
            "write source and destination as dray:// URLs of endpoints, or omit --replica",
        )
        .into());
    }
    if cp.detach {
        return Err(usage(
            "--detach works only between two endpoints",
            "write source and destination as dray://HOST/ROOT/PATH, or omit --detach",
        )
        .into());
    }
    Ok(())
}

/// Refuses a form of the log if the destination is on another host, which writes the log there.
fn refuse_log(cp: &Cp, is_remote: bool) -> Result<(), Stop> {
    match cp.log.filter(|_| is_remote) {
        None => Ok(()),
        Some(form) => Err(usage(
            format!(
                "--log {form} works only with a destination on this host, because the server of a \
                    dray:// destination chooses the form of its logs"
            ),
            "omit --log, or run the copy on the host of the destination",
        )
        .into()),
    }
}

/// Refuses stripes of the source if the source cannot send them.
fn refuse_stripes(cp: &Cp) -> Result<(), Stop> {
    if cp.stripe == Some(StripeChoice::Source) && !cp.xattrs {
        return Err(usage(
            "--stripe source works only with --xattrs, because dray sends the stripes of a source \
                file as the extended attribute user.lustre.stripes",
            "add --xattrs, or write the number of stripes",
        )
        .into());
    }
    Ok(())
}

/// The first signal cancels the copy. The second signal ends the program. With `--json`, the
/// program prints its report before it ends.
fn stop_on_signals(run: &Run<'_>, began: Instant, reads_server: bool) {
    let handle = run.handle.clone();
    signals::on_stop(move || handle.cancel(false));
    if !run.cp.what.json {
        return;
    }
    let (so_far, transfer) = (run.feed.so_far(), run.transfer.clone());
    signals::at_once(move || {
        let (progress, collected) = so_far();
        let report = Report {
            transfer: transfer.clone(),
            ending: Ending::Cancelled,
            progress,
            collected,
            took: began.elapsed(),
            reads_server,
        };
        report.tell(true);
    });
}

/// Returns the ending of a copy that failed before it started.
///
/// # Errors
/// If `error` is a usage error, returns `error`.
fn not_begun(error: Error) -> Result<Ended, Stop> {
    let stop = Stop::from(error);
    let ending = match stop.exit {
        Exit::Usage => return Err(stop),
        Exit::Unreachable => Ending::Unreachable(stop.error),
        _ => Ending::Refused(stop.error),
    };
    Ok(Ended {
        ending,
        progress: Progress::default(),
        found: None,
    })
}

/// Returns the error that ended a copy.
const fn error_of(ending: &Ending) -> Option<&Error> {
    match ending {
        Ending::Refused(error) | Ending::Unreachable(error) | Ending::Interrupted(error) => {
            Some(error)
        }
        Ending::Done { .. } | Ending::Cancelled => None,
    }
}

/// Moves the data, and removes the checkpoint of the listing after the end of the transfer.
fn carry_on(run: &Run<'_>) -> Result<Ended> {
    let ended = carry(run);
    if let Some(checkpoint) = &run.checkpoint {
        checkpoint.remove_if_finished();
    }
    ended
}

fn carry(run: &Run<'_>) -> Result<Ended> {
    match (&run.places.sources, &run.places.folder) {
        (Sources::Remote(address, paths), Folder::Local(_) | Folder::Stored(_)) => {
            remote::pull(run, address, paths)
        }
        // Cannot happen, because `What::places` refuses two remote sides.
        (Sources::Remote(..), Folder::Remote(_) | Folder::RemoteNull(_)) => Err(Error::new(
            ErrorKind::Internal,
            End::Here,
            "copy between two remote hosts",
        )),
        (Sources::Local(_) | Sources::Stored(_), folder) => {
            if let Some(ended) = nothing_there(run) {
                return Ok(ended);
            }
            match folder {
                Folder::Local(_) | Folder::Stored(_) => copy(run),
                Folder::Remote(remote) => remote::push(run, &remote.address, &remote.path),
                Folder::RemoteNull(address) => remote::push(run, address, b""),
            }
        }
    }
}

/// Returns the ending of a copy if none of its sources exists. Such a copy changes nothing.
fn nothing_there(run: &Run<'_>) -> Option<Ended> {
    let failures = prepare::nothing_there(&run.places.sources);
    let failed = failures.len() as u64;
    for failure in failures {
        run.feed.event(&Event::Failed(failure));
    }
    (failed > 0).then(|| Ended {
        ending: Ending::Done { failed },
        progress: Progress {
            files_failed: failed,
            listing_done: true,
            ..Progress::default()
        },
        found: None,
    })
}

/// Opens the file of `--listing-checkpoint`.
fn checkpoint(
    cp: &Cp,
    places: &Places,
    transfer: &TransferId,
) -> std::result::Result<Option<Arc<Checkpoint>>, Stop> {
    let Some(path) = &cp.listing_checkpoint else {
        return Ok(None);
    };
    if !cp.what.recursive || matches!(places.sources, Sources::Remote(..)) {
        return Err(refused_checkpoint().into());
    }
    // A file that cannot be read fails below, with a better message.
    if listing::is_other_file(path).unwrap_or(false) {
        let cause = format!(
            "{} is not a checkpoint of a listing, and would be overwritten",
            path.display()
        );
        let remedy = "name another file with --listing-checkpoint, or remove this file";
        return Err(usage(cause, remedy).into());
    }
    let command = prepare::command_id(places, &cp.what.selection())?;
    let key = format!("{transfer}\0{command}\0{}", cp.xattrs);
    let options = CheckpointOptions::default();
    let opened = Checkpoint::open(path, key.as_bytes(), options).map_err(|error| {
        error.remedy("choose another FILE, or wait until the other process has ended")
    })?;
    Ok(Some(Arc::new(opened)))
}

fn refused_checkpoint() -> Error {
    usage(
        "--listing-checkpoint needs --recursive (-r) and a source on this host",
        "omit the option. For a source at an endpoint, set listing_checkpoint = true in the \
            configuration of its root",
    )
}

/// Runs a copy with both ends in this process.
fn copy(run: &Run<'_>) -> Result<Ended> {
    let (source, sink) = prepare::open(&prepare::Request {
        places: run.places.clone(),
        selection: run.cp.what.selection(),
        options: run.options.clone(),
        content: run.content.clone(),
        transfer: run.transfer.clone(),
        pool_bytes: run.cp.pool,
        targets: run.targets.clone(),
    })?;
    let source = source.continued(run.checkpoint.clone());
    drive::copy(source, sink, &run.handle, run.watch)
}
