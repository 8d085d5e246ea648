//! A connection to a cluster. All stores of this process with the same access share a connection.

use crate::errors::{Answer, Errno};
use crate::library::{ClusterStat, Command, Handle, Library, library};
use crate::placement::{Commands, OsdId};
use crate::places::Places;
use crate::slots::Slots;
use crate::url::Access;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// Timeouts that this process sets, unless the user has configured them: the name, the value in
/// seconds, and the values that mean "not configured". A client without timeouts waits forever for
/// a stopped OSD or monitor.
const TIMEOUTS: [(&CStr, &CStr, &[f64]); 3] = [
    (c"rados_osd_op_timeout", c"30", &[0.0]),
    (c"rados_mon_op_timeout", c"30", &[0.0]),
    (c"client_mount_timeout", c"30", &[0.0, 300.0]),
];

/// Settings that switch off the library's output and its admin socket. The clients of one host
/// would compete for the path of the socket.
const QUIET: [(&CStr, &CStr); 4] = [
    (c"admin_socket", c""),
    (c"log_file", c""),
    (c"log_to_stderr", c"false"),
    (c"err_to_stderr", c"false"),
];

/// Seconds for which a former holder of a lease is blocklisted: the default of Ceph.
const BLOCKLIST_SECONDS: u32 = 3600;

/// A connection to a cluster.
pub(crate) struct Cluster {
    pub(crate) library: &'static Library,
    pub(crate) raw: Handle,
    /// Number of this client in the cluster.
    pub(crate) client: u64,
    /// True if the cluster has blocklisted this client, so that every further call fails.
    pub(crate) is_lost: AtomicBool,
    slots: Mutex<HashMap<Option<OsdId>, Arc<Slots>>>,
    /// Placements by the names of their pools.
    places: Mutex<HashMap<String, Arc<Places>>>,
}

// SAFETY: librados permits calls with one cluster handle from any thread.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

static CLUSTERS: Mutex<Vec<(Access, Weak<Cluster>)>> = Mutex::new(Vec::new());

fn failed(operation: &str) -> impl Fn(Errno) -> Error {
    move |errno| errno.error(End::Here, operation)
}

fn text(value: impl AsRef<[u8]>) -> Result<CString> {
    CString::new(value.as_ref()).map_err(|_| {
        Error::new(
            ErrorKind::InvalidRequest,
            End::Here,
            "connect to the Ceph cluster",
        )
        .cause("a setting contains a zero byte")
    })
}

impl Commands for Cluster {
    fn monitor(&self, command: &str) -> Result<Vec<u8>> {
        let answer = self.ask_monitors(command);
        answer.map_err(|errno| errno.error(End::Here, "read the OSD map"))
    }
}

