//! `--otlp`: the spans of a copy, and the caller's span in the variable `TRACEPARENT`.

use crate::args::Cp;
use crate::exit::{Exit, Stop};
use crate::output;
use dray_core::{Error, ErrorKind, Result, TraceContext};
use dray_open::locations::{Folder, Places, Sources};
use dray_telemetry::{Kind, SessionSpans, Settings, Span, Telemetry};
use std::time::Duration;

/// Maximum time that the last spans get at the end of the program.
const PATIENCE: Duration = Duration::from_secs(2);

/// The spans of one run of `dray cp`.
pub(crate) struct Spans {
    telemetry: Telemetry,
    whole: Span,
}

impl Spans {
    /// Starts the export if the command line or the environment names a collector. Begins the span
    /// of the whole command.
    ///
    /// # Errors
    /// If the URL after `--otlp` or a header for its collector is not valid, or if the system refuses
    /// a thread.
    pub(crate) fn begin(cp: &Cp) -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        let settings = Settings::of(cp.say.otlp.as_deref(), "dray-cp", variable);
        let settings = match settings {
            Ok(settings) => settings,
            // The variable may be meant for other programs, so it does not make the copy fail.
            Err(error) if cp.say.otlp.is_none() => {
                output::note(&format!("note: {error}"));
                None
            }
            // The remedy already names the variable.
            Err(error) if error.remedy.starts_with("correct ") => return Err(error),
            Err(error) => {
                let remedy = format!("correct --otlp: {}", error.remedy);
                return Err(error.remedy(remedy));
            }
        };
        let telemetry = match settings {
            Some(settings) => Telemetry::start(settings, |words| {
                output::note(&format!("note: {words}"));
            })?,
            None => Telemetry::off(),
        };
        let parent = variable("TRACEPARENT");
        let parent = parent.and_then(|text| TraceContext::parse(text.trim()));
        let whole = telemetry.span("dray cp", Kind::Internal, parent);
        Ok(Self { telemetry, whole })
    }

    /// Returns the context for calls to endpoints.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        self.whole.context()
    }

    /// Begins the spans of the sessions of a copy that this program drives.
    pub(crate) fn sessions(&self, transfer: &str, places: &Places) -> SessionSpans {
        let remote = match (&places.sources, &places.folder) {
            (Sources::Remote(address, _), _) | (_, Folder::RemoteNull(address)) => Some(address),
            (_, Folder::Remote(remote)) => Some(&remote.address),
            _ => None,
        };
        let has_sink = !matches!(places.folder, Folder::Remote(_) | Folder::RemoteNull(_));
        let direction = match (remote, has_sink) {
            (None, _) => "copy",
            (Some(_), true) => "pull",
            (Some(_), false) => "push",
        };
        let mut attributes = vec![
            ("dray.transfer.id", transfer.into()),
            ("dray.direction", direction.into()),
        ];
        attributes.extend(remote.map(|address| ("server.address", address.as_str().into())));
        let kind = if remote.is_some() {
            Kind::Client
        } else {
            Kind::Internal
        };
        SessionSpans::begin(&self.telemetry, self.context(), kind, has_sink, attributes)
    }

    /// Ends the span of the whole command, and sends the spans that wait.
    pub(crate) fn end(mut self, done: &Result<Exit, Stop>) {
        let code = match done {
            Ok(exit) => *exit,
            Err(stop) => stop.exit,
        };
        self.whole.set("process.exit.code", u32::from(code as u8));
        match done {
            Ok(Exit::Safe) => {}
            Ok(_) => self.whole.fail(&Error::new(
                ErrorKind::Other,
                dray_core::End::Here,
                "copy the files",
            )),
            Err(stop) => self.whole.fail(&stop.error),
        }
        self.whole.end();
        self.telemetry.finish(PATIENCE);
    }
}
