//! Checks a request and converts it to a submission: resolves its URLs to a route, and checks the
//! caller's permissions.

use super::Api;
use crate::session::check_clear_data;
use crate::tier::SpaceRequest;
use dray_access::{Action, Principal};
use dray_api::api_path::{ApiPath, Side};
use dray_api::{Check, Request, Route};
use dray_core::options::{Options, Overwrite};
use dray_core::{End, Error, ErrorKind, Result};
use dray_open::prepare::new_transfer_id;
use dray_queue::Submission;
use dray_runtime::select::Filter;
use dray_wire::message::Selection;

/// Maximum size of a stored request in bytes. A recursive copy with a hundred patterns has about 10
/// KiB. A list of 400 files has about 50 KiB.
pub(super) const REQUEST_BYTES_MAX: usize = 64 << 10;

fn refused(cause: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
        .cause(cause)
        .remedy(remedy)
}

/// Returns the permission that an overwrite rule needs at the destination.
pub(super) const fn writing(overwrite: Overwrite) -> Action {
    match overwrite {
        Overwrite::Never => Action::Create,
        Overwrite::IfDifferent | Overwrite::Always => Action::Modify,
    }
}

impl Api {
    /// Checks everything about a request that can be checked before the transfer runs. `size` is
    /// the size of the sources in bytes, if it was measured.
    pub(super) fn submission(
        &self,
        caller: &Principal,
        request: Request,
        size: Option<u64>,
    ) -> Result<Submission> {
        request.check()?;
        check_size(&request)?;
        let route = self.config.route(&request)?;
        check_files(&request, &route)?;
        let patterns = Selection {
            recursive: request.selection.recursive,
            include: request.include(),
            exclude: request.selection.exclude.clone(),
            links: request.selection.links,
            ..Selection::default()
        };
        Filter::new(&patterns)?;
        if !route.sides().all(Side::is_local) {
            check_clear_data(&request, &self.config)?;
        }
        self.check_access(caller, &request, &route)?;
        self.check_stripes(&request, &route)?;
        let claim = match (route.destination(), &request.id) {
            (Side::Local(to), Some(id)) => self.tiers.claim(&SpaceRequest {
                id,
                to,
                bytes: request.bytes_stated().or(size),
                application: None,
                period_seconds: None,
            })?,
            _ => None,
        };
        Ok(Submission {
            request,
            route,
            owner: caller.owner.clone(),
            principal: caller.name.clone(),
            claim,
        })
    }

    /// Refuses stripes that would have no effect at a destination of this endpoint. Another endpoint
    /// checks its destination when the session begins.
    fn check_stripes(&self, request: &Request, route: &Route) -> Result<()> {
        let (Side::Local(to), Some(_)) = (route.destination(), request.stripe) else {
            return Ok(());
        };
        let options = Options {
            stripes: request.stripe,
            ..Options::default()
        };
        self.roots.find(to)?.export.refuse_options(&options)
    }

    fn check_access(&self, caller: &Principal, request: &Request, route: &Route) -> Result<()> {
        let destination = route.destination();
        if let Side::Local(path) = destination {
            self.roots.find(path)?;
            self.access
                .allow(caller, writing(request.overwrite), path)?;
        }
        for source in route.origin_sides() {
            if let Side::Local(path) = source {
                self.roots.find(path)?;
                self.access.allow(caller, Action::Read, path)?;
                refuse_itself(path, destination, request.selection.recursive)?;
            }
        }
        Ok(())
    }
}

/// Gives a request an id if it has none.
pub(super) fn with_id(mut request: Request) -> Result<Request> {
    if request.id.is_none() {
        request.id = Some(new_transfer_id()?);
    }
    Ok(request)
}

/// Refuses a list of files for a destination at another endpoint. Only the sink of the session can
/// compare each file with its required checksum.
fn check_files(request: &Request, route: &Route) -> Result<()> {
    if request.files.is_empty() || route.destination().is_local() {
        return Ok(());
    }
    Err(refused(
        "the destination of a request with `files` is at another endpoint",
        "submit the request to the endpoint of the destination",
    ))
}

fn check_size(request: &Request) -> Result<()> {
    /// A writer that counts the bytes and discards them.
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let written = serde_json::to_writer(&mut count, request);
    if written.is_ok() && count.0 <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    let cause = format!(
        "the request has {} bytes; at most {REQUEST_BYTES_MAX} bytes are allowed",
        count.0
    );
    let error = Error::new(ErrorKind::LimitExceeded, End::Here, "read the request").cause(cause);
    Err(error.remedy("use fewer or shorter patterns and labels, or submit several transfers"))
}

/// Refuses a copy of a file onto itself, and a recursive copy of a folder into itself, which would
/// never end.
fn refuse_itself(source: &ApiPath, destination: &Side, recursive: bool) -> Result<()> {
    let Side::Local(destination) = destination else {
        return Ok(());
    };
    if source.root != destination.root {
        return Ok(());
    }
    let is_same = source.path == destination.path && !destination.is_folder;
    let is_within = recursive && destination.path.starts_with(&source.path);
    if is_same || is_within {
        return Err(refused(
            "the destination is the source or is inside the source",
            "choose another destination",
        ));
    }
    Ok(())
}
