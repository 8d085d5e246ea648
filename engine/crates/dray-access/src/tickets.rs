//! Tickets. An endpoint issues a ticket to a caller, so that another endpoint may open sessions for
//! one transfer.
//!
//! Invariant of this module: a ticket permits one transfer, in one direction, below the ticket's
//! paths. Only the endpoint with the key named in the ticket can use the ticket. The ticket is
//! valid until it expires or is revoked. The issuing endpoint stores the SHA-256 of the secret, and
//! never the secret.

use dray_api::api_path::ApiPath;
use dray_api::{Direction, RateWish, TICKET_ALPHABET, TICKET_PREFIX, TICKET_RANDOM_BYTES};
use dray_core::options::Overwrite;
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_net::Fingerprint;
use dray_wire::message::Role;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;

/// A ticket's secret. Only [`Secret::expose`] returns it as text.
pub struct Secret(String);

impl Secret {
    /// Returns a new random secret.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the system provides no random bytes.
    pub fn draw() -> Result<Self> {
        let mut bytes = [0; TICKET_RANDOM_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| {
            Error::new(
                ErrorKind::Internal,
                End::Here,
                "get random bytes from the system",
            )
        })?;
        // Base64 for URLs (RFC 4648, section 5), without padding.
        let mut text = TICKET_PREFIX.to_owned();
        for chunk in bytes.chunks(3) {
            let word = chunk
                .iter()
                .fold(0u32, |word, byte| word << 8 | u32::from(*byte));
            let word = word << (8 * (3 - chunk.len()));
            for place in 0..=chunk.len() {
                let index = word >> (18 - 6 * place) & 63;
                text.push(char::from(TICKET_ALPHABET[index as usize]));
            }
        }
        Ok(Self(text))
    }

    /// Returns the secret as text, for the only answer that contains it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the digest under which the ticket is stored.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        digest_of(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// Returns the digest of a secret that a client has presented. A look-up of a ticket takes a time
/// that depends on the digest. This time reveals nothing about the secret, because an attacker
/// cannot choose a digest without inverting SHA-256.
#[must_use]
pub fn digest_of(secret: &[u8]) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, secret);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// The permissions of a ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Public id of the ticket.
    pub id: String,
    /// The transfer that the ticket permits.
    pub transfer: TransferId,
    /// Direction of the data: the holder of the ticket reads from, or writes to, this endpoint.
    pub direction: Direction,
    /// Paths that the holder may read, or below which it may write.
    pub paths: Vec<ApiPath>,
    /// Owner of the written files.
    pub owner: String,
    /// The principal that requested the ticket.
    pub principal: String,
    /// The strongest treatment of existing files that a session with this ticket may request.
    pub overwrite: Overwrite,
    /// Fingerprint of the key that the holder must have.
    pub peer_key: Fingerprint,
    /// Time at which the ticket expires, in milliseconds since 1970.
    pub expires_at: i64,
    /// True if the ticket was revoked.
    pub revoked: bool,
    /// Weight and rates of the ticket's sessions at this endpoint.
    pub wish: RateWish,
}

