//! Opens the locations of a transfer: interprets SRC and DST, and opens the store of each.
//!
//! Only this crate knows every kind of store by name: [`registry`] is their table, and each kind
//! implements the traits of [`store_kind`]. [`locations`] parses, [`prepare`] opens both ends of a
//! copy on this host, and [`export`] opens the root of a server or an endpoint. [`dray_runtime`]
//! moves the bytes.

pub mod export;
pub mod locations;
pub mod null;
pub mod null_export;
pub mod prepare;
pub mod registry;
mod server_checksum;
pub mod store_kind;
mod stored_root;
mod web;
pub mod xrootd;
