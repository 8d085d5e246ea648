use super::{Holder, Holding, Release, Space, demotion_ends};
use crate::rng::Rng;
use crate::tiers::placement::{Claim, admit};

fn holding(bytes: u64, holder: Holder, release: Release) -> Holding {
    Holding {
        bytes,
        holder,
        release,
    }
}

fn space(capacity: u64, holdings: &[(u64, Holder, Release)]) -> Space {
    let holdings = holdings
        .iter()
        .map(|(bytes, holder, release)| holding(*bytes, *holder, *release));
    Space {
        capacity,
        holdings: holdings.collect(),
    }
}

/// Returns the number of admitted claims on a tier with one device.
fn admitted(tier: &Space, sizes: &[u64]) -> usize {
    let claims: Vec<Claim> = (sizes.iter())
        .map(|bytes| Claim {
            device: 0,
            bytes: *bytes,
        })
        .collect();
    let found = admit(tier.free(), &claims, &[u64::MAX]).admitted;
    found.into_iter().filter(|is_admitted| *is_admitted).count()
}

#[test]
fn a_claim_waits_until_demotions_and_pins_end() {
    let tier = space(
        100,
        &[
            (30, Holder::NotDemoted, Release::At(20.0)),
            (40, Holder::Pinned, Release::At(50.0)),
            (10, Holder::Cache, Release::Now),
            (10, Holder::Incomplete, Release::Unknown),
        ],
    );
    assert_eq!(admitted(&tier, &[10]), 1);
    assert_eq!(admitted(&tier, &[11]), 0);
    assert_eq!(tier.missing(30), 20);
    assert_eq!(tier.fits_at(0, 10, 5.0), Some(5.0));
    assert_eq!(tier.fits_at(0, 20, 5.0), Some(5.0), "a cache is deleted");
    assert_eq!(tier.fits_at(0, 21, 5.0), Some(20.0));
    assert_eq!(tier.fits_at(20, 21, 5.0), Some(20.0));
    assert_eq!(tier.fits_at(40, 21, 5.0), Some(50.0));
    assert_eq!(
        tier.fits_at(0, 91, 5.0),
        None,
        "an incomplete version is in the way"
    );
    let text = tier.shortage_text(20, 30);
    for part in [
        "30 bytes",
        "10 of 100",
        "20 bytes of older",
        "40 pinned",
        "30 not yet demoted",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("caches"), "{text}");
}

#[test]
fn a_claim_that_can_never_fit_is_refused_with_numbers() {
    let tier = space(
        100,
        &[
            (30, Holder::Failed, Release::Never),
            (20, Holder::Pinned, Release::At(1_000.0)),
            (40, Holder::NotDemoted, Release::At(10.0)),
        ],
    );
    assert!(tier.check(50, 500.0).is_ok());
    assert!(tier.check(70, 1_000.0).is_ok());
    let error = tier.check(51, 500.0).expect_err("pinned").to_string();
    for part in [
        "51 bytes",
        "the 50 bytes",
        "30 kept because of an error",
        "20 pinned",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = tier.check(101, 1e9).expect_err("too large").to_string();
    assert_eq!(
        error,
        "101 bytes exceed the capacity of 100 bytes of the tier"
    );
}

#[test]
fn demotions_run_one_after_the_other() {
    assert_eq!(demotion_ends(10.0, 5.0, &[10, 20]), [12.0, 16.0]);
    assert_eq!(demotion_ends(0.0, 0.0, &[1]), [f64::INFINITY]);
}

/// Simulates a tier with random claims. Admitted claims become data, and data is freed at random.
#[test]
fn no_claim_exceeds_the_capacity_or_overtakes_an_older_one() {
    for seed in 0..200 {
        let mut draw = Rng::new(seed);
        let capacity = 1_000;
        let mut held: Vec<Holding> = Vec::new();
        let mut waiting: Vec<(u64, u64)> = Vec::new();
        let (mut next, mut last_admitted) = (0_u64, None);
        for step in 0..400_u64 {
            let tier = Space {
                capacity,
                holdings: held.clone(),
            };
            if draw.below(3) > 0 {
                let bytes = draw.below(500) + 1;
                if tier.check(bytes, f64::INFINITY).is_ok() {
                    waiting.push((next, bytes));
                    next += 1;
                }
            }
            let sizes: Vec<u64> = waiting.iter().map(|(_, bytes)| *bytes).collect();
            let count = admitted(&tier, &sizes);
            for (claim, bytes) in waiting.drain(..count) {
                assert!(
                    last_admitted < Some(claim),
                    "seed {seed}: an older claim waits"
                );
                last_admitted = Some(claim);
                held.push(holding(bytes, Holder::Admitted, Release::Unknown));
            }
            let used: u64 = held.iter().map(|one| one.bytes).sum();
            assert!(used <= capacity, "seed {seed}, step {step}: {used} bytes");
            // The oldest claim is admitted as soon as the bytes that it misses are free.
            if let Some((_, oldest)) = waiting.first() {
                let tier = Space {
                    capacity,
                    holdings: held.clone(),
                };
                let missing = tier.missing(*oldest);
                assert!(missing > 0, "seed {seed}: a claim that fits waits");
                let mut freed = 0;
                held.retain(|one| {
                    let frees = freed < missing && draw.below(2) == 0;
                    freed += if frees { one.bytes } else { 0 };
                    !frees
                });
                let tier = Space {
                    capacity,
                    holdings: held.clone(),
                };
                assert_eq!(
                    freed >= missing,
                    admitted(&tier, &[*oldest]) == 1,
                    "seed {seed}"
                );
            }
        }
        assert!(last_admitted.is_some());
    }
}

#[test]
fn the_estimate_is_the_time_at_which_the_claim_fits() {
    for seed in 0..200 {
        let mut draw = Rng::new(seed);
        let holdings: Vec<Holding> = (0..draw.below(8))
            .map(|_| {
                holding(
                    draw.below(200),
                    Holder::NotDemoted,
                    Release::At(draw.below(100) as f64),
                )
            })
            .collect();
        let tier = Space {
            capacity: 1_000,
            holdings,
        };
        let bytes = draw.below(1_000) + 1;
        let at = tier.fits_at(0, bytes, 0.0).expect("all of it is freed");
        let after = |time: f64| Space {
            capacity: 1_000,
            holdings: (tier.holdings.iter().copied())
                .filter(|one| matches!(one.release, Release::At(end) if end > time))
                .collect(),
        };
        if at > 0.0 {
            assert_eq!(admitted(&after(at - 0.5), &[bytes]), 0, "seed {seed}");
        }
        assert!(
            tier.free() >= bytes || admitted(&after(at), &[bytes]) == 1,
            "seed {seed}"
        );
    }
}