impl Grant {
    /// Checks that the holder of `key` may use the ticket at `now`, in milliseconds since 1970.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`]; the error names the failed check.
    pub fn check(&self, key: Option<Fingerprint>, now: i64) -> Result<()> {
        let cause = if self.revoked {
            "the ticket was revoked".to_owned()
        } else if now >= self.expires_at {
            format!(
                "the ticket expired {} s ago",
                (now - self.expires_at) / 1000
            )
        } else if key.is_none() {
            "the ticket is bound to a key, but the other end of the connection presented no key"
                .to_owned()
        } else if key != Some(self.peer_key) {
            "the ticket is bound to a key that differs from the key of the other end of the \
                connection"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(refused(format!("ticket {}: {cause}", self.id)))
    }

    /// Checks that the ticket permits a session of `transfer` on `paths`. `role` is the role of
    /// this end.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`]; the error names the failed check.
    pub fn allows(&self, role: Role, transfer: &TransferId, paths: &[ApiPath]) -> Result<()> {
        let denied = |cause: String| {
            Error::new(ErrorKind::PermissionDenied, End::Network, "use the ticket")
                .cause(cause)
                .remedy(
                    "with POST /v1/tickets, get a ticket that permits the paths of the transfer",
                )
        };
        if *transfer != self.transfer {
            let own = &self.transfer;
            return Err(denied(format!(
                "the ticket was issued for transfer {own}, not for transfer {transfer}"
            )));
        }
        let fits = match role {
            Role::Source => self.direction == Direction::Read,
            Role::Sink => self.direction == Direction::Write,
        };
        if !fits {
            return Err(denied(
                "the ticket's direction (read or write) is the opposite of the direction that the \
                    session needs"
                    .to_owned(),
            ));
        }
        for path in paths {
            if !self.paths.iter().any(|allowed| reaches(allowed, path)) {
                return Err(denied(format!(
                    "the ticket does not allow the path {}",
                    path.text()
                )));
            }
        }
        Ok(())
    }
}

/// Returns true if a permission for `folder` includes `path`. Compares whole names: a permission
/// for `/data` does not include `/data2`.
#[must_use]
pub fn reaches(folder: &ApiPath, path: &ApiPath) -> bool {
    folder.root == path.root && path.path.starts_with(&folder.path)
}

fn refused(cause: String) -> Error {
    Error::new(ErrorKind::Unauthorized, End::Network, "use the ticket")
        .cause(cause)
        .remedy(
            "get another ticket with POST /v1/tickets, and submit the same request with the \
            new ticket",
        )
}

/// Returns the error for a ticket that this endpoint never issued, or has already deleted.
#[must_use]
pub fn unknown() -> Error {
    refused("this endpoint did not issue the ticket".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Grant, Secret, digest_of};
    use dray_api::api_path::ApiPath;
    use dray_api::{Direction, RateWish, shown_id, without_tickets};
    use dray_core::options::Overwrite;
    use dray_core::{ErrorKind, TransferId};
    use dray_net::Fingerprint;
    use dray_wire::message::Role;

    fn key(digit: char) -> Fingerprint {
        let text = format!("sha256:{}", digit.to_string().repeat(64));
        text.parse().expect("a fingerprint")
    }

    fn path(text: &str) -> ApiPath {
        ApiPath::parse(text).expect("a path")
    }

    fn id(text: &str) -> TransferId {
        TransferId::new(text).expect("an id")
    }

    fn grant() -> Grant {
        Grant {
            id: "t1".to_owned(),
            transfer: id("one"),
            direction: Direction::Read,
            paths: vec![path("/data/run"), path("/data/a.root")],
            owner: "alice".to_owned(),
            principal: "alice@test".to_owned(),
            overwrite: Overwrite::IfDifferent,
            peer_key: key('a'),
            expires_at: 10_000,
            revoked: false,
            wish: RateWish::default(),
        }
    }

    #[test]
    fn secrets_differ_are_long_and_never_shown() {
        let (one, two) = (
            Secret::draw().expect("drawn"),
            Secret::draw().expect("drawn"),
        );
        assert_ne!(one.expose(), two.expose());
        assert_eq!(one.expose().len(), 4 + 43);
        assert!(dray_api::is_ticket(one.expose().as_bytes()));
        assert!(!format!("{one:?}").contains(&one.expose()[4..]));
        assert_eq!(one.digest(), digest_of(one.expose().as_bytes()));
    }

    #[test]
    fn a_ticket_in_a_text_is_blanked_and_a_name_is_not() {
        let secret = Secret::draw().expect("drawn");
        let text = format!("/data/drt_run1/{0}!, {0}", secret.expose());
        assert_eq!(
            without_tickets(&text),
            "/data/drt_run1/drt_(hidden)!, drt_(hidden)"
        );
        for plain in ["", "drt_", "nothing", "/data/drt_run1 and more"] {
            assert_eq!(without_tickets(plain), plain);
        }
    }

    #[test]
    fn an_id_that_begins_as_a_ticket_does_is_an_id() {
        let secret = Secret::draw().expect("drawn");
        for id in ["drt_run1", "drt_", "run-1"] {
            assert_eq!(shown_id(id), Some(id));
        }
        let within = format!("run-{}", secret.expose());
        for none in [secret.expose(), &within, "", "a/b", "eyJhIjoxfQ!"] {
            assert_eq!(shown_id(none), None);
        }
    }

    #[test]
    fn only_the_holder_of_the_key_may_use_it_and_only_in_its_time() {
        let mut grant = grant();
        assert!(grant.check(Some(key('a')), 9_999).is_ok());
        for (key, now) in [(Some(key('b')), 0), (None, 0), (Some(key('a')), 10_000)] {
            let error = grant.check(key, now).expect_err("refused");
            assert_eq!(error.kind, ErrorKind::Unauthorized);
        }
        grant.revoked = true;
        assert!(grant.check(Some(key('a')), 0).is_err());
    }

    #[test]
    fn it_opens_its_own_transfer_direction_and_paths_alone() {
        let grant = grant();
        let ask = |role, transfer: &str, at: &str| grant.allows(role, &id(transfer), &[path(at)]);
        for good in ["/data/run", "/data/run/deep/x", "/data/a.root"] {
            assert!(ask(Role::Source, "one", good).is_ok(), "{good}");
        }
        for bad in ["/data", "/data/runs", "/other/run", "/data/a.root2"] {
            assert!(ask(Role::Source, "one", bad).is_err(), "{bad}");
        }
        assert!(ask(Role::Sink, "one", "/data/run").is_err());
        assert!(ask(Role::Source, "two", "/data/run").is_err());
    }
}
