use super::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

/// Chooses the disks and reports the success of the sync.
fn sync(
    states: &FolderStates,
    folders: &[&RelPath],
    files: &[(usize, &RelPath)],
    count: usize,
) -> Plan {
    let plan = states.plan(folders, files, count);
    for (folder, disks) in folders.iter().zip(&plan.asked) {
        for disk in disks {
            states.note_synced(*disk, folder, plan.last);
        }
    }
    for (disk, added) in &plan.added {
        for folder in added {
            states.note_synced(*disk, folder, plan.last);
        }
    }
    plan
}

#[test]
fn a_folder_is_synced_on_the_disks_of_the_files_and_later_on_the_others() {
    let states = FolderStates::default();
    let (folder, file) = (path("a/b"), path("a/b/f"));
    let plan = sync(&states, &[&folder], &[(0, &file), (2, &file)], 4);
    assert_eq!(plan.asked, [vec![0, 2]]);
    assert_eq!(plan.added, BTreeMap::new());
    // The folder is not asked for again: its name is durable on the disks above.
    let plan = sync(&states, &[], &[(0, &file), (3, &file)], 4);
    assert_eq!(plan.added, BTreeMap::from([(3, vec![folder])]));
    let plan = sync(&states, &[], &[(3, &file)], 4);
    assert_eq!(plan.added, BTreeMap::new());
}

#[test]
fn a_changed_folder_is_synced_on_its_disk() {
    let states = FolderStates::default();
    let (folder, file) = (path("a"), path("a/f"));
    states.note_changed(1, folder.clone());
    let plan = sync(&states, &[&folder], &[(0, &file)], 3);
    assert_eq!(plan.asked, [vec![0, 1]]);
    let plan = sync(&states, &[&folder], &[(0, &file)], 3);
    assert_eq!(plan.asked, [vec![0]], "the change was noted once");
}

#[test]
fn without_files_a_folder_is_synced_on_all_disks() {
    let states = FolderStates::default();
    let folder = path("a");
    assert_eq!(sync(&states, &[&folder], &[], 3).asked, [vec![0, 1, 2]]);
    states.note_changed(1, folder.clone());
    let plan = sync(&states, &[&folder], &[(0, &path("b/f"))], 3);
    assert_eq!(plan.asked, [vec![1, 0, 2]], "changed disks come first");
}

#[test]
fn a_failed_sync_is_repeated() {
    let states = FolderStates::default();
    let (folder, file) = (path("a"), path("a/f"));
    states.note_failed(2, &folder);
    let plan = sync(&states, &[], &[(2, &file)], 3);
    assert_eq!(plan.added, BTreeMap::from([(2, vec![folder.clone()])]));
    states.note_failed(2, &folder);
    let plan = sync(&states, &[&folder], &[(0, &file)], 3);
    assert_eq!(plan.asked, [vec![0, 2]]);
}

#[test]
fn a_concurrent_sync_includes_a_folder_whose_sync_has_not_ended() {
    let states = FolderStates::default();
    let (folder, file, other) = (path("a"), path("a/f"), path("a/g"));
    sync(&states, &[&folder], &[(0, &file)], 2);
    let first = states.plan(&[], &[(1, &file)], 2);
    let second = states.plan(&[], &[(1, &other)], 2);
    let added = BTreeMap::from([(1, vec![folder.clone()])]);
    assert_eq!((&first.added, &second.added), (&added, &added));
    // A change after the begin of a sync is not covered by this sync.
    states.note_changed(1, folder.clone());
    states.note_synced(1, &folder, first.last);
    let third = sync(&states, &[&folder], &[(0, &file)], 2);
    assert_eq!(third.asked, [vec![0, 1]]);
}

#[test]
fn folders_above_an_asked_folder_are_synced_on_its_disks() {
    let states = FolderStates::default();
    let (above, folder, file) = (path("a"), path("a/b"), path("a/f"));
    sync(&states, &[&above], &[(0, &file)], 2);
    let plan = sync(&states, &[&folder], &[], 2);
    assert_eq!(plan.asked, [vec![0, 1]]);
    assert_eq!(plan.added, BTreeMap::from([(1, vec![above])]));
}

#[test]
fn too_many_notes_lead_to_syncs_on_all_disks() {
    let states = FolderStates::default();
    for number in 0..=NOTES_MAX {
        states.note_changed(1, path(&format!("{number}")));
    }
    let (folder, file) = (path("a"), path("a/f"));
    let plan = sync(&states, &[&folder], &[(0, &file)], 3);
    assert_eq!(plan.asked, [vec![0, 1, 2]]);
}
