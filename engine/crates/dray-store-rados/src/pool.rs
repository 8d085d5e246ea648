//! A namespace of a pool: operations on its objects.

use crate::cluster::Cluster;
use crate::errors::{Answer, Errno};
use crate::library::{Handle, Library};
use crate::placement::OsdId;
use crate::slots::Slots;
use dray_core::{End, Result};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Value of `LIBRADOS_CMPXATTR_OP_EQ` in the header.
const EQUAL: u8 = 1;
/// Value of `LIBRADOS_CREATE_EXCLUSIVE` in the header.
const EXCLUSIVE: c_int = 1;
/// Value of `LIBRADOS_OPERATION_FULL_TRY` in the header. A write to a full pool fails immediately,
/// and a deletion succeeds. Without the flag both block until the timeout.
const FULL_TRY: c_int = 64;

/// One step of a write operation. All steps of an operation take effect, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// Creates the object; fails with `EEXIST` if it exists.
    CreateNew,
    /// Creates the object if it is missing.
    Touch,
    /// Fails with `ENOENT` if the object is missing.
    Exists,
    /// Fails with `ECANCELED` if the attribute has another value.
    Equals(&'a CStr, &'a [u8]),
    /// Fails with `ERANGE` or `EOVERFLOW` if the object has another version.
    AtVersion(u64),
    Set(&'a CStr, &'a [u8]),
    /// Deletes an attribute; fails with `ENODATA` if it is missing.
    Unset(&'a CStr),
    Write(u64, &'a [u8]),
    WriteFull(&'a [u8]),
    Truncate(u64),
    Remove,
}

/// Parts of an object that an operation reads. All parts come from one version of the object.
#[derive(Debug, Default)]
pub(crate) struct Query<'a> {
    /// An attribute and its required value. The query fails with `ECANCELED` otherwise.
    pub(crate) equals: Option<(&'a CStr, &'a [u8])>,
    /// True to read all attributes.
    pub(crate) attributes: bool,
    /// Offset and buffer for data.
    pub(crate) data: Option<(u64, &'a mut [u8])>,
}

/// An operation.
#[derive(Debug)]
pub(crate) enum Action<'a> {
    Write(Vec<Step<'a>>),
    Read(Query<'a>),
}

/// An operation on an object.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) object: CString,
    /// OSD of the object, if known. The operation takes one of the [`Slots`] of this OSD.
    pub(crate) osd: Option<OsdId>,
    pub(crate) action: Action<'a>,
    /// Modification time of the written object in seconds, instead of the present time.
    pub(crate) time: Option<i64>,
}

impl<'a> Job<'a> {
    pub(crate) fn write(object: CString, steps: Vec<Step<'a>>) -> Self {
        Self {
            object,
            osd: None,
            action: Action::Write(steps),
            time: None,
        }
    }

    pub(crate) fn read(object: CString, query: Query<'a>) -> Self {
        Self {
            object,
            osd: None,
            action: Action::Read(query),
            time: None,
        }
    }

    /// Reads the attributes, the size and the time of an object.
    pub(crate) fn look(object: CString) -> Self {
        let query = Query {
            attributes: true,
            ..Query::default()
        };
        Self::read(object, query)
    }

    pub(crate) fn on(self, osd: Option<OsdId>) -> Self {
        Self { osd, ..self }
    }
}

/// Result of an operation. After a write, only the version has a meaning.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    /// Number of bytes read.
    pub(crate) read: usize,
    /// Size of the object.
    pub(crate) size: u64,
    /// Modification time of the object in seconds.
    pub(crate) time: i64,
    /// Version of the object, which each change increases.
    pub(crate) version: u64,
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Got {
    pub(crate) fn attribute(&self, name: &CStr) -> Option<&[u8]> {
        let mut found = self.attributes.iter();
        let found = found.find(|(known, _)| known == name.to_bytes());
        found.map(|(_, value)| value.as_slice())
    }
}

/// A namespace of a pool.
pub(crate) struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) raw: Handle,
    /// Number of the pool in the cluster.
    pub(crate) number: i64,
    pub(crate) name: String,
}