impl Cluster {
    /// Returns the connection with this access. Connects if no store of this process has one.
    pub(crate) fn of(access: &Access) -> Result<Arc<Self>> {
        let mut known = CLUSTERS.lock_unpoisoned();
        known.retain(|(_, cluster)| cluster.strong_count() > 0);
        let found = known.iter().filter(|(other, _)| other == access);
        let found = found.filter_map(|(_, cluster)| cluster.upgrade());
        let mut usable = found.filter(|cluster| !cluster.is_lost.load(Ordering::SeqCst));
        if let Some(cluster) = usable.next() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Self::connect(access)?);
        known.push((access.clone(), Arc::downgrade(&cluster)));
        Ok(cluster)
    }

    fn connect(access: &Access) -> Result<Self> {
        let library = library()?;
        let user = access.user.as_deref().unwrap_or("admin");
        let name = text(format!("client.{user}"))?;
        let mut raw: Handle = null_mut();
        // SAFETY: the texts live until the call returns.
        let made = unsafe { (library.create2)(&raw mut raw, c"ceph".as_ptr(), name.as_ptr(), 0) };
        Errno::check(made).map_err(failed("use the Ceph client library"))?;
        // The value calls `rados_shutdown` when it is dropped, also after an error below.
        let mut cluster = Self {
            library,
            raw,
            client: 0,
            is_lost: AtomicBool::new(false),
            slots: Mutex::default(),
            places: Mutex::default(),
        };
        cluster.configure(access)?;
        // SAFETY: the handle is configured and not connected.
        let connected = Errno::check(unsafe { (library.connect)(raw) });
        connected.map_err(|errno| unreachable_cluster(errno, user))?;
        // SAFETY: the handle is connected.
        cluster.client = unsafe { (library.get_instance_id)(raw) };
        Ok(cluster)
    }

    fn configure(&self, access: &Access) -> Result<()> {
        let library = self.library;
        let conf = access
            .conf
            .as_ref()
            .map(|conf| text(conf.as_os_str().as_bytes()));
        let conf = conf.transpose()?;
        let place = conf.as_ref().map_or(null(), |conf| conf.as_ptr());
        // SAFETY: the path is null or lives until the call returns.
        let read = Errno::check(unsafe { (library.conf_read_file)(self.raw, place) });
        read.map_err(|errno| {
            let named = access.conf.as_ref().map(|conf| conf.display().to_string());
            let named = named.or_else(|| std::env::var("CEPH_CONF").ok());
            let error = failed("read the configuration of the Ceph cluster")(errno);
            let said = error.cause.clone();
            error
                .cause(format!(
                    "{}: {said}",
                    named.as_deref().unwrap_or("/etc/ceph/ceph.conf")
                ))
                .remedy("set CEPH_CONF, or add ?conf=FILE to the URL")
        })?;
        // SAFETY: a null name selects the variable CEPH_ARGS.
        let read = Errno::check(unsafe { (library.conf_parse_env)(self.raw, null()) });
        read.map_err(failed("read CEPH_ARGS"))?;
        for (name, value) in QUIET {
            self.set(name, value)?;
        }
        if let Some(keyring) = &access.keyring {
            self.set(c"keyring", &text(keyring.as_os_str().as_bytes())?)?;
        }
        for (name, seconds, unset) in TIMEOUTS {
            let found = self.get(name).and_then(|found| found.parse::<f64>().ok());
            let is_unset = |found: f64| unset.iter().any(|value| (value - found).abs() < 0.001);
            if found.is_none_or(is_unset) {
                self.set(name, seconds)?;
            }
        }
        Ok(())
    }

    fn set(&self, name: &CStr, value: &CStr) -> Result<()> {
        // SAFETY: the texts live until the call returns.
        let set = unsafe { (self.library.conf_set)(self.raw, name.as_ptr(), value.as_ptr()) };
        let said = format!("set {} of the Ceph client", name.to_string_lossy());
        Errno::check(set).map(drop).map_err(failed(&said))
    }

    fn get(&self, name: &CStr) -> Option<String> {
        let mut value = [0u8; 64];
        let place = value.as_mut_ptr().cast::<c_char>();
        // SAFETY: the library writes at most `value.len()` bytes.
        let got = unsafe { (self.library.conf_get)(self.raw, name.as_ptr(), place, value.len()) };
        Errno::check(got).ok()?;
        let value = CStr::from_bytes_until_nul(&value).ok()?;
        value.to_str().ok().map(str::to_owned)
    }

    /// Returns the slots that limit the operations in flight to an OSD.
    pub(crate) fn slots(&self, osd: Option<OsdId>) -> Arc<Slots> {
        Arc::clone(self.slots.lock_unpoisoned().entry(osd).or_default())
    }

    /// Returns the placement of a pool.
    pub(crate) fn places(&self, pool: &str) -> Arc<Places> {
        let mut places = self.places.lock_unpoisoned();
        let found = places.entry(pool.to_owned());
        Arc::clone(found.or_insert_with(|| Arc::new(Places::new(pool))))
    }

    /// If the cluster has blocklisted this client according to `answer`, records that. Returns
    /// `answer`.
    pub(crate) fn note<T>(&self, answer: Answer<T>) -> Answer<T> {
        if matches!(answer, Err(Errno::BLOCKLISTED)) {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        answer
    }

    /// Sends a command in JSON to the monitors and returns the answer.
    pub(crate) fn ask_monitors(&self, command: &str) -> Answer<Vec<u8>> {
        self.ask(self.library.mon_command, command)
    }

    fn ask(&self, function: Command, command: &str) -> Answer<Vec<u8>> {
        let command = CString::new(command).map_err(|_| Errno(22))?;
        let mut commands = [command.as_ptr()];
        let (mut answer, mut length) = (null_mut(), 0);
        let (mut status, mut status_length) = (null_mut(), 0);
        // SAFETY: the command lives until the call returns. The library stores pointers to memory
        // that is freed below.
        let asked = unsafe {
            function(
                self.raw,
                commands.as_mut_ptr(),
                1,
                null(),
                0,
                &raw mut answer,
                &raw mut length,
                &raw mut status,
                &raw mut status_length,
            )
        };
        // SAFETY: the library returned this pointer with this length.
        let bytes = unsafe { self.taken(answer, length) };
        // SAFETY: as above.
        drop(unsafe { self.taken(status, status_length) });
        self.note(Errno::check(asked))?;
        Ok(bytes)
    }

    /// Copies and frees a buffer of the library.
    ///
    /// # Safety
    /// `buffer` is null, or a buffer of `length` bytes that the library has allocated.
    pub(crate) unsafe fn taken(&self, buffer: *mut c_char, length: usize) -> Vec<u8> {
        if buffer.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller guarantees the length.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) }.to_vec();
        // SAFETY: the library has allocated the buffer, and no reference to it is left.
        unsafe { (self.library.buffer_free)(buffer) };
        bytes
    }

    /// Returns the total, used and free space of the cluster.
    pub(crate) fn sizes(&self) -> Answer<ClusterStat> {
        let mut sizes = ClusterStat::default();
        // SAFETY: the structure lives until the call returns.
        let asked = unsafe { (self.library.cluster_stat)(self.raw, &raw mut sizes) };
        self.note(Errno::check(asked)).map(|_| sizes)
    }

    /// Excludes a client from the cluster. When the call returns, no later operation of this
    /// process can be overtaken by an operation of that client.
    pub(crate) fn exclude(&self, address: &CStr) -> Answer<()> {
        let mut address = address.to_bytes_with_nul().to_vec();
        let place = address.as_mut_ptr().cast::<c_char>();
        // SAFETY: the text lives until the call returns.
        let added = unsafe { (self.library.blocklist_add)(self.raw, place, BLOCKLIST_SECONDS) };
        self.note(Errno::check(added))?;
        // SAFETY: the handle is connected. Each later operation carries the epoch of the map with
        // the blocklist, so its OSD reads that map first.
        let waited = unsafe { (self.library.wait_for_latest_osdmap)(self.raw) };
        self.note(Errno::check(waited)).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: every pool holds a reference to the cluster, so all pools are closed.
        unsafe { (self.library.shutdown)(self.raw) };
    }
}

fn unreachable_cluster(errno: Errno, user: &str) -> Error {
    let error = errno.error(End::Here, "connect to the Ceph cluster");
    match errno {
        Errno::PERMISSION | Errno::ACCESS | Errno::NOT_FOUND | Errno(95) => {
            let said = error.cause.clone();
            error.cause(format!("{said} (user client.{user})")).remedy(
                "check the Ceph user and the keyring of this user (?user=NAME&keyring=FILE)",
            )
        }
        _ => Error {
            kind: ErrorKind::Unreachable,
            ..error
        }
        .remedy("check `mon host` in the Ceph configuration and the network"),
    }
}
