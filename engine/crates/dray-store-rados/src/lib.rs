//! Reads and writes files in pools of a Ceph cluster (`rados://POOL[@NAMESPACE]/PATH`).
//!
//! Contents: [`Url`], the URL of a file in a pool; [`Placement`], the OSD that serves an object.
//!
//! A file has the name after the first slash: `rados://POOL/a/b` is the file `a/b`, which is the
//! file `root://HOST/a/b` of an XrdCeph server with this pool. `rados://POOL//a/b` is the file
//! `/a/b`, which is `root://HOST//a/b`. Object number N of the file has the name of the file, a
//! dot, and N as 16 hexadecimal digits.

mod placement;
mod url;

pub use placement::{OsdId, Placement};
pub use url::{Access, FileLayout, OBJECT_BYTES_MAX, SCHEME, Url};
