use super::super::{Future, now};
use super::{Fetch, Keyring, Pace, Source};
use dray_auth::jwk::KeySet;
use dray_auth::mint::{Grant, SigningKey};
use dray_auth::{Issuer, Issuers};
use dray_core::{End, Error, ErrorKind, Result, Status};
use ring::rand::SystemRandom;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const URL: &str = "https://issuer.example/";
const OTHER: &str = "https://other.example/";

/// An interval that no test lasts long enough to reach.
const NEVER: Duration = Duration::from_secs(3_600);

const PACE: Pace = Pace {
    fetch: Duration::from_secs(10),
    asked: NEVER,
    failed: NEVER,
};

/// A fake issuer that counts the requests for its keys.
struct Asked {
    keys: Mutex<Option<String>>,
    slow: Duration,
    /// Age in seconds that the keys have when they arrive.
    age: AtomicU64,
    count: AtomicU32,
}

impl Asked {
    fn new(key: Option<&SigningKey>, slow: Duration) -> Arc<Self> {
        Arc::new(Self {
            keys: Mutex::new(key.map(SigningKey::public_jwks)),
            slow,
            age: AtomicU64::new(0),
            count: AtomicU32::new(0),
        })
    }

    fn publish(&self, key: Option<&SigningKey>) {
        *self.keys.lock().expect("held by nobody who died") = key.map(SigningKey::public_jwks);
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }
}

struct Way(Arc<Asked>);

impl Fetch for Way {
    fn fetch(&self, now: u64) -> Future<'_, Result<KeySet>> {
        Box::pin(async move {
            self.0.count.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.0.slow).await;
            let keys = self.0.keys.lock().expect("held by nobody who died").clone();
            let keys = keys.ok_or_else(|| {
                Error::new(ErrorKind::Unreachable, End::Network, "ask").cause("it is away")
            })?;
            KeySet::parse(keys.as_bytes(), now - self.0.age.load(Ordering::Relaxed))
        })
    }
}

fn key() -> SigningKey {
    SigningKey::generate(&SystemRandom::new()).expect("a key").0
}

fn token(key: &SigningKey, issuer: &str) -> String {
    let grant = Grant {
        issuer: issuer.to_owned(),
        subject: "alice".to_owned(),
        audiences: vec!["https://here".to_owned()],
        scope: "storage.read:/".to_owned(),
        groups: Vec::new(),
        issued_at: now(),
        expires: now() + 600,
        id: "1".to_owned(),
    };
    key.mint(&grant, &SystemRandom::new()).expect("a token")
}

fn keyring(asked: &[(&str, &Arc<Asked>)], pace: Pace) -> Keyring {
    let issuers = asked.iter().map(|(url, _)| Issuer {
        url: (*url).to_owned(),
        audiences: vec!["https://here".to_owned()],
        base: "/".to_owned(),
        wlcg: true,
    });
    let sources = asked.iter().map(|(url, asked)| Source {
        issuer: (*url).to_owned(),
        keys: Box::new(Way(Arc::clone(asked))),
        cache_seconds: 1_000,
        stale_seconds: 500,
        pace,
    });
    Keyring::new(Issuers::new(issuers).expect("good ones"), sources)
}

fn run<T>(work: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(work)
}

const SLOW: Duration = Duration::from_millis(300);

#[test]
fn all_who_need_the_keys_wait_for_the_one_who_asks() {
    let (key, other) = (key(), key());
    let first = Asked::new(Some(&key), SLOW);
    let second = Asked::new(Some(&other), SLOW);
    run(async {
        let keyring = keyring(&[(URL, &first), (OTHER, &second)], PACE);
        let mut waiting = Vec::new();
        for number in 0..20 {
            let (keyring, token) = (
                keyring.clone(),
                match number % 2 {
                    0 => token(&key, URL),
                    _ => token(&other, OTHER),
                },
            );
            waiting.push(tokio::spawn(async move { keyring.verify(&token).await }));
        }
        for verified in waiting {
            let verified = verified.await.expect("it does not panic");
            assert_eq!(verified.expect("a good token").subject, "alice");
        }
    });
    assert_eq!((first.count(), second.count()), (1, 1));
}

#[test]
fn a_caller_that_gives_up_does_not_cancel_the_key_request() {
    let key = key();
    let asked = Asked::new(Some(&key), SLOW);
    run(async {
        let keyring = keyring(&[(URL, &asked)], PACE);
        let token = token(&key, URL);
        let gone = tokio::time::timeout(SLOW / 4, keyring.verify(&token)).await;
        assert!(gone.is_err(), "the issuer is not slow");
        assert!(keyring.verify(&token).await.is_ok());
    });
    assert_eq!(asked.count(), 1);
}

#[test]
fn a_token_of_a_known_key_is_judged_while_another_one_waits() {
    let key = key();
    let asked = Asked::new(Some(&key), SLOW);
    let pace = Pace {
        asked: Duration::ZERO,
        ..PACE
    };
    run(async {
        let keyring = keyring(&[(URL, &asked)], pace);
        let good = token(&key, URL);
        assert!(keyring.verify(&good).await.is_ok());
        let strange = token(&self::key(), URL);
        let waits = tokio::spawn({
            let keyring = keyring.clone();
            async move { keyring.verify(&strange).await }
        });
        while asked.count() < 2 {
            tokio::task::yield_now().await;
        }
        let started = Instant::now();
        assert!(keyring.verify(&good).await.is_ok());
        assert!(started.elapsed() < SLOW / 2, "{:?}", started.elapsed());
        let refused = waits.await.expect("no panic").expect_err("a stranger");
        assert_eq!(refused.kind, ErrorKind::Unauthorized);
        assert!(refused.cause.contains("has no key"), "{refused}");
    });
}

