//! The command that fetches authorities, revocation lists and issuers' keys.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Trust {
    /// Fetch the authorities, revocation lists and keys that the section [trust] of an endpoint's
    /// configuration names
    Update(UpdateTrust),
}

const UPDATE_NOTES: &str = "\
A fetched file replaces the present file only if it passes all checks. Otherwise the present file is
kept, and the command ends with exit code 1. The running endpoint reads the new files by itself.";

#[derive(Debug, Args)]
#[command(after_help = UPDATE_NOTES)]
pub(crate) struct UpdateTrust {
    /// Configuration file of the endpoint
    #[arg(long, value_name = "FILE", default_value = "/etc/dray/drayd.toml")]
    pub(crate) config: PathBuf,

    /// Print one JSON object for each file
    #[arg(long)]
    pub(crate) json: bool,
}
