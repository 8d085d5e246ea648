//! Updates the trusted files (authorities, revocation lists, issuers' keys) at regular intervals.

use dray_access::trust::{self, Item, Outcome};
use dray_config::Config;
use dray_core::Result;
use dray_link::threads::refused;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Starts the thread that updates the files, if the configuration asks for updates. The thread ends
/// after `sleep` returns false. The endpoint does not wait for this thread when it stops, because a
/// server may not answer for a minute; an update that is cut off changes no file.
///
/// # Errors
/// If the system refuses the thread.
pub(crate) fn start(
    config: &Arc<Config>,
    sleep: impl Fn(Duration) -> bool + Send + 'static,
) -> Result<()> {
    let Some(interval) = config.trust.interval_seconds.map(Duration::from_secs) else {
        return Ok(());
    };
    let config = Arc::clone(config);
    let run = move || {
        loop {
            if let Err(error) = trust::update(&config, log) {
                tracing::error!("cannot update the trusted files: {error}");
            }
            if !sleep(interval) {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("dray-trust".to_owned());
    (thread.spawn(run).map(drop)).map_err(|error| refused(&error))
}

fn log(item: &Item) {
    let file = item.file.display();
    match &item.outcome {
        Outcome::Updated => tracing::info!("updated the trusted file {file}"),
        Outcome::Unchanged => {}
        Outcome::Kept(error) => {
            tracing::warn!("cannot update the trusted file {file}: {error}");
        }
    }
    if let Some(warning) = &item.warning {
        tracing::warn!("the trusted file {file} {warning}");
    }
}
