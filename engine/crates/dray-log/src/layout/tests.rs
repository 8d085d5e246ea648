use super::{
    covers, fnv, is_of_part, is_on_disks, is_partial_name, lease_name, lease_of_log,
    log_folder_name, log_name, log_of, on_disks, part_number, part_of_log, partial_name,
    partial_name_at_turn, partial_name_of_log, request_mark,
};
use dray_core::{Name, RelPath, TransferId};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a good path")
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a good name")
}

#[test]
fn hash_is_fnv_1a() {
    // Test vectors published by the authors of the hash function.
    assert_eq!(fnv(super::FNV_BASIS, b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(fnv(super::FNV_BASIS, b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(fnv(super::FNV_BASIS, b"foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn names_never_change() {
    let id = |text: &str| TransferId::new(text).expect("an id");
    let log_name = |claims: &[RelPath]| log_name(claims, &id("run-1"));
    let lease_name = |claims: &[RelPath]| lease_name(claims, &id("run-1"));
    let none = log_name(&[]).expect("a name");
    assert_eq!(none, name("28c62ca582b0a0bb.log"));
    let another = super::log_name(&[], &id("run-2")).expect("a name");
    assert_ne!(none, another, "another transfer has another log");
    let one = [path("run1")];
    let two = [path("run2"), path("run1"), path("run1")];
    assert_eq!(
        log_name(&two).expect("a name"),
        log_name(&[path("run1"), path("run2")]).expect("a name")
    );
    assert_ne!(log_name(&one).expect("a name"), none);
    assert_eq!(
        lease_of_log(&log_name(&one).expect("a name")),
        Some(lease_name(&one).expect("a name"))
    );
    for other in ["0.log", "cbf29ce48422232X.log", "cbf29ce484222325.lease"] {
        assert_eq!(lease_of_log(&name(other)), None, "{other}");
    }
    assert_eq!(
        partial_name(&name("foobar")).expect("a name"),
        name(".dray-85944171f73967e8.part")
    );
    assert!(log_folder_name().expect("a name").is_reserved());
}

#[test]
fn partial_files_on_disks_have_names_of_their_own() {
    let plain = partial_name(&name("foobar")).expect("a name");
    let disks = on_disks(&plain).expect("a name");
    assert_eq!(disks, name(".dray-85944171f73967e8.disks.part"));
    assert!(is_partial_name(&plain) && !is_on_disks(&plain));
    assert!(is_partial_name(&disks) && is_on_disks(&disks));
    for other in [".dray-85944171f73967e.disks.part", "a", "a.disks.part"] {
        assert!(!is_partial_name(&name(other)), "{other}");
    }
    on_disks(&disks).expect_err("the name has the form already");
}

#[test]
fn files_of_the_log_folder_map_to_their_log() {
    let log = name("cbf29ce484222325.log");
    for own in [
        "cbf29ce484222325.lease",
        "cbf29ce484222325.log.next",
        "cbf29ce484222325.0000002a.objects",
        "cbf29ce484222325.0000002a.objects.next",
    ] {
        assert_eq!(log_of(&name(own)), Some(log.clone()), "{own}");
    }
    assert_eq!(log_of(&log), Some(log.clone()));
    let part = part_of_log(&log, 42).expect("a name");
    assert_eq!(part, name("cbf29ce484222325.0000002a.objects"));
    assert_eq!(part_number(&log, &part), Some(42));
    assert!(is_of_part(&log, &part) && !is_of_part(&log, &log));
    assert!(is_of_part(
        &log,
        &name("cbf29ce484222325.0000002a.objects.next")
    ));
    assert_eq!(part_number(&name("dbf29ce484222325.log"), &part), None);
    for other in ["+000002a", "0000002A", "2a"] {
        let other = name(&format!("cbf29ce484222325.{other}.objects"));
        assert_eq!(part_number(&log, &other), None, "{other:?}");
        assert_eq!(log_of(&other), None, "{other:?}");
    }
    for other in ["cbf29ce484222325", "cbf29ce48422232.log", "a.log", ".log"] {
        assert_eq!(log_of(&name(other)), None, "{other}");
    }
    assert!(is_partial_name(&partial_name(&name("a")).expect("a name")));
    for other in [
        ".dray-log",
        ".dray-.part",
        ".dray-85944171f73967e8",
        "a.part",
    ] {
        assert!(!is_partial_name(&name(other)), "{other}");
    }
}

#[test]
fn partial_names_are_reserved_and_short() {
    let longest = name(&"x".repeat(255));
    let partial = partial_name(&longest).expect("a name");
    assert!(partial.is_reserved() && partial.as_bytes().len() < 32);
    assert_ne!(
        partial_name_at_turn(&longest, 1).expect("a name"),
        partial_name_at_turn(&longest, 2).expect("a name")
    );
    assert!(partial_name(&partial).is_err());
}

#[test]
fn partial_names_of_a_log_differ_between_logs() {
    let (one, other) = (name("1.log"), name("2.log"));
    let of = |turn, log| partial_name_of_log(&name("a"), turn, log).expect("a name");
    assert!(is_partial_name(&of(0, &one)));
    assert_ne!(of(0, &one), of(0, &other));
    assert_ne!(of(0, &one), of(1, &one));
    assert!(partial_name_of_log(&name(".dray-x"), 0, &one).is_err());
}

#[test]
fn request_mark_depends_on_names_and_patterns() {
    let words = |text: &str| vec![text.to_owned()];
    let (run, other) = ([path("run")], [path("other")]);
    assert_eq!(
        request_mark(&[], &words("a*"), &[]),
        0,
        "names are not known"
    );
    let plain = request_mark(&run, &[], &[]);
    assert_ne!(plain, 0);
    assert_eq!(plain, request_mark(&run, &[], &[]));
    let marks = [
        request_mark(&other, &[], &[]),
        request_mark(&run, &words("a*"), &[]),
        request_mark(&run, &words("b*"), &[]),
        request_mark(&run, &[], &words("a*")),
    ];
    for (at, mark) in marks.iter().enumerate() {
        assert_ne!(*mark, plain);
        assert!(!marks[..at].contains(mark));
    }
}

#[test]
fn claims_cover_whole_names_only() {
    let claims = [path("run1"), path("other/deep")];
    for (covered, text) in [
        (true, "run1"),
        (true, "run1/a"),
        (false, "run10"),
        (false, "other"),
        (true, "other/deep/x/y"),
    ] {
        assert_eq!(covers(&claims, &path(text)), covered, "{text}");
    }
    assert!(covers(&[], &path("anything")));
}
