//! Storage faults that `dray chaos` injects into this process.

use crate::output;
use dray_chaos::{Agent, SOCKET_VARIABLE, StorageFault};
use dray_core::{End, Error, ErrorKind, Result};
use dray_store::faults::{Armed, Kind, install};
use std::path::Path;

/// Receives faults if the environment names the socket of `dray chaos`.
///
/// # Errors
/// If the socket cannot be reached, or if the system refuses a thread.
pub(crate) fn receive() -> Result<()> {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else {
        return Ok(());
    };
    let agent = Agent::connect(Path::new(&socket))?;
    let Some(injector) = install(Box::new(agent.confirmer())) else {
        return Ok(());
    };
    output::note(&format!(
        "`dray chaos` can inject storage faults into this process, because {SOCKET_VARIABLE} is set"
    ));
    let thread = std::thread::Builder::new().name("chaos-faults".to_owned());
    let started = thread.spawn(move || {
        agent.receive(|fault| {
            if let Some(fault) = armed(&fault) {
                injector.arm(fault);
            }
        });
    });
    started.map(drop).map_err(|error| {
        let operation = "start a thread for the faults of `dray chaos`";
        Error::new(ErrorKind::Busy, End::Here, operation)
            .cause(error.to_string())
            .remedy("raise the limit of processes, or run the command without `dray chaos`")
    })
}

/// Returns the fault for the injector, or `None` for a kind that only a newer program knows. The
/// fault then has no injections, and the verdict of `dray chaos` says so.
fn armed(fault: &StorageFault) -> Option<Armed> {
    Some(Armed {
        number: fault.number,
        kind: Kind::named(&fault.kind)?,
        count: fault.count,
        probability: fault.probability,
        seed: fault.seed,
    })
}
