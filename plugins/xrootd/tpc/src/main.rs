//! `dray-xrootd-tpc [--config FILE] [-C NAME] [-S N] SOURCE DESTINATION`: the program that XRootD's
//! server runs for a third-party copy (`ofs.tpc ... pgm`).
//!
//! The server opens the destination, empty, and starts this program with the source's URL and the
//! destination's physical path. Exit code 0 means that the complete file has the destination's
//! name. Any other code means that it has not; the client then gets the text after the first ": "
//! of one output line. In every case, also when the server kills this program, durable data is kept
//! beside the destination, and the next copy of the same file resumes from it. In prose:
//! docs/design/xrootd.md.
//!
//! The server's HTTP plug-in runs `dray-xrootd-tpc --request [--config FILE]` ([`request`]).

mod args;
mod config;
mod copy;
mod digest;
mod endpoint;
mod final_check;
mod log;
mod negative_cache;
mod outcome;
mod placeholder;
mod process;
mod request;
mod ticket;

use args::Args;
use config::Config;
use dray_core::Result;
use dray_store_xrootd::end_process;
use placeholder::Placeholder;
use std::path::PathBuf;

fn main() {
    // Set the process's user before any file is opened.
    let ended = process::settle().and_then(|()| run());
    if let Err(error) = &ended {
        log::failed(error);
    }
    // The request for the source's checksum may still be running.
    end_process(u8::from(ended.is_err()))
}

fn run() -> Result<()> {
    if std::env::args_os().any(|word| word == request::OPTION) {
        return request::run(std::env::args_os().skip(1));
    }
    let args = Args::read(std::env::args_os().skip(1))?;
    log::hide(args.source.cgi());
    let placeholder = Placeholder::look(&args.destination, placeholder::are_hidden());
    let config = Config::load(args.config.as_deref()).inspect_err(|_| {
        let root = std::env::var_os(copy::LOCAL_ROOT).map(PathBuf::from);
        if let Ok(placeholder) = &placeholder {
            copy::forget(placeholder, &args.destination, root.as_deref());
        }
    })?;
    copy::run(&copy::CopyJob::new(args, config)?)
}
