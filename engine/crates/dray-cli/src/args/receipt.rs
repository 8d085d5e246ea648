//! The commands for receipts: signed records of ended transfers.

use super::Ask;
use clap::{Args, Subcommand};
use dray_core::TransferId;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Receipt {
    /// Save the receipt of a transfer of an endpoint as a file
    Get(GetReceipt),
    /// Show the contents of a receipt, without a check of its signature
    Show(ShowReceipt),
    /// Verify a receipt, the chain of an endpoint's receipts, and files, without a network
    Verify(VerifyReceipt),
    /// Print the public keys of an endpoint's receipts
    Key(ReceiptKey),
}

#[derive(Debug, Args)]
pub(crate) struct GetReceipt {
    /// Id of the transfer
    #[arg(value_name = "ID", value_parser = super::id_there)]
    pub(crate) id: TransferId,

    /// File to create (default: ID.receipt)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(long, value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}

#[derive(Debug, Args)]
pub(crate) struct ShowReceipt {
    /// File with the receipt
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Print the signed head as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  dray receipt verify run42.receipt --key keys.json
  dray receipt verify run42.receipt --key keys.json --files /data/run42
  dray receipt verify --chain /var/lib/dray/receipts --key keys.json

The command makes no connection. It ends with exit code 1 if the receipt, the chain or a file
differs from the signed content.";

#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyReceipt {
    /// File with the receipt
    #[arg(value_name = "FILE", required_unless_present = "chain")]
    pub(crate) file: Option<PathBuf>,

    /// Public keys of the endpoint: a JWK, a JWK set or a PEM file (see dray receipt key)
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,

    /// Take the keys from keys.json in the folder of --chain. This verifies only the integrity:
    /// somebody who can write to the folder can replace the receipts and the keys together
    #[arg(long, requires = "chain", conflicts_with = "key")]
    pub(crate) trust_folder_keys: bool,

    /// Folder with the receipts of the endpoint; verify all of them, and check that FILE is among
    /// them
    #[arg(long, value_name = "DIR")]
    pub(crate) chain: Option<PathBuf>,

    /// Id that the newest receipt in --chain must have (field `last` of dray receipt key)
    #[arg(long, value_name = "sha256:HEX", requires = "chain")]
    pub(crate) last: Option<String>,

    /// Destination folder or destination file of the transfer; compare the sizes and checksums of
    /// the files with the receipt
    #[arg(long, value_name = "DIR", requires = "file")]
    pub(crate) files: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiptKey {
    /// HOST[:PORT] (default: DRAY_ENDPOINT)
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: Option<String>,

    #[command(flatten)]
    pub(crate) ask: Ask,
}
