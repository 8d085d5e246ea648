//! Opens the locations of a transfer: interprets SRC and DST, and opens the store of each.
//!
//! Only this crate contains the list of all kinds of stores: [`registry`] is the list, and each
//! kind implements the traits of [`store_kind`]. [`locations`] parses SRC and DST. [`prepare`]
//! opens both ends of a copy on this host, and [`swept`] opens the folder that a sweep searches.
//! [`export`] opens the root of a server or an endpoint. [`dray_runtime`] moves the bytes.

mod beneath;
mod disks;
pub mod export;
mod gridftp;
pub mod locations;
pub mod null;
pub mod null_export;
pub mod prepare;
pub mod rados;
pub mod registry;
mod server_checksum;
pub mod store_kind;
mod stored_root;
pub mod swept;
mod targets;
mod web;
pub mod xrootd;