// SAFETY: librados permits calls with one pool handle from any thread. The namespace of the handle
// is set only before the handle is shared.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// A write or read operation of the library, which is released when dropped.
enum Raw {
    Write(&'static Library, Handle),
    Read(&'static Library, Handle),
}

impl Drop for Raw {
    fn drop(&mut self) {
        match self {
            // SAFETY: the operation is not in progress, because `Flight` waits for it first.
            Self::Write(library, raw) => unsafe { (library.release_write_op)(*raw) },
            // SAFETY: as above.
            Self::Read(library, raw) => unsafe { (library.release_read_op)(*raw) },
        }
    }
}

/// Values to which the library writes while a read is in progress. Their addresses do not change,
/// because the structure is in a box.
struct Outputs {
    read: usize,
    size: u64,
    time: i64,
    attributes: Handle,
    codes: [c_int; 3],
}

/// An operation in progress. Dropping the value waits for the end of the operation, so the library
/// never writes to a buffer or to `outputs` after this memory was freed.
struct Flight {
    library: &'static Library,
    completion: Handle,
    outputs: Box<Outputs>,
    /// Return value of the start; negative if the operation was not started.
    started: c_int,
    is_read: bool,
    _raw: Raw,
}

/// Frees the slot of an operation. Runs on a thread of the library.
unsafe extern "C" fn on_done(_completion: Handle, slots: *mut c_void) {
    // SAFETY: the pointer is that of `Arc::into_raw` in `Pool::start`, and each completion calls
    // this function once.
    unsafe { Arc::from_raw(slots.cast::<Slots>().cast_const()) }.free();
}

impl Flight {
    /// Waits for the end of the operation and returns its result.
    fn land(&mut self) -> Answer<Got> {
        Errno::check(self.started)?;
        // SAFETY: the completion belongs to an operation that was started.
        let value = unsafe {
            (self.library.aio_wait_for_complete_and_cb)(self.completion);
            (self.library.aio_get_return_value)(self.completion)
        };
        Errno::check(value)?;
        let mut got = Got {
            // SAFETY: the operation of the completion has ended.
            version: unsafe { (self.library.aio_get_version)(self.completion) },
            ..Got::default()
        };
        if self.is_read {
            for code in self.outputs.codes {
                Errno::check(code)?;
            }
            got.read = self.outputs.read;
            got.size = self.outputs.size;
            got.time = self.outputs.time;
            if !self.outputs.attributes.is_null() {
                got.attributes = attributes(self.library, self.outputs.attributes)?;
            }
        }
        Ok(got)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // SAFETY: the completion was created by the library, and nothing uses it afterwards. A
        // completion whose operation was not started must not be waited for.
        unsafe {
            if self.started >= 0 {
                (self.library.aio_wait_for_complete_and_cb)(self.completion);
            }
            (self.library.aio_release)(self.completion);
            if !self.outputs.attributes.is_null() {
                (self.library.getxattrs_end)(self.outputs.attributes);
            }
        }
    }
}

/// Reads all attributes of an iterator.
fn attributes(library: &Library, iterator: Handle) -> Answer<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    loop {
        let (mut name, mut value, mut length) = (null(), null(), 0);
        // SAFETY: the iterator comes from the library and is not at its end.
        let next = unsafe {
            (library.getxattrs_next)(iterator, &raw mut name, &raw mut value, &raw mut length)
        };
        Errno::check(next)?;
        if name.is_null() {
            return Ok(found);
        }
        // SAFETY: the library returns a text that ends with zero.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes().to_vec();
        let value = match value.is_null() || length == 0 {
            true => Vec::new(),
            // SAFETY: the library returns a value of this length.
            false => unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length) }.to_vec(),
        };
        found.push((name, value));
    }
}

impl Pool {
    /// Opens a namespace of a pool. The empty text is the default namespace.
    pub(crate) fn open(cluster: &Arc<Cluster>, pool: &str, namespace: &str) -> Result<Self> {
        let operation = format!("open the pool {pool}");
        let failed = |errno: Errno| errno.error(End::Here, &operation);
        let name = CString::new(pool).map_err(|_| failed(Errno(22)))?;
        let namespace = CString::new(namespace).map_err(|_| failed(Errno(22)))?;
        let library = cluster.library;
        let mut raw: Handle = null_mut();
        // SAFETY: the text lives until the call returns.
        let made = unsafe { (library.ioctx_create)(cluster.raw, name.as_ptr(), &raw mut raw) };
        cluster
            .note(Errno::check(made))
            .map_err(|errno| match errno {
                Errno::NOT_FOUND => failed(errno)
                    .cause(format!("the cluster has no pool {pool}"))
                    .remedy("list the pools with `ceph osd pool ls`"),
                _ => failed(errno),
            })?;
        // SAFETY: the handle is new, and no other thread uses it yet.
        let number = unsafe {
            (library.ioctx_set_namespace)(raw, namespace.as_ptr());
            (library.set_pool_full_try)(raw);
            (library.ioctx_get_id)(raw)
        };
        Ok(Self {
            cluster: Arc::clone(cluster),
            raw,
            number,
            name: pool.to_owned(),
        })
    }

    /// Starts all operations and waits for their ends. Returns one result for each operation, in
    /// the same order. Operations on one object take effect in the order of `jobs`.
    pub(crate) fn run(&self, mut jobs: Vec<Job<'_>>) -> Vec<Answer<Got>> {
        self.land(self.start_all(&mut jobs))
    }