#[test]
fn an_issuer_is_not_asked_more_often_because_of_unknown_keys() {
    let key = key();
    let asked = Asked::new(Some(&key), Duration::ZERO);
    run(async {
        let keyring = keyring(&[(URL, &asked)], PACE);
        assert!(keyring.verify(&token(&key, URL)).await.is_ok());
        for _ in 0..50 {
            let refused = keyring.verify(&token(&self::key(), URL)).await;
            let refused = refused.expect_err("a stranger");
            assert_eq!(refused.kind, ErrorKind::Unauthorized);
        }
    });
    assert_eq!(asked.count(), 1);
}

#[test]
fn a_new_key_is_asked_for_once_that_may_be() {
    let (old, new) = (key(), key());
    let asked = Asked::new(Some(&old), Duration::ZERO);
    let pace = Pace {
        asked: Duration::from_millis(200),
        ..PACE
    };
    run(async {
        let keyring = keyring(&[(URL, &asked)], pace);
        assert!(keyring.verify(&token(&old, URL)).await.is_ok());
        asked.publish(Some(&new));
        assert!(keyring.verify(&token(&new, URL)).await.is_err());
        tokio::time::sleep(pace.asked).await;
        assert!(keyring.verify(&token(&new, URL)).await.is_ok());
        assert!(keyring.verify(&token(&old, URL)).await.is_err());
    });
    assert_eq!(asked.count(), 2);
}

#[test]
fn keys_that_grow_old_are_replaced_while_nobody_waits() {
    let key = key();
    let asked = Asked::new(Some(&key), SLOW);
    asked.age.store(800, Ordering::Relaxed);
    let pace = Pace {
        asked: Duration::ZERO,
        ..PACE
    };
    run(async {
        let keyring = keyring(&[(URL, &asked)], pace);
        let good = token(&key, URL);
        assert!(keyring.verify(&good).await.is_ok());
        asked.age.store(0, Ordering::Relaxed);
        let started = Instant::now();
        assert!(keyring.verify(&good).await.is_ok());
        assert!(started.elapsed() < SLOW / 2, "{:?}", started.elapsed());
        while asked.count() < 2 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(2 * SLOW).await;
        assert!(keyring.verify(&good).await.is_ok());
    });
    assert_eq!(asked.count(), 2, "new keys are asked for again");
}

#[test]
fn old_keys_count_while_the_issuer_is_away_and_not_for_ever() {
    let key = key();
    let asked = Asked::new(Some(&key), Duration::ZERO);
    asked.age.store(1_200, Ordering::Relaxed);
    let pace = Pace {
        asked: Duration::ZERO,
        ..PACE
    };
    run(async {
        let keyring = self::keyring(&[(URL, &asked)], pace);
        let good = token(&key, URL);
        assert!(keyring.verify(&good).await.is_ok());
        // The cached keys are too old to be used without a new request, so the issuer's new keys
        // decide.
        let new = self::key();
        asked.publish(Some(&new));
        asked.age.store(0, Ordering::Relaxed);
        assert!(keyring.verify(&good).await.is_err());
        assert_eq!(asked.count(), 2);
    });

    let away = Asked::new(Some(&key), SLOW);
    away.age.store(1_200, Ordering::Relaxed);
    run(async {
        let keyring = self::keyring(&[(URL, &away)], pace);
        let good = token(&key, URL);
        assert!(keyring.verify(&good).await.is_ok());
        away.publish(None);
        assert!(keyring.verify(&good).await.is_ok());
        let started = Instant::now();
        for _ in 0..20 {
            assert!(keyring.verify(&good).await.is_ok());
        }
        // The first call found the issuer unreachable. The other calls do not send another request.
        assert!(started.elapsed() < SLOW, "{:?}", started.elapsed());
        assert_eq!(away.count(), 2);
    });

    let dead = Asked::new(Some(&key), Duration::ZERO);
    dead.age.store(1_500, Ordering::Relaxed);
    run(async {
        let keyring = self::keyring(&[(URL, &dead)], pace);
        let refused = keyring.verify(&token(&key, URL)).await;
        let refused = refused.expect_err("keys that are too old");
        assert_eq!(refused.kind, ErrorKind::Unreachable);
        assert!(refused.cause.contains("too old"), "{refused}");
    });
}

#[test]
fn without_keys_nobody_is_called_a_liar_and_a_try_has_an_end() {
    let asked = Asked::new(None, Duration::ZERO);
    let hanging = Asked::new(None, NEVER);
    let pace = Pace {
        fetch: SLOW,
        ..PACE
    };
    run(async {
        let keyring = keyring(&[(URL, &asked), (OTHER, &hanging)], pace);
        for url in [URL, OTHER] {
            for _ in 0..3 {
                let refused = keyring.verify(&token(&key(), url)).await;
                let refused = refused.expect_err("nobody can say");
                assert_eq!(refused.kind, ErrorKind::Unreachable);
                assert_eq!(refused.status, Status::Temporary);
                assert!(refused.to_string().contains("try again later"), "{refused}");
            }
        }
    });
    assert_eq!((asked.count(), hanging.count()), (1, 1));
}
