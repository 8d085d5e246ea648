//! Decisions of a tier: a small fast storage in front of a large slow one. They follow Burst Buffer
//! Over-Subscription (BBOS), chapter 5 of *User-Transparent Data Management for HPC Storage
//! Systems*. docs/design/tiers.md describes the terms, the rules, and the modules. Sizes are in
//! bytes, times in seconds, rates in bytes per second.
//!
//! Non-goals: moving data, storing state, measuring devices.

pub mod admission;
pub mod bypass;
pub mod calibration;
pub mod device;
pub mod failures;
pub mod io_jobs;
pub mod placement;
pub mod policy;
pub mod ramp;
pub mod victims;
pub mod written;
