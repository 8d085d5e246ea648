//! Tests of the table of folders and of the list of unclosed files.

use super::{
    DEPTH_MAX, FILES_MAX, FOLDERS_MAX, FileStage, FolderRow, Folders, PATH_BYTES_MAX, Unclosed,
};
use dray_core::RelPath;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

#[test]
fn a_folder_counts_everything_below_it() {
    let mut folders = Folders::default();
    let root = FolderRow::default();
    let a = folders.enter(root, &path("a"));
    let b = folders.enter(a, &path("a/b"));
    let c = folders.enter(root, &path("c"));
    for (row, size) in [(root, 1), (a, 10), (b, 100), (b, 200), (c, 1000)] {
        folders.announced(row, size);
    }
    folders.done(a, 10);
    folders.failed(b, 200);
    let open = (
        7,
        b,
        Unclosed {
            path: &path("a/b/x"),
            size: 100,
            bytes_durable: 40,
            stage: FileStage::Moving,
        },
    );
    let found = folders.under_way([open].into_iter()).folders;
    let paths: Vec<_> = found.iter().map(|folder| folder.path.to_string()).collect();
    assert_eq!(paths, [".", "a", "a/b", "c"]);
    let counts = |at: usize| found[at].counts;
    assert_eq!((counts(0).files, counts(0).bytes), (5, 1311));
    assert_eq!((counts(1).files, counts(1).bytes), (3, 310));
    assert_eq!((counts(1).files_done, counts(1).bytes_done), (1, 50));
    assert_eq!((counts(1).failed, counts(1).bytes_failed), (1, 200));
    assert_eq!((counts(2).files_done, counts(2).bytes_done), (0, 40));
    assert_eq!((counts(3).files, counts(3).failed), (1, 0));
    assert_eq!(counts(0).bytes_done, 50);
}

#[test]
fn the_table_of_folders_is_bounded_and_loses_no_file() {
    let mut folders = Folders::default();
    let root = FolderRow::default();
    for number in 0..3 * FOLDERS_MAX {
        let row = folders.enter(root, &path(&format!("f{number}")));
        folders.announced(row, 2);
    }
    let found = folders.under_way(std::iter::empty()).folders;
    assert_eq!(found.len(), FOLDERS_MAX);
    let all = found[0].counts;
    assert_eq!(all.files, 3 * FOLDERS_MAX as u64);
    assert_eq!(all.bytes, 6 * FOLDERS_MAX as u64);
    let without_row = 3 * FOLDERS_MAX - (FOLDERS_MAX - 1);
    assert_eq!(all.folders_without_row, without_row as u64);
}

#[test]
fn long_names_and_deep_folders_share_the_row_of_a_parent() {
    let mut folders = Folders::default();
    let long = "n".repeat(250);
    for number in 0..FOLDERS_MAX {
        folders.enter(FolderRow::default(), &path(&format!("{long}{number}")));
    }
    assert!(folders.path_bytes <= PATH_BYTES_MAX);
    assert!(folders.rows.len() > PATH_BYTES_MAX / 300);

    let mut folders = Folders::default();
    let (mut row, mut deep) = (FolderRow::default(), String::new());
    for _ in 0..10 * DEPTH_MAX {
        deep.push_str(if deep.is_empty() { "d" } else { "/d" });
        row = folders.enter(row, &path(&deep));
    }
    folders.announced(row, 5);
    let found = folders.under_way(std::iter::empty()).folders;
    assert_eq!(found.len(), 1 + DEPTH_MAX as usize);
    let last = found.last().expect("a folder").counts;
    assert_eq!((last.files, last.bytes), (1, 5));
    assert_eq!(last.folders_without_row, u64::from(9 * DEPTH_MAX));
}

#[test]
fn files_that_have_begun_come_first_and_the_rest_is_counted() {
    let folders = Folders::default();
    let names: Vec<_> = (0..300).map(|at| path(&format!("{at}"))).collect();
    let files = names.iter().enumerate().rev().map(|(at, path)| {
        let stage = match at {
            150 => FileStage::Publishing,
            200.. => FileStage::Moving,
            _ => FileStage::Waiting,
        };
        let file = Unclosed {
            path,
            size: 1,
            bytes_durable: 0,
            stage,
        };
        (at as u64, FolderRow::default(), file)
    });
    let found = folders.under_way(files);
    assert_eq!((found.files.len(), found.files_more), (FILES_MAX, 200));
    let shown = |at: usize| found.files[at].path.to_string();
    assert_eq!(
        (shown(0), shown(1), shown(2)),
        ("150".into(), "200".into(), "201".into())
    );
}
