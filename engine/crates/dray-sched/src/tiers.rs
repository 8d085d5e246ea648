//! Decisions of a tier: a small fast storage in front of a large slow one.
//!
//! The rules are those of Burst Buffer Over-Subscription (BBOS), chapter 5 of the dissertation on
//! Mulconn and BBOS. docs/design/tiers.md explains them. Sizes are in bytes, times in seconds, and
//! rates in bytes per second.

pub mod bypass;
pub mod device;
pub mod io_jobs;
pub mod policy;
pub mod ramp;
pub mod written;
