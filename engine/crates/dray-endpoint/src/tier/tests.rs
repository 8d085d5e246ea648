//! A scan finds complete versions, and the plan of a round follows the ramp.

use super::plan::{self, Moment};
use super::rows;
use super::scan::{self, Found};
use dray_api::{TierPattern, TierVersionState, Timestamp};
use dray_config::roots::Roots;
use dray_config::{Completion, Config, Template, TierPolicyName};
use dray_core::RelPath;
use dray_queue::TierVersion;
use std::collections::BTreeMap;
use std::path::Path;

fn config(place: &Path) -> Config {
    let at = place.display();
    let text = format!(
        "name = \"a.example\"\nstate = \"{at}/state\"\n\
         [[root]]\nname = \"fast\"\npath = \"{at}/fast\"\n\
         [[root]]\nname = \"slow\"\npath = \"{at}/slow\"\n\
         [[tier]]\nname = \"burst\"\nfast = [\"fast\"]\nslow = \"slow\"\ncapacity = 1000\n\
         period = 100\nwrite_max = 356\nwrite_min = 300\nread_max = 160\nread_min = 8\n\
         node_mtbf = 1000\n"
    );
    for name in ["fast", "slow"] {
        std::fs::create_dir_all(place.join(name)).expect("made");
    }
    Config::parse("test", &text).expect("good")
}

fn version(application: &str, number: u64, at_ms: i64, bytes: u64) -> TierVersion {
    TierVersion {
        tier: "burst".to_owned(),
        application: application.to_owned(),
        version: number,
        owner: "alice".to_owned(),
        fast_path: format!("/fast/{application}/{number}"),
        slow_path: format!("/slow/{application}/{number}"),
        is_folder: true,
        bytes,
        stamp: "1".to_owned(),
        state: TierVersionState::Written,
        written_at: Timestamp::from_ms(at_ms),
        demoted_at: None,
        used_at: Timestamp::from_ms(at_ms),
        mtbf_seconds: None,
        nodes: None,
        period_seconds: None,
        transfer: None,
        error: None,
    }
}

#[test]
fn a_scan_finds_versions_and_follows_no_link() {
    let place = tempfile::tempdir().expect("a folder");
    let roots = Roots::open(&config(place.path())).expect("opened");
    let fast = place.path().join("fast");
    for folder in ["a/1/sub", "a/2", "a/x", "b/1", ".dray-a/1"] {
        std::fs::create_dir_all(fast.join(folder)).expect("made");
    }
    std::fs::write(fast.join("a/1/sub/f"), b"12345").expect("written");
    std::fs::write(fast.join("a/2/DONE"), b"").expect("written");
    std::fs::write(fast.join("c"), b"a file").expect("written");
    std::os::unix::fs::symlink(place.path().join("slow"), fast.join("link")).expect("linked");
    std::os::unix::fs::symlink("../a/1", fast.join("b/7")).expect("linked");
    let root = roots.named("fast").expect("there");
    let template = Template::try_from("{application}/{version}".to_owned()).expect("good");
    let mut found = scan::find(root, &template).expect("found");
    found.sort_by_key(|one| (one.application.clone(), one.version));
    let names: Vec<(&str, u64)> = found
        .iter()
        .map(
            |Found {
                 application,
                 version,
                 ..
             }| (application.as_str(), *version),
        )
        .collect();
    assert_eq!(names, [("a", 1), ("a", 2), ("b", 1), ("b", 7)]);
    let rule = Completion::Marker("DONE".to_owned());
    let measure = |path: &str| {
        let path = RelPath::parse(path.as_bytes()).expect("good");
        scan::measure(root, &path, Some(&rule)).expect("measured")
    };
    assert_eq!(measure("b/7"), None, "a link is no version");
    assert_eq!(measure("b/9"), None);
    let first = measure("a/1").expect("there");
    assert!((first.bytes, first.is_folder) == (5, true) && !first.is_complete(&rule, 0));
    assert!(measure("a/2").expect("there").is_complete(&rule, 0));
    let quiet = Completion::Quiet(5);
    let late = i128::from(i64::MAX);
    assert!(first.is_complete(&quiet, late) && !first.is_complete(&quiet, 0));
    assert!(
        !measure("b/1").expect("there").is_complete(&quiet, late),
        "it is empty"
    );
    // A partial file of a transfer is no part of a complete version.
    std::fs::write(fast.join("a/2/.dray-part"), b"").expect("written");
    let partial = RelPath::parse(b"a/2/.dray-part").expect("good");
    if partial.name().is_some_and(|name| name.is_reserved()) {
        assert!(!measure("a/2").expect("there").is_complete(&rule, 0));
    }
    let before = measure("a/1").expect("there").stamp();
    std::fs::write(fast.join("a/1/sub/f"), b"123456").expect("written");
    assert_ne!(measure("a/1").expect("there").stamp(), before);
}

