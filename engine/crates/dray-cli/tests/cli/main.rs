//! The program as users run it: each test starts `dray` and checks its output, its exit code and
//! the resulting folders.

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
