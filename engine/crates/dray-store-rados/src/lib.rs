//! Reads and writes files in pools of a Ceph cluster (`rados://POOL[@NAMESPACE]/PATH`).
//!
//! Contents: [`Url`], the URL of a file in a pool; [`Placement`], the OSD that serves an object.
//!
//! A file has the name after the first slash: `rados://POOL/a/b` is the file `a/b`, which is the
//! file `root://HOST/a/b` of an XrdCeph server with this pool. `rados://POOL//a/b` is the file
//! `/a/b`, which is `root://HOST//a/b`. Object number N of the file has the name of the file, a
//! dot, and N as 16 hexadecimal digits.

mod attributes;
#[expect(unsafe_code, reason = "librados is reached by its C interface")]
mod cluster;
mod control;
mod control_names;
mod errors;
mod files;
mod guard;
mod implied;
mod layout;
#[expect(unsafe_code, reason = "librados is reached by its C interface")]
mod library;
mod list;
#[expect(unsafe_code, reason = "librados is reached by its C interface")]
mod lock;
mod lost;
mod made;
mod names;
mod note;
mod partial;
mod placement;
mod places;
#[expect(unsafe_code, reason = "librados is reached by its C interface")]
mod pool;
mod publish;
mod read;
#[expect(unsafe_code, reason = "librados is reached by its C interface")]
mod slices;
mod slots;
mod small;
mod store;
mod targets;
mod unpublished;
mod url;

pub use library::{LIBRARY_VARIABLE, end_process, is_loaded};
pub use placement::{Commands, OsdId, Placement, Refresher};
pub use store::RadosStore;
pub use url::{Access, FileLayout, OBJECT_BYTES_MAX, SCHEME, Url};
