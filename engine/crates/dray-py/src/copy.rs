//! `dray.copy`: converts the arguments to a request, runs it, and converts the result.

use crate::enums;
use crate::error::{exception, to_python, usage};
use crate::values::{Pair, file_name, to_pair};
use crate::watch::{self, Callbacks};
use dray_core::options::Options;
use dray_core::profile::{Profile, Stage, Times};
use dray_core::{End, Error, ErrorKind, Result, StripeChoice, TransferId, plan};
use dray_open::locations::{Places, Written};
use dray_open::prepare::{self, Request, Targets};
use dray_runtime::assembly::{Content, POOL_BYTES_DEFAULT};
use dray_session::{Event, Failure, Outcome, Progress};
use dray_wire::message::Selection;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// Arguments of `dray.copy`. Paths are bytes, and all other arguments have the type that the caller
/// passed.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    sources: Vec<Vec<u8>>,
    destination: Vec<u8>,
    recursive: bool,
    overwrite: String,
    durability: String,
    order: String,
    object_size: Option<i128>,
    verify: bool,
    resume: String,
    checksum: Option<String>,
    include: Vec<String>,
    exclude: Vec<String>,
    rate: Option<i128>,
    transfer_id: Option<String>,
    links: String,
    xattrs: bool,
    stripe: Option<String>,
    checksum_attributes: bool,
    pool_bytes: Option<i128>,
}

/// Converts an argument that is a number of bytes. Python's integers are unbounded, so the value
/// may be too large for the engine.
fn size(name: &str, value: Option<i128>, least: u64) -> Result<Option<u64>> {
    let fits = |value: i128| u64::try_from(value).ok().filter(|value| *value >= least);
    match value {
        None => Ok(None),
        Some(value) => fits(value).map(Some).ok_or_else(|| {
            let remedy = format!("give this value as a number of bytes from {least} to 2^64-1");
            usage(format!("{name}={value}"), remedy)
        }),
    }
}

impl Asked {
    fn request(self) -> Result<Request> {
        let object_bytes = size("object_size", self.object_size, plan::OBJECT_BYTES_MIN)?;
        let pool_bytes = size("pool_bytes", self.pool_bytes, 1)?.unwrap_or(POOL_BYTES_DEFAULT);
        let rate = size("rate", self.rate, 1)?;
        let links = enums::links(&self.links)?;
        let demanded = self.checksum.as_deref().map(enums::checksum).transpose()?;
        let options = Options {
            durability: enums::durability(&self.durability)?,
            overwrite: enums::overwrite(&self.overwrite)?,
            order: enums::order(&self.order)?,
            object_bytes: plan::OBJECT_BYTES_DEFAULT,
            verify: self.verify,
            resume: enums::resume(&self.resume)?,
            xattrs: self.xattrs,
            checksum_attributes: self.checksum_attributes,
            rate,
            stripes: self.stripe.as_deref().map(enums::stripes).transpose()?,
        };
        if options.stripes == Some(StripeChoice::Source) && !options.xattrs {
            let remedy = "add xattrs=True, or give the number of stripes";
            let cause = "the stripes of a source file are stored in an extended attribute, so \
                stripe=\"source\" needs xattrs=True";
            return Err(usage(cause, remedy));
        }
        let sources: Vec<OsString> = self.sources.into_iter().map(OsString::from_vec).collect();
        let places = Places::read(&Written {
            sources: &sources,
            destination: &OsString::from_vec(self.destination),
            recursive: self.recursive,
            links,
            about_one_file: demanded.is_some(),
            may_be_null: false,
        })?;
        let options = Options {
            object_bytes: places.object_bytes(object_bytes),
            ..options
        };
        let selection = Selection {
            recursive: self.recursive,
            include: self.include,
            exclude: self.exclude,
            links,
            ..Selection::default()
        };
        let transfer = match self.transfer_id {
            Some(id) => TransferId::new(id)?,
            None => prepare::command_id(&places, &selection)?,
        };
        Ok(Request {
            places,
            selection,
            options,
            content: Content {
                demanded,
                range: None,
                ..Content::default()
            },
            transfer,
            pool_bytes,
            targets: Targets::default(),
        })
    }
}

/// The counters of `dray.Progress`.
#[derive(IntoPyObject)]
struct Counters {
    seconds: f64,
    is_listing_done: bool,
    files_listed: u64,
    bytes_listed: u64,
    files_done: u64,
    files_adopted: u64,
    files_skipped: u64,
    files_failed: u64,
    bytes_durable: u64,
    bytes_resumed: u64,
    bytes_read_back: u64,
    objects_sent: u64,
    objects_resumed: u64,
    bytes_sent: u64,
    bytes_read: u64,
}

impl Counters {
    fn of(progress: &Progress, seconds: f64) -> Self {
        Self {
            seconds,
            is_listing_done: progress.listing_done,
            files_listed: progress.files_listed,
            bytes_listed: progress.bytes_listed,
            files_done: progress.files_done,
            files_adopted: progress.files_adopted,
            files_skipped: progress.files_skipped,
            files_failed: progress.files_failed,
            bytes_durable: progress.bytes_durable,
            bytes_resumed: progress.bytes_resumed,
            bytes_read_back: progress.bytes_read_back,
            objects_sent: progress.objects_sent,
            objects_resumed: progress.objects_resumed,
            bytes_sent: progress.bytes_sent,
            bytes_read: progress.bytes_read,
        }
    }
}

