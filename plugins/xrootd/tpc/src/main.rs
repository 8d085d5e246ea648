//! `dray-xrootd-tpc [--config FILE] [-C NAME] [-S N] SOURCE DESTINATION`: the program that an
//! XRootD server runs for a third-party copy (`ofs.tpc ... pgm`).
//!
//! The server creates the empty destination file. It then starts this program with the URL of the
//! source and the physical path of the destination. Exit code 0 means that the destination name
//! belongs to the complete file. Any other code means that the copy failed. The client then gets a
//! part of the last output line that contains ": ", namely the text after the first ": ". Durable
//! data is kept in the folder of the destination, even if the server kills this program. The next
//! copy of the same file resumes from this data. docs/design/xrootd.md describes the design.
//!
//! The HTTP plug-in of the server runs `dray-xrootd-tpc --request [--config FILE]` ([`request`]).

mod args;
mod config;
mod copy;
mod copy_target;
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
    // Set the user of the process before any file is opened.
    let ended = process::settle().and_then(|()| run());
    if let Err(error) = &ended {
        log::failed(error);
    }
    // End the process without joining threads, because the request for the source's checksum may
    // still be running.
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
