use super::{Commands, OsdId, Placement, Refresher, hash};
use dray_core::{End, Error, ErrorKind, Result};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

/// Hashes that a cluster of Ceph 16.2 printed for names in two namespaces (`ceph osd map`).
const RECORDED: [(&str, u32, u32); 15] = [
    ("a", 0x29ee_c818, 0x3296_2701),
    ("ab", 0x9879_ac41, 0x174e_aed7),
    ("abc", 0x251e_4793, 0x124b_5ea2),
    ("abcd", 0x5ae6_1fa5, 0x06d8_1947),
    ("abcde", 0x03a9_6866, 0xfd35_89e2),
    ("abcdefgh", 0x053f_775e, 0x932c_7ab9),
    ("abcdefghi", 0x3a7b_0a5f, 0xd7ed_e30c),
    ("abcdefghijk", 0xe52b_8e4c, 0x278d_85e0),
    ("abcdefghijkl", 0x0b1b_3ea5, 0x4cdc_6315),
    ("abcdefghijklm", 0x3122_b031, 0x34c1_bf54),
    ("run/file.0000000000000000", 0x5907_5ce8, 0x850f_0d9e),
    ("run/file.0000000000000001", 0x693a_6e5a, 0x3dee_2e6d),
    ("/d/e/f.00000000000000ff", 0xe626_af1a, 0xc459_4a38),
    ("Größe %/ü.0000000000000003", 0x871d_f119, 0xf522_d81b),
    (LONG, 0x7eac_5a9d, 0x9086_2cf9),
];
const LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.0000000000000000";

#[test]
fn names_have_the_hashes_of_the_cluster() {
    for (name, plain, in_namespace) in RECORDED {
        assert_eq!(hash::of_object("", name.as_bytes()), plain, "{name}");
        assert_eq!(
            hash::of_object("dray", name.as_bytes()),
            in_namespace,
            "{name}"
        );
    }
}

#[test]
fn hashes_have_the_groups_of_the_cluster() {
    // (hash, group of 24, group of 100), recorded too.
    for (hash, of_24, of_100) in [
        (0x29ee_c818, 0x8, 0x18),
        (0x9879_ac41, 0x1, 0x41),
        (0x251e_4793, 0x13, 0x13),
        (0x03a9_6866, 0x6, 0x26),
        (0xfd35_89e2, 0x2, 0x62),
        (0x278d_85e0, 0x0, 0x60),
        (0xf522_d81b, 0xb, 0x1b),
    ] {
        assert_eq!(hash::stable_mod(hash, 24), of_24);
        assert_eq!(hash::stable_mod(hash, 100), of_100);
    }
}

proptest! {
    #[test]
    fn a_split_moves_names_only_from_a_parent_to_its_child(hash: u32, groups in 1_u32..5000) {
        let before = hash::stable_mod(hash, groups);
        let after = hash::stable_mod(hash, groups + 1);
        prop_assert!(before < groups);
        prop_assert!(after == before || after == groups && hash::parent(after) == Some(before));
    }

    #[test]
    fn answers_of_any_text_are_errors_and_no_panics(text in ".{0,60}") {
        prop_assert!(Placement::read(text.as_bytes()).is_err());
        let mut placement = Placement::default();
        prop_assert!(placement.add_groups(text.as_bytes()).is_err() || text.trim() == "[]");
        prop_assert!(placement.add_group(text.as_bytes()).is_err());
    }
}

/// A cluster that answers commands.
struct Cluster {
    epoch: Cell<u64>,
    groups: Cell<u32>,
    /// Acting sets that differ from `[group % 3]`.
    acting: RefCell<HashMap<u32, Vec<i64>>>,
    down: RefCell<Vec<u32>>,
    is_reachable: Cell<bool>,
    asked: RefCell<Vec<String>>,
}

impl Cluster {
    fn new(groups: u32) -> Self {
        Self {
            epoch: Cell::new(1),
            groups: Cell::new(groups),
            acting: RefCell::default(),
            down: RefCell::default(),
            is_reachable: Cell::new(true),
            asked: RefCell::default(),
        }
    }

    fn acting(&self, group: u32) -> Vec<i64> {
        let moved = self.acting.borrow().get(&group).cloned();
        moved.unwrap_or_else(|| vec![i64::from(group % 3)])
    }

