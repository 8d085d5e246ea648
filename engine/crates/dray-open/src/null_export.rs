//! Null ends that a server offers to other hosts, in place of an exported folder.

use crate::export;
use crate::null::Null;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_link::pool::Pool;
use dray_runtime::assembly::Threads;
use dray_runtime::sink::{self, Destination, DestinationRequest};
use dray_runtime::source::{self, Root};
use dray_store::lustre::stripes_refused;
use dray_store::{NullStore, NullTree, Store};
use dray_wire::message::{Connect, Limits};
use dray_wire::negotiate::Agreed;
use std::sync::Arc;

/// A null end that a server offers to other hosts, in place of an exported folder.
#[derive(Debug)]
pub struct NullExport {
    /// The generated tree that clients can read.
    pub null: Null,
    /// Number of threads of each end.
    pub threads: Threads,
}

impl NullExport {
    /// Opens the sink that a driver requests. The buffers of the sink have `pool` bytes in total.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the driver requests that data is read back.
    pub fn passive_sink(
        &self,
        connect: &Connect,
        limits: &Limits,
        owner: Vec<u8>,
        pool: u64,
    ) -> Result<(sink::Setup, Arc<Pool>)> {
        if connect.options.verify {
            let error = Error::new(
                ErrorKind::InvalidRequest,
                End::Sink,
                "read back the written data",
            );
            return Err(error
                .cause("a null destination stores no data")
                .remedy("run the command without --verify"));
        }
        if connect.options.stripes.is_some() {
            return Err(stripes_refused(End::Sink, "the null destination"));
        }
        let rest = connect.paths.iter().skip(1);
        let claims: Result<Vec<_>> = rest.map(|path| RelPath::parse(path)).collect();
        let claims = claims.map_err(|error| error.at(End::Sink))?;
        let destination = destination(|store| DestinationRequest {
            store,
            above: None,
            claims,
            transfer: connect.transfer.clone(),
            owner,
            durability: connect.options.durability,
            log: None,
            words: "a null end".to_owned(),
        })?;
        let threads = self.threads;
        export::sink_of(destination, connect, limits, pool, threads)
    }

    /// Opens the source that a driver requests. The buffers of the source have `pool` bytes in
    /// total.
    ///
    /// # Errors
    /// If a path or a pattern is invalid.
    pub fn passive_source(
        &self,
        connect: &Connect,
        agreed: &Agreed,
        pool: u64,
    ) -> Result<source::Setup> {
        let store = self.null.source();
        let root = |path: &Vec<u8>| {
            let trimmed = path.strip_suffix(b"/").unwrap_or(path);
            Ok(Root {
                store: Arc::clone(&store),
                path: RelPath::parse(trimmed).map_err(|error| error.at(End::Source))?,
                top: "/".into(),
                name: None,
                contents: trimmed.len() < path.len() || path.is_empty(),
            })
        };
        let roots: Result<Vec<_>> = connect.paths.iter().map(root).collect();
        export::source_of(roots?, connect, agreed, pool, self.threads)
    }
}

/// Opens a destination that discards all data. The names in the request are used in messages. The
/// other fields have no effect.
///
/// # Errors
/// The errors of [`Destination::open`], except errors of storage.
pub fn destination(
    request: impl FnOnce(Arc<dyn Store>) -> DestinationRequest,
) -> Result<Destination> {
    let store = NullStore::new(End::Sink, NullTree::default());
    Destination::open(request(Arc::new(store)))
}
