//! Write jobs: leases, ends, and the rows of their versions.

use super::{actor, open, queue};
use crate::{TierVersion, TierWrite};
use dray_api::{TierVersionState as At, Timestamp, WritePlacement, WriteState};
use dray_core::ErrorKind;

fn job(id: &str, application: &str) -> TierWrite {
    TierWrite {
        id: id.to_owned(),
        tier: "burst".to_owned(),
        application: application.to_owned(),
        version: 1,
        owner: "alice".to_owned(),
        fast_path: format!("/fast/{application}/1"),
        slow_path: format!("/slow/{application}/1"),
        placement: WritePlacement::Fast,
        state: WriteState::Waiting,
        bytes: 5,
        files: None,
        period_seconds: Some(60),
        mtbf_seconds: None,
        nodes: Some(3),
        lease_seconds: 10,
        submitted_at: Timestamp::from_ms(1),
        granted_at: None,
        expires_at: Some(Timestamp::from_ms(11)),
        ended_at: None,
    }
}

fn version(job: &TierWrite) -> TierVersion {
    TierVersion {
        tier: job.tier.clone(),
        application: job.application.clone(),
        version: job.version,
        owner: job.owner.clone(),
        fast_path: job.fast_path.clone(),
        slow_path: job.slow_path.clone(),
        is_folder: true,
        bytes: 5,
        stamp: "1".to_owned(),
        state: At::Written,
        written_at: Timestamp::from_ms(2),
        demoted_at: None,
        used_at: Timestamp::from_ms(2),
        mtbf_seconds: None,
        nodes: job.nodes,
        period_seconds: job.period_seconds,
        transfer: None,
        error: None,
    }
}

#[test]
fn a_version_has_one_job_and_its_end_stores_its_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let first = job("one", "a");
    let granted = TierWrite {
        state: WriteState::Granted,
        granted_at: Some(Timestamp::from_ms(3)),
        ..first.clone()
    };
    {
        let queue = open(&state);
        let tiers = queue.tiers();
        assert_eq!(tiers.submit_write(first.clone()).expect("new"), first);
        assert_eq!(tiers.submit_write(first.clone()).expect("known"), first);
        let other = tiers.submit_write(job("one", "b")).expect_err("in use");
        assert_eq!(other.kind, ErrorKind::AlreadyExists);
        let second = tiers.submit_write(job("two", "a")).expect_err("two jobs");
        assert_eq!(second.kind, ErrorKind::AlreadyExists);
        tiers.submit_write(job("two", "b")).expect("new");
        // Only the job in the named state changes.
        let wrong = vec![(WriteState::Granted, granted.clone())];
        tiers.change_writes(wrong).expect("written");
        assert_eq!(tiers.writes("burst").expect("read")[0], first);
        let right = vec![(WriteState::Waiting, granted.clone())];
        tiers.change_writes(right).expect("written");
    }
    let queue = open(&state);
    let tiers = queue.tiers();
    assert_eq!(
        tiers.writes("burst").expect("read"),
        [granted.clone(), job("two", "b")]
    );
    assert!(tiers.write_job(&actor("bob"), "one").is_err());
    let ended = TierWrite {
        state: WriteState::Ended,
        expires_at: None,
        ended_at: Some(Timestamp::from_ms(4)),
        ..granted
    };
    let row = version(&ended);
    let changed = tiers.complete_write(ended.clone(), Some(At::Demoted), row.clone());
    assert!(changed.is_err(), "the version has no row");
    tiers
        .complete_write(ended.clone(), None, row.clone())
        .expect("ended");
    assert_eq!(tiers.versions("burst").expect("read"), vec![row.clone()]);
    let again = tiers.complete_write(ended.clone(), Some(At::Written), row);
    assert!(again.is_err(), "it has ended");
    assert_eq!(tiers.writes("burst").expect("read"), [job("two", "b")]);
    tiers.forget_writes(Timestamp::from_ms(4)).expect("written");
    assert_eq!(
        tiers.write_job(&actor("alice"), "one").expect("kept"),
        ended
    );
    tiers.forget_writes(Timestamp::from_ms(5)).expect("written");
    assert!(tiers.write_job(&actor("alice"), "one").is_err());
}

#[test]
fn an_ended_job_allows_a_new_job_of_its_version() {
    let queue = queue();
    let tiers = queue.tiers();
    let first = job("one", "a");
    tiers.submit_write(first.clone()).expect("new");
    let expired = TierWrite {
        state: WriteState::Expired,
        ended_at: Some(Timestamp::from_ms(12)),
        ..first
    };
    let expires = vec![(WriteState::Waiting, expired)];
    tiers.change_writes(expires).expect("written");
    tiers.submit_write(job("two", "a")).expect("new");
    let live = tiers.writes("burst").expect("read");
    assert_eq!(live, [job("two", "a")]);
}
