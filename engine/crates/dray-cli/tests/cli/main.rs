//! The program as people run it: each test starts `dray` and looks at what it says, how it exits and
//! what stands in the folders afterwards.

mod content;
mod drayd;
mod exits;
mod meaning;
mod options;
mod remote;
mod resume;
mod scene;
mod sweep;
mod words;