#[test]
fn the_rate_follows_the_ramp_only_while_applications_write() {
    let place = tempfile::tempdir().expect("a folder");
    let config = config(place.path());
    let device = plan::device(&config.tier[0]).expect("good");
    let moment = Moment {
        dwsf: 0.0,
        dwpp: 1_200.0,
        largest: 0.0,
        backlog: 0.0,
        moved: 0.0,
        is_writing: true,
        is_short: false,
    };
    let at = |moment: Moment| plan::plan(&config.tier[0], &device, 1_000.0, &moment);
    let start = at(moment);
    assert_eq!(start.pattern, Some(TierPattern::FromThreshold));
    assert!(start.read == 0.0 && start.start > 0.0);
    let end = at(Moment {
        dwsf: 1_200.0,
        ..moment
    });
    assert!((end.read - 160.0).abs() < 1e-6);
    let idle = at(Moment {
        is_writing: false,
        ..moment
    });
    assert!((idle.read - 160.0).abs() < 1e-6);
    let short = at(Moment {
        is_short: true,
        ..moment
    });
    assert!((short.read - 160.0).abs() < 1e-6);
    // Above the bound of 2.14 times the capacity there is no ramp.
    let over = at(Moment {
        dwpp: 2_200.0,
        ..moment
    });
    assert!(over.pattern.is_none() && (over.read - 160.0).abs() < 1e-6);
}

#[test]
fn the_policy_of_the_configuration_decides_the_rates_beside_writes() {
    let place = tempfile::tempdir().expect("a folder");
    let mut config = config(place.path());
    let device = plan::device(&config.tier[0]).expect("good");
    let mut read = |policy, is_short, backlog| {
        config.tier[0].policy = policy;
        let moment = Moment {
            dwsf: 100.0,
            dwpp: 1_200.0,
            largest: 0.0,
            backlog,
            moved: 0.0,
            is_writing: true,
            is_short,
        };
        plan::plan(&config.tier[0], &device, 1_000.0, &moment).read
    };
    assert!(read(TierPolicyName::Maxeff, false, 0.0) >= 160.0);
    assert!(
        read(TierPolicyName::Bbos, false, 100.0) <= 0.0,
        "below the threshold"
    );
    let even = read(TierPolicyName::BbosEven, false, 100.0);
    assert!(even > 0.0 && even < 160.0);
    assert!(read(TierPolicyName::BbosEven, false, 400.0) > even);
    for policy in [TierPolicyName::Maxbw, TierPolicyName::Datawarp] {
        assert!(read(policy, false, 900.0) <= 0.0);
        assert!(read(policy, true, 900.0) <= 0.0, "not beside writes");
    }
    assert!(read(TierPolicyName::Bbos, true, 0.0) >= 160.0);
}

#[test]
fn a_demotion_that_lags_gets_a_higher_rate_than_the_ramp() {
    let place = tempfile::tempdir().expect("a folder");
    let config = config(place.path());
    let device = plan::device(&config.tier[0]).expect("good");
    let read = |backlog, moved| {
        let moment = Moment {
            dwsf: 500.0,
            dwpp: 1_600.0,
            largest: 80.0,
            backlog,
            moved,
            is_writing: true,
            is_short: false,
        };
        plan::plan(&config.tier[0], &device, 1_000.0, &moment)
    };
    let ramp = read(0.0, 0.0);
    let late = read(400.0, 0.0);
    assert!(late.read > ramp.read, "{late:?} {ramp:?}");
    assert!(late.write < ramp.write, "{late:?} {ramp:?}");
    assert!(read(400.0, 60.0).read < late.read);
    assert!((read(900.0, 0.0).read - 160.0).abs() < 1e-6);
}

#[test]
fn the_catalog_gives_the_expected_bytes_and_the_mtbf() {
    let place = tempfile::tempdir().expect("a folder");
    let config = config(place.path());
    let tier = &config.tier[0];
    // Periods have 100 seconds. The version of the present period counts as written so far.
    let mut rows = vec![
        version("a", 3, 250_000, 30),
        version("a", 2, 150_000, 30),
        version("a", 1, 50_000, 30),
    ];
    let now = Timestamp::from_ms(260_000);
    let mut estimator = plan::estimator(tier, &rows, now);
    assert!((estimator.dwsf() - 30.0).abs() < 1e-9);
    assert!((estimator.dwpp() - 30.0).abs() < 1e-9);
    rows[0].period_seconds = Some(10);
    plan::declare(&mut estimator, tier, &rows);
    assert!((estimator.dwpp() - 300.0).abs() < 1e-9);
    rows[0].nodes = Some(10);
    let mtbf = plan::mtbf_of(tier, &rows, &BTreeMap::new(), now);
    assert!((mtbf["a"] - 100.0).abs() < 1e-9);
    rows[0].mtbf_seconds = Some(7);
    let mtbf = plan::mtbf_of(tier, &rows, &BTreeMap::new(), now);
    assert!((mtbf["a"] - 7.0).abs() < 1e-9);
}

#[test]
fn a_pin_holds_its_copy_the_folders_above_and_the_entries_below() {
    let until = Timestamp::from_ms(5);
    let pins = BTreeMap::from([("/fast/a/1".to_owned(), until)]);
    for path in ["/fast/a/1", "/fast/a", "/fast/a/1/sub"] {
        assert_eq!(rows::pin(&pins, path), Some(until), "{path}");
    }
    for path in ["/fast/a/11", "/fast/a/2", "/fast/b"] {
        assert_eq!(rows::pin(&pins, path), None, "{path}");
    }
}