/// The fields of `dray.TransferResult`. `files_failed` has pairs of a path and an exception.
#[derive(IntoPyObject)]
pub(crate) struct Report<'py> {
    transfer_id: String,
    state: &'static str,
    files: u64,
    bytes: u64,
    objects: u64,
    objects_sent: u64,
    objects_resumed: u64,
    files_skipped: u64,
    files_adopted: u64,
    bytes_sent: u64,
    bytes_read: u64,
    bytes_resumed: u64,
    bytes_read_back: u64,
    seconds: f64,
    files_failed: Vec<(OsString, Bound<'py, PyAny>)>,
    files_failed_total: u64,
    profile: ProfileWords,
    bottleneck: Option<&'static str>,
}

/// Number of seconds that each end spent in each stage.
#[derive(IntoPyObject)]
struct ProfileWords {
    source: BTreeMap<&'static str, f64>,
    sink: BTreeMap<&'static str, f64>,
}

impl ProfileWords {
    fn of(profile: &Profile) -> Self {
        let seconds = |times: &Times| {
            let of_stage = |(stage, time): (Stage, Duration)| (stage.name(), time.as_secs_f64());
            times.iter().map(of_stage).collect()
        };
        Self {
            source: seconds(&profile.source),
            sink: seconds(&profile.sink),
        }
    }
}

/// Runs a copy with both ends on this host. See `dray.copy`.
pub(crate) fn run<'py>(
    py: Python<'py>,
    asked: Asked,
    progress: Option<Bound<'py, PyAny>>,
    on_event: Option<Bound<'py, PyAny>>,
) -> PyResult<Report<'py>> {
    let raise = |error: Error| to_python(py, &error);
    let request = asked.request().map_err(raise)?;
    let mut tell = on_event
        .map(|callback| move |event: &Event| callback.call1(event_words(py, event)?).map(drop));
    let missing = prepare::nothing_there(&request.places.sources);
    if !missing.is_empty() {
        for failure in &missing {
            if let Some(tell) = &mut tell {
                tell(&Event::Failed(failure.clone()))?;
            }
        }
        return report(py, &request.transfer, &Progress::default(), &missing, 0.0);
    }
    let (source, sink) = py.detach(|| prepare::open(&request)).map_err(raise)?;
    for notice in sink.destination.notices() {
        if let Some(tell) = &mut tell {
            tell(&Event::Notice(notice.clone()))?;
        }
    }
    let callbacks = Callbacks {
        progress: progress.map(|callback| {
            move |progress: &Progress, seconds: f64| {
                let counters = Counters::of(progress, seconds);
                callback.call1((counters,)).map(drop)
            }
        }),
        event: tell,
    };
    let finished = watch::run(py, source, sink, callbacks)?;
    let (outcome, progress) = finished.ends.into_outcome();
    match outcome {
        Outcome::Done(_) => {}
        Outcome::Refused(error) | Outcome::Failed(error) => return Err(raise(error)),
        // Not reached in practice: only an exception of a callback or a signal stops the transfer,
        // and `watch::run` has already returned that exception.
        Outcome::Cancelled => {
            let error = Error::new(ErrorKind::Cancelled, End::Here, "finish the transfer");
            return Err(raise(error.remedy("run the same copy again to resume")));
        }
    }
    report(
        py,
        &request.transfer,
        &progress,
        &finished.failures,
        finished.seconds,
    )
}

/// Converts an event to a tuple: kind, path, size, checksums, error. An element that the kind does
/// not have is `None`.
fn event_words<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyTuple>> {
    type Words<'a, 'py> = (
        &'static str,
        Option<&'a std::ffi::OsStr>,
        Option<u64>,
        Option<Pair>,
        Option<Bound<'py, PyAny>>,
    );
    let words: Words<'_, 'py> = match event {
        Event::FileDone { path, size, sums } => (
            "done",
            Some(file_name(path)),
            Some(*size),
            sums.map(to_pair),
            None,
        ),
        Event::Failed(failure) => (
            "failed",
            Some(file_name(&failure.path)),
            None,
            None,
            Some(exception(py, &failure.error)?),
        ),
        Event::Notice(error) => ("notice", None, None, None, Some(exception(py, error)?)),
    };
    words.into_pyobject(py)
}

fn report<'py>(
    py: Python<'py>,
    transfer: &TransferId,
    progress: &Progress,
    failures: &[Failure],
    seconds: f64,
) -> PyResult<Report<'py>> {
    let files_failed_total = progress.files_failed.max(failures.len() as u64);
    let failed = failures.iter().map(|failure| {
        let path = file_name(&failure.path).to_owned();
        Ok((path, exception(py, &failure.error)?))
    });
    Ok(Report {
        transfer_id: transfer.to_string(),
        state: match files_failed_total {
            0 => "done",
            _ => "failed",
        },
        files: progress.files_done.saturating_sub(progress.files_skipped),
        bytes: progress.bytes_durable,
        objects: progress.objects_sent + progress.objects_resumed,
        objects_sent: progress.objects_sent,
        objects_resumed: progress.objects_resumed,
        files_skipped: progress.files_skipped,
        files_adopted: progress.files_adopted,
        bytes_sent: progress.bytes_sent,
        bytes_read: progress.bytes_read,
        bytes_resumed: progress.bytes_resumed,
        bytes_read_back: progress.bytes_read_back,
        seconds,
        files_failed: failed.collect::<PyResult<_>>()?,
        files_failed_total,
        profile: ProfileWords::of(&progress.profile),
        bottleneck: progress.profile.bottleneck().map(Stage::name),
    })
}
