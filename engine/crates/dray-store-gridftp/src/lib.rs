//! Reads byte ranges of files on a GridFTP server: `gsiftp://HOST[:PORT]/PATH`.
//!
//! [`GridFtpStore`] is a source for transfers. It uses the Globus client library
//! (`libglobus_ftp_client`), which it loads when a program opens the first URL. It lists folders by
//! MLSD, and reads each object with one partial retrieval (ERET). Several threads read over control
//! connections of their own. The library authenticates with the proxy of the user
//! (`X509_USER_PROXY`).
//!
//! This crate does not write, cache or retry.
//!
//! Invariant: a call never returns to its caller while the library can still write to memory of the
//! caller. The library writes only to buffers of the session. If an operation does not end after it
//! was aborted, its session and its buffers are never freed.

mod facts;
mod failure;
#[expect(unsafe_code, reason = "the system calls take addresses")]
mod guarded;
#[expect(
    unsafe_code,
    reason = "the Globus client library is reached by its C interface"
)]
mod library;
mod list;
mod read;
mod server;
#[expect(
    unsafe_code,
    reason = "the Globus client library is reached by its C interface"
)]
mod session;
mod store;
mod url;

pub use library::{LIBRARY_VARIABLE, is_loaded};
pub use store::GridFtpStore;
pub use url::{SCHEME, Url};
