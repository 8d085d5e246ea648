//! The sessions of users who have logged in. They are in memory only, so a restart of the endpoint
//! ends all of them.
//!
//! Invariants of this module: the number of sessions is bounded, and no session outlives its
//! maximum lifetime. The table contains digests of the ids, so a copy of the memory of the table
//! does not contain a valid cookie.

use super::super::Principal;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum number of sessions. A session takes about a kilobyte. The value is estimated, not
/// measured.
pub const SESSIONS_MAX: usize = 2_000;

/// Maximum number of sessions of one user. A further login ends the oldest session of the user, so
/// a user cannot occupy the table alone.
pub const SESSIONS_PER_USER_MAX: usize = 16;

/// Digest of the id of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey([u8; 32]);

impl SessionKey {
    /// Returns the key of the session with this id, whether or not the session exists.
    #[must_use]
    pub fn of(id: &str) -> Self {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, id.as_bytes()).as_ref());
        Self(key)
    }
}

/// The reason for a use of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionUse {
    /// The user has done something since the last call. The idle time begins again.
    ByUser,
    /// The page has made the call by itself.
    ByPage,
}

/// A user who has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The principal and its rights.
    pub principal: Principal,
    /// Name of the user for people.
    pub name: String,
}

struct Session {
    user: User,
    begun: Instant,
    used: Instant,
}

/// The table of sessions.
pub(super) struct Sessions {
    table: Mutex<HashMap<SessionKey, Session>>,
    idle: Duration,
    lifetime: Duration,
}

fn ended() -> Error {
    Error::new(ErrorKind::Unauthorized, End::Here, "identify the caller")
        .cause("the session of the login has ended")
        .remedy("log in again")
}

impl Sessions {
    pub(super) fn new(idle: Duration, lifetime: Duration) -> Self {
        Self {
            table: Mutex::default(),
            idle,
            lifetime,
        }
    }

    fn live(&self, now: Instant) -> MutexGuard<'_, HashMap<SessionKey, Session>> {
        let mut table = self.table.lock_unpoisoned();
        table.retain(|_, session| {
            now.saturating_duration_since(session.used) < self.idle
                && now.saturating_duration_since(session.begun) < self.lifetime
        });
        table
    }

    /// Adds a session with the random id `id`.
    ///
    /// # Errors
    /// `Busy` if the table is full.
    pub(super) fn begin(&self, id: &str, user: User, now: Instant) -> Result<()> {
        let mut table = self.live(now);
        let own = |session: &&Session| session.user.principal.name == user.principal.name;
        if table.values().filter(own).count() >= SESSIONS_PER_USER_MAX {
            let own = |(_, session): &(&SessionKey, &Session)| own(session);
            let oldest = table.iter().filter(own).min_by_key(|(_, one)| one.begun);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                table.remove(&oldest);
            }
        }
        if table.len() >= SESSIONS_MAX {
            return Err(Error::new(ErrorKind::Busy, End::Here, "log in")
                .cause(format!(
                    "{SESSIONS_MAX} sessions of users exist, which is the limit"
                ))
                .remedy("try again later"));
        }
        let session = Session {
            user,
            begun: now,
            used: now,
        };
        table.insert(SessionKey::of(id), session);
        Ok(())
    }

    /// Returns the user of a session, and the key with which [`Sessions::is_live`] finds the
    /// session again.
    ///
    /// # Errors
    /// `Unauthorized` if the session has ended or never existed.
    pub(super) fn user(
        &self,
        id: &str,
        using: SessionUse,
        now: Instant,
    ) -> Result<(User, SessionKey)> {
        let key = SessionKey::of(id);
        let mut table = self.live(now);
        let session = table.get_mut(&key).ok_or_else(ended)?;
        if using == SessionUse::ByUser {
            session.used = now;
        }
        Ok((session.user.clone(), key))
    }

    /// Returns true if the session has not ended.
    pub(super) fn is_live(&self, key: &SessionKey, now: Instant) -> bool {
        self.live(now).contains_key(key)
    }

    /// Ends a session.
    pub(super) fn end(&self, key: &SessionKey) {
        self.table.lock_unpoisoned().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::{SESSIONS_MAX, SESSIONS_PER_USER_MAX, SessionUse, Sessions, User};
    use crate::{Principal, Rights};
    use dray_core::ErrorKind;
    use std::time::{Duration, Instant};

    const IDLE: Duration = Duration::from_secs(100);
    const LIFETIME: Duration = Duration::from_secs(250);

    fn user(name: &str) -> User {
        User {
            principal: Principal {
                name: name.to_owned(),
                owner: "alice".to_owned(),
                is_administrator: false,
                rights: Rights::Granted(dray_auth::Scopes::none()),
            },
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_session_ends_when_its_user_is_idle_and_after_its_lifetime() {
        let sessions = Sessions::new(IDLE, LIFETIME);
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        sessions.begin("one", user("u1"), begun).expect("begun");
        let (found, key) = (sessions.user("one", SessionUse::ByPage, at(60))).expect("live");
        assert_eq!(found.name, "u1");
        // The page's own call at 60 s did not count.
        assert!(sessions.is_live(&key, at(99)));
        assert!(!sessions.is_live(&key, at(100)));
        let error = (sessions.user("one", SessionUse::ByUser, at(100))).expect_err("ended");
        assert_eq!(error.kind, ErrorKind::Unauthorized);

        sessions.begin("two", user("u1"), begun).expect("begun");
        for seconds in [90, 180, 249] {
            let used = sessions.user("two", SessionUse::ByUser, at(seconds));
            assert!(used.is_ok(), "{seconds}");
        }
        let late = sessions.user("two", SessionUse::ByUser, at(250));
        assert!(late.is_err());
        assert!(sessions.user("", SessionUse::ByUser, begun).is_err());
    }

    #[test]
    fn a_logout_ends_only_one_session() {
        let sessions = Sessions::new(IDLE, LIFETIME);
        let now = Instant::now();
        for id in ["one", "two"] {
            sessions.begin(id, user("u1"), now).expect("begun");
        }
        let (_, key) = (sessions.user("one", SessionUse::ByPage, now)).expect("live");
        sessions.end(&key);
        assert!(sessions.user("one", SessionUse::ByPage, now).is_err());
        assert!(sessions.user("two", SessionUse::ByPage, now).is_ok());
    }

    #[test]
    fn the_table_is_bounded_for_each_user_and_for_all_users() {
        let sessions = Sessions::new(IDLE, LIFETIME);
        let begun = Instant::now();
        for number in 0..=SESSIONS_PER_USER_MAX {
            let now = begun + Duration::from_millis(number as u64);
            let id = format!("own{number}");
            sessions.begin(&id, user("u1"), now).expect("begun");
        }
        assert!(sessions.user("own0", SessionUse::ByPage, begun).is_err());
        assert!(sessions.user("own1", SessionUse::ByPage, begun).is_ok());
        for number in 0..SESSIONS_MAX - SESSIONS_PER_USER_MAX {
            let one = user(&format!("other{number}"));
            let id = format!("id{number}");
            sessions.begin(&id, one, begun).expect("begun");
        }
        let full = sessions.begin("late", user("late"), begun);
        assert_eq!(full.expect_err("full").kind, ErrorKind::Busy);
        let later = begun + LIFETIME;
        assert!(sessions.begin("late", user("late"), later).is_ok());
    }
}