    fn change(&self, group: u32, acting: &[i64]) {
        self.epoch.set(self.epoch.get() + 1);
        self.acting.borrow_mut().insert(group, acting.to_vec());
    }

    fn note(&self, command: &str) -> Result<String> {
        let command: serde_json::Value = serde_json::from_str(command).expect("JSON");
        let name = command["prefix"].as_str().expect("a name").to_owned();
        self.asked.borrow_mut().push(name.clone());
        match self.is_reachable.get() {
            true => Ok(command["pgid"].as_str().unwrap_or(&name).to_owned()),
            false => Err(Error::new(ErrorKind::Busy, End::Here, "send a command")),
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.take()
    }

    fn dump(&self) -> serde_json::Value {
        let down = self.down.borrow();
        let osds =
            (0..3).map(|osd| serde_json::json!({"osd": osd, "up": u8::from(!down.contains(&osd))}));
        let pool = |number: u64, name: &str, hash: u32| {
            let groups = self.groups.get();
            serde_json::json!({
                "pool": number, "pool_name": name, "pg_num": groups, "object_hash": hash,
            })
        };
        serde_json::json!({
            "epoch": self.epoch.get(),
            "pools": [pool(7, "bulk", 2), pool(8, "old", 1)],
            "osds": osds.collect::<Vec<_>>(),
        })
    }
}

impl Commands for Cluster {
    fn monitor(&self, command: &str) -> Result<Vec<u8>> {
        let what = self.note(command)?;
        let answer = match what.as_str() {
            "osd stat" => serde_json::json!({"epoch": self.epoch.get(), "num_osds": 3}),
            "osd dump" => self.dump(),
            group => {
                let number = u32::from_str_radix(&group[2..], 16).expect("a group");
                serde_json::json!({"pgid": group, "acting": self.acting(number)})
            }
        };
        Ok(answer.to_string().into_bytes())
    }
}

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Refreshes each 100 ms for some seconds; returns the commands.
fn run(refresher: &mut Refresher, cluster: &Cluster, from: f64, seconds: f64) -> Vec<String> {
    let mut now = from;
    while now < from + seconds {
        refresher
            .refresh(at(now), cluster)
            .expect("a reachable cluster");
        now += 0.1;
    }
    cluster.asked()
}

/// Returns the primary of the object `a`, which is in group 0x18 of 32.
fn primary(refresher: &Refresher) -> Option<u32> {
    let found = refresher.placement().primary_of("bulk", "", b"a");
    found.map(|OsdId(number)| number)
}

#[test]
fn the_first_refresh_gives_all_groups() {
    let cluster = Cluster::new(32);
    let mut refresher = Refresher::new("bulk");
    assert_eq!(primary(&refresher), None);
    assert!(refresher.refresh(at(5.0), &cluster).expect("good"));
    let asked = cluster.asked();
    assert_eq!(
        (asked.first().map(String::as_str), asked.len()),
        (Some("osd dump"), 33)
    );
    assert!(refresher.placement().unknown_groups("bulk").is_empty());
    assert_eq!(
        refresher.placement().group_of("bulk", "", b"a").as_deref(),
        Some("7.18")
    );
    assert_eq!(primary(&refresher), Some(0));
    assert_eq!(refresher.placement().osds_of("bulk").len(), 3);
    // The pool `old` uses another hash. The pool `none` does not exist.
    assert_eq!(refresher.placement().primary_of("old", "", b"a"), None);
    assert_eq!(refresher.placement().primary_of("none", "", b"a"), None);
}

#[test]
fn many_groups_are_asked_for_in_parts() {
    let cluster = Cluster::new(600);
    let mut refresher = Refresher::new("bulk");
    refresher.refresh(at(0.0), &cluster).expect("good");
    assert_eq!(
        refresher.placement().unknown_groups("bulk").len(),
        600 - 256
    );
    cluster.asked();
    let asked = run(&mut refresher, &cluster, 0.1, 60.0);
    assert!(refresher.placement().unknown_groups("bulk").is_empty());
    assert_eq!(
        asked.iter().filter(|each| *each == "pg map").count(),
        600 - 256
    );
}

#[test]
fn a_changed_epoch_refreshes_the_placement_within_a_second() {
    let cluster = Cluster::new(32);
    let mut refresher = Refresher::new("bulk");
    run(&mut refresher, &cluster, 0.0, 30.0);
    let quiet = run(&mut refresher, &cluster, 30.0, 10.0);
    assert!(
        quiet.len() <= 10 && quiet.iter().all(|each| each == "osd stat"),
        "{quiet:?}"
    );
    cluster.change(0x18, &[2, 1]);
    assert_eq!(primary(&refresher), Some(0));
    run(&mut refresher, &cluster, 40.0, 1.2);
    assert_eq!(primary(&refresher), Some(2));
}

#[test]
fn an_error_refreshes_the_placement_at_most_five_times_a_second() {
    let cluster = Cluster::new(32);
    let mut refresher = Refresher::new("bulk");
    run(&mut refresher, &cluster, 0.0, 30.0);
    cluster.change(0x18, &[1]);
    refresher.doubt();
    refresher.refresh(at(30.3), &cluster).expect("good");
    assert_eq!(primary(&refresher), Some(1));
    cluster.asked();
    for step in 0..1000 {
        refresher.doubt();
        refresher
            .refresh(at(31.0 + f64::from(step) / 1000.0), &cluster)
            .expect("good");
    }
    assert!(
        cluster
            .asked()
            .iter()
            .filter(|each| *each == "osd dump")
            .count()
            <= 5
    );
}

#[test]
fn an_osd_that_is_down_serves_no_group() {
    let cluster = Cluster::new(32);
    let mut refresher = Refresher::new("bulk");
    refresher.refresh(at(0.0), &cluster).expect("good");
    cluster.down.borrow_mut().push(0);
    let dump = cluster.monitor(super::refresh::OSD_DUMP).expect("good");
    let mut placement = Placement::read(&dump).expect("an OSD map");
    // A manager reports OSD 0, which is down, until an OSD reports the group.
    let stale = br#"{"pg_stats":[{"pgid":"7.18","acting":[0],"acting_primary":0}]}"#;
    placement.add_groups(stale).expect("good");
    assert!(
        placement
            .unknown_groups("bulk")
            .contains(&"7.18".to_owned())
    );
    placement
        .add_group(br#"{"pgid":"7.18","acting":[2147483647,1]}"#)
        .expect("good");
    assert_eq!(placement.primary_of("bulk", "", b"a"), Some(OsdId(1)));
    // A group without any OSD is asked for every five seconds.
    cluster.change(0x18, &[]);
    run(&mut refresher, &cluster, 1.0, 40.0);
    let asked = run(&mut refresher, &cluster, 41.0, 20.0);
    assert!(
        asked.iter().filter(|each| *each == "osd dump").count() <= 4,
        "{asked:?}"
    );
}

#[test]
fn a_new_group_of_a_split_is_served_like_its_parent() {
    let cluster = Cluster::new(16);
    let mut refresher = Refresher::new("bulk");
    refresher.refresh(at(0.0), &cluster).expect("good");
    assert_eq!(
        refresher.placement().group_of("bulk", "", b"a").as_deref(),
        Some("7.8")
    );
    let before = primary(&refresher);
    assert_eq!(before, Some(2));
    cluster.groups.set(32);
    cluster.epoch.set(2);
    let mut split = Placement::read(&cluster.monitor(super::refresh::OSD_DUMP).expect("good"))
        .expect("an OSD map");
    split
        .add_group(br#"{"pgid":"7.8","acting":[2]}"#)
        .expect("good");
    assert_eq!(split.group_of("bulk", "", b"a").as_deref(), Some("7.18"));
    assert_eq!(split.primary_of("bulk", "", b"a"), Some(OsdId(2)));
}

#[test]
fn a_placement_survives_an_unreachable_cluster() {
    let cluster = Cluster::new(32);
    let mut refresher = Refresher::new("bulk");
    refresher.refresh(at(0.0), &cluster).expect("good");
    cluster.is_reachable.set(false);
    refresher.doubt();
    assert!(refresher.refresh(at(1.0), &cluster).is_err());
    assert_eq!(primary(&refresher), Some(0));
    assert!(
        !refresher.is_due(at(1.5)),
        "an unreachable cluster is asked once a second"
    );
    cluster.is_reachable.set(true);
    cluster.change(0x18, &[2]);
    refresher.refresh(at(2.5), &cluster).expect("good");
    assert_eq!(primary(&refresher), Some(2));
}