    /// Executes operations in two namespaces, like two calls of [`Self::run`] at the same time.
    pub(crate) fn run_both(
        (one, mut ones): (&Self, Vec<Job<'_>>),
        (other, mut others): (&Self, Vec<Job<'_>>),
    ) -> (Vec<Answer<Got>>, Vec<Answer<Got>>) {
        let flights = (one.start_all(&mut ones), other.start_all(&mut others));
        (one.land(flights.0), other.land(flights.1))
    }

    fn start_all(&self, jobs: &mut [Job<'_>]) -> Vec<Flight> {
        jobs.iter_mut().map(|job| self.start(job)).collect()
    }

    fn land(&self, mut flights: Vec<Flight>) -> Vec<Answer<Got>> {
        let landed = flights
            .iter_mut()
            .map(|flight| self.cluster.note(flight.land()));
        landed.collect()
    }

    /// Executes one operation.
    pub(crate) fn one(&self, job: Job<'_>) -> Answer<Got> {
        self.run(vec![job]).pop().unwrap_or(Err(Errno(22)))
    }

    fn start(&self, job: &mut Job<'_>) -> Flight {
        let library = self.cluster.library;
        let slots = self.cluster.slots(job.osd);
        slots.take();
        let argument = Arc::into_raw(slots).cast_mut().cast::<c_void>();
        let mut completion: Handle = null_mut();
        // SAFETY: the callback frees the argument.
        unsafe { (library.aio_create_completion2)(argument, on_done, &raw mut completion) };
        let mut outputs = Box::new(Outputs {
            read: 0,
            size: 0,
            time: 0,
            attributes: null_mut(),
            codes: [0; 3],
        });
        let object = job.object.as_ptr();
        let (raw, started) = match &mut job.action {
            Action::Write(steps) => {
                let raw = write_operation(library, steps);
                let mut time = job.time;
                let time = time.as_mut().map_or(null_mut(), std::ptr::from_mut);
                // SAFETY: the library copies the name, the time and the steps.
                let started = unsafe {
                    (library.aio_write_op_operate)(
                        raw, self.raw, completion, object, time, FULL_TRY,
                    )
                };
                (Raw::Write(library, raw), started)
            }
            Action::Read(query) => {
                let raw = read_operation(library, query, &mut outputs);
                // SAFETY: the buffers live until `Flight` is dropped, which waits for the end.
                let started =
                    unsafe { (library.aio_read_op_operate)(raw, self.raw, completion, object, 0) };
                (Raw::Read(library, raw), started)
            }
        };
        if started < 0 {
            // SAFETY: no operation was started, so the library does not call the callback.
            unsafe { on_done(completion, argument) };
        }
        Flight {
            library,
            completion,
            outputs,
            started,
            is_read: matches!(job.action, Action::Read(_)),
            _raw: raw,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: `run` waits for all operations, so none is in progress.
        unsafe { (self.cluster.library.ioctx_destroy)(self.raw) };
    }
}

/// Builds a write operation. The library copies all names and bytes.
fn write_operation(library: &'static Library, steps: &[Step<'_>]) -> Handle {
    let bytes = |bytes: &[u8]| (bytes.as_ptr().cast::<c_char>(), bytes.len());
    // SAFETY: the operation is new, and all names and bytes live until each call returns.
    unsafe {
        let raw = (library.create_write_op)();
        for step in steps {
            match *step {
                Step::CreateNew => (library.write_op_create)(raw, EXCLUSIVE, null()),
                Step::Touch => (library.write_op_create)(raw, 0, null()),
                Step::Exists => (library.write_op_assert_exists)(raw),
                Step::Equals(name, value) => {
                    let (value, length) = bytes(value);
                    (library.write_op_cmpxattr)(raw, name.as_ptr(), EQUAL, value, length);
                }
                Step::Set(name, value) => {
                    let (value, length) = bytes(value);
                    (library.write_op_setxattr)(raw, name.as_ptr(), value, length);
                }
                Step::Unset(name) => (library.write_op_rmxattr)(raw, name.as_ptr()),
                Step::AtVersion(version) => (library.write_op_assert_version)(raw, version),
                Step::Write(offset, data) => {
                    let (data, length) = bytes(data);
                    (library.write_op_write)(raw, data, length, offset);
                }
                Step::WriteFull(data) => {
                    let (data, length) = bytes(data);
                    (library.write_op_write_full)(raw, data, length);
                }
                Step::Truncate(length) => (library.write_op_truncate)(raw, length),
                Step::Remove => (library.write_op_remove)(raw),
            }
        }
        raw
    }
}

/// Builds a read operation. The buffer of the query and `outputs` must live until the operation
/// ends.
fn read_operation(
    library: &'static Library,
    query: &mut Query<'_>,
    outputs: &mut Outputs,
) -> Handle {
    let [first, second, third] = &mut outputs.codes;
    // SAFETY: the operation is new. The library copies names and values, and the caller guarantees
    // the life of the buffers.
    unsafe {
        let raw = (library.create_read_op)();
        if let Some((name, value)) = query.equals {
            let (value, length) = (value.as_ptr().cast::<c_char>(), value.len());
            (library.read_op_cmpxattr)(raw, name.as_ptr(), EQUAL, value, length);
        }
        if query.attributes {
            (library.read_op_getxattrs)(raw, &raw mut outputs.attributes, first);
        }
        let (size, time) = (&raw mut outputs.size, &raw mut outputs.time);
        (library.read_op_stat)(raw, size, time, second);
        if let Some((offset, buffer)) = &mut query.data {
            let data = buffer.as_mut_ptr().cast::<c_char>();
            let read = &raw mut outputs.read;
            (library.read_op_read)(raw, *offset, buffer.len(), data, read, third);
        }
        raw
    }
}
