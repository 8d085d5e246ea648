//! The route of a transfer: the parsed URLs of its request.

use crate::{Place, Request, Side};
use dray_core::{End, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The sides of a transfer, in the order of the request's places.
///
/// The URLs of a transfer are resolved once, at the submission, and the route is stored with the
/// transfer. If an administrator renames the endpoint later, the stored route still names the right
/// sides.
///
/// Invariants of this type:
/// - There is at least one source, and all sources are in one root.
/// - The destination is at this endpoint, or all sources and replicas are at this endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Route {
    sources: Vec<Side>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replicas: Vec<Side>,
    destination: Side,
}

/// The parts of a stored route, before they are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    sources: Vec<Side>,
    #[serde(default)]
    replicas: Vec<Side>,
    destination: Side,
}

impl TryFrom<Parts> for Route {
    type Error = Error;

    fn try_from(parts: Parts) -> Result<Self> {
        let route = Self {
            sources: parts.sources,
            replicas: parts.replicas,
            destination: parts.destination,
        };
        route.check()?;
        Ok(route)
    }
}

impl Route {
    /// Parses the URLs of a request. `is_own` must return true for a `HOST:PORT` of this endpoint.
    ///
    /// # Errors
    /// Errors of [`Side::parse`]. `InvalidRequest` if the sources are in several roots, or if the
    /// sources and the destination are all at other endpoints.
    pub fn parse(request: &Request, is_own: impl Fn(&str) -> bool) -> Result<Self> {
        let side = |place: &Place| Side::parse(&place.url, &is_own);
        let route = Self {
            destination: side(&request.destination)?,
            sources: request.sources.iter().map(side).collect::<Result<_>>()?,
            replicas: request.replicas.iter().map(side).collect::<Result<_>>()?,
        };
        route.check()?;
        Ok(route)
    }

    fn check(&self) -> Result<()> {
        let root = |side: &Side| (side.address().map(str::to_owned), side.path().root.clone());
        let mut roots = self.sources.iter().map(root);
        let first = roots.next();
        if first.is_none() {
            return Err(refused(
                "the request has no source",
                "name at least one source",
            ));
        }
        // A session reads all its sources from one store.
        if !roots.all(|other| Some(other) == first) {
            return Err(refused(
                "the sources of one transfer must be in one root of one endpoint",
                "submit one transfer for each root; list equal copies of one file in `replicas`",
            ));
        }
        if !self.destination.is_local() && !self.origin_sides().all(Side::is_local) {
            return Err(refused(
                "neither the source nor the destination is at this endpoint",
                "submit the request to the endpoint of the source or of the destination",
            ));
        }
        Ok(())
    }

    /// Returns the side that the transfer writes.
    #[must_use]
    pub const fn destination(&self) -> &Side {
        &self.destination
    }

    /// Returns the sides that a session reads. `index` has the meaning of [`Request::origin`].
    #[must_use]
    pub fn origin(&self, index: usize) -> &[Side] {
        match index.checked_sub(1) {
            None => &self.sources,
            Some(replica) => self.replicas.get(replica..=replica).unwrap_or_default(),
        }
    }

    /// Returns the first side that a session with origin `index` reads. If no replica has this
    /// index, returns the first source.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<&Side> {
        self.origin(index).first().or(self.sources.first())
    }

    /// Returns all sources and replicas.
    pub fn origin_sides(&self) -> impl Iterator<Item = &Side> {
        self.sources.iter().chain(&self.replicas)
    }

    /// Returns every side, in the order of [`Request::places_mut`].
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        self.origin_sides().chain([&self.destination])
    }

    /// Returns the first source and the destination of a session.
    pub fn ends(&self, index: usize) -> impl Iterator<Item = &Side> {
        self.source(index).into_iter().chain([&self.destination])
    }

    /// Returns `HOST:PORT` of the other endpoint of a session, or `None` for a copy within this
    /// endpoint.
    #[must_use]
    pub fn peer(&self, index: usize) -> Option<&str> {
        self.ends(index).find_map(Side::address)
    }
}

fn refused(cause: &str, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the request")
        .cause(cause)
        .remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::Route;
    use crate::{Request, Side};
    use serde_json::json;

    fn request(sources: &[&str], replicas: &[&str], destination: &str) -> Request {
        let places = |urls: &[&str]| {
            urls.iter()
                .map(|url| json!({"url": url}))
                .collect::<Vec<_>>()
        };
        serde_json::from_value(json!({
            "sources": places(sources),
            "replicas": places(replicas),
            "destination": {"url": destination},
        }))
        .expect("a request")
    }

    fn is_own(address: &str) -> bool {
        address == "a.example:4735"
    }

    fn route(sources: &[&str], replicas: &[&str], destination: &str) -> Route {
        Route::parse(&request(sources, replicas, destination), is_own).expect("a route")
    }

    #[test]
    fn the_stored_form_names_no_alias_of_this_endpoint() {
        let route = route(
            &["dray://b.example/data/x"],
            &["dray://c.example:1/data/x", "dray://a.example/data/x"],
            "dray://a.example/data/in/",
        );
        let stored = serde_json::to_value(&route).expect("JSON");
        let wanted = json!({
            "sources": ["dray://b.example:4735/data/x"],
            "replicas": ["dray://c.example:1/data/x", "/data/x"],
            "destination": "/data/in/",
        });
        assert_eq!(stored, wanted);
        assert_eq!(
            serde_json::from_value::<Route>(stored).expect("read"),
            route
        );
    }

    #[test]
    fn each_origin_has_its_sides_and_its_peer() {
        let route = route(
            &["dray://b.example/data/x"],
            &["/data/x", "dray://c.example/data/x"],
            "/data/y",
        );
        let peers = [0, 1, 2, 3].map(|index| route.peer(index));
        let b = Some("b.example:4735");
        assert_eq!(peers, [b, None, Some("c.example:4735"), b]);
        assert!(route.origin(3).is_empty());
        assert_eq!(route.sides().count(), 4);
        assert!(route.source(1).is_some_and(Side::is_local));
    }

    #[test]
    fn a_route_that_no_session_could_follow_is_refused() {
        let cases = [
            (
                request(&["/data/x", "/other/y"], &[], "/data/z/"),
                "in one root",
            ),
            (
                request(&["dray://b.example/d/x"], &[], "dray://c.example/d/y"),
                "neither the source",
            ),
            (
                request(&["/d/x"], &["dray://b.example/d/x"], "dray://c.example/d/y"),
                "neither the source",
            ),
            (
                request(&["http://b/x"], &[], "/d/y"),
                "is neither a URL of an endpoint",
            ),
            (request(&["/d/x"], &[], "/d/../y"), "/d/../y"),
            (request(&[], &[], "/d/y"), "no source"),
        ];
        for (request, cause) in cases {
            let error = Route::parse(&request, is_own).expect_err(cause);
            assert!(error.cause.contains(cause), "{error}");
        }
    }

    #[test]
    fn a_damaged_route_is_not_read() {
        for stored in [
            json!({}),
            json!({"sources": [], "destination": "/d/y"}),
            json!({"sources": ["d/x"], "destination": "/d/y"}),
            json!({"sources": ["/d/../x"], "destination": "/d/y"}),
            json!({"sources": ["/d/x"], "destination": "/d/y", "way": "in"}),
            json!({"sources": ["dray://b/d/x"], "destination": "dray://c/d/y"}),
        ] {
            assert!(
                serde_json::from_value::<Route>(stored.clone()).is_err(),
                "{stored}"
            );
        }
    }
}
