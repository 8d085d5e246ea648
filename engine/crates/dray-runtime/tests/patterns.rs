//! The patterns of all sessions of a process share a limit. This is a separate test program,
//! because the patterns of other tests would count towards the limit.

use dray_core::{ErrorKind, Status};
use dray_runtime::select::{Filter, bound_memory};
use dray_wire::message::Selection;

#[test]
fn compiled_patterns_have_one_bound_in_total() {
    let large = Selection {
        include: vec!["*a".repeat(2000); 2],
        ..Selection::default()
    };
    let plain = Selection {
        include: vec!["*.root".into()],
        ..Selection::default()
    };
    // The limit is enough for three selections of 8 KB.
    bound_memory(24 << 20);
    let mut taken: Vec<_> = (0..3).filter_map(|_| Filter::new(&large).ok()).collect();
    assert_eq!(taken.len(), 3);
    let error = Filter::new(&large).expect_err("no room");
    assert_eq!(
        (error.kind, error.status),
        (ErrorKind::Busy, Status::Temporary)
    );
    assert!(
        Filter::new(&plain).is_ok(),
        "what costs nothing needs no room"
    );
    taken.pop();
    assert!(
        Filter::new(&large).is_ok(),
        "what was given back is there again"
    );
    // A single request within its own limit is always accepted.
    taken.clear();
    bound_memory(0);
    assert!(Filter::new(&large).is_ok());
}
