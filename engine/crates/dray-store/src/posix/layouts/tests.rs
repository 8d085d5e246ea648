use crate::posix::{PosixOptions, PosixStore};
use crate::store::Store;
use crate::targets::TargetMap;
use crate::types::{ListOptions, PartialRequest};
use dray_core::{End, EntryKind, Extent, Layout, Name, RelPath, TargetId};
use rustix::fs::XattrFlags;
use std::collections::BTreeMap;
use std::path::Path;

/// Attribute that takes the place of `lustre.lov`, which only Lustre has.
const ATTRIBUTE: &str = "user.lov";

const MIB: u64 = 1 << 20;

/// `lov_user_md_v1` with its objects (lustre_user.h): magic, pattern, identity, stripe size, stripe
/// count, generation; then 24 bytes for each object, of which the last four are the OST's index.
fn v1(stripe_bytes: u32, osts: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0x0BD1_0BD0_u32.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend([0; 16]);
    out.extend(stripe_bytes.to_le_bytes());
    out.extend((osts.len() as u16).to_le_bytes());
    out.extend([0; 2]);
    for index in osts {
        out.extend([0; 20]);
        out.extend(index.to_le_bytes());
    }
    out
}

/// `lov_comp_md_v1` with a component of 1 MiB on one OST and a component that was not written.
fn progressive(ost: u32) -> Vec<u8> {
    let blobs = [v1(1 << 20, &[ost]), v1(1 << 20, &[])];
    let mut out = Vec::new();
    let size = 32 + 2 * 48 + blobs[0].len() + blobs[1].len();
    out.extend(0x0BD6_0BD0_u32.to_le_bytes());
    out.extend((size as u32).to_le_bytes());
    out.extend([0; 6]);
    out.extend(2_u16.to_le_bytes());
    out.extend([0; 16]);
    let first_at = 32 + 2 * 48;
    for (flags, start, end, at, bytes) in [
        (0x10_u32, 0, MIB, first_at, blobs[0].len()),
        (0, MIB, u64::MAX, first_at + blobs[0].len(), blobs[1].len()),
    ] {
        out.extend(1_u32.to_le_bytes());
        out.extend(flags.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend(end.to_le_bytes());
        out.extend((at as u32).to_le_bytes());
        out.extend((bytes as u32).to_le_bytes());
        out.extend([0; 16]);
    }
    out.extend(blobs.concat());
    out
}

fn set(path: &Path, value: &[u8]) {
    rustix::fs::setxattr(path, ATTRIBUTE, value, XattrFlags::empty()).expect("set");
}

fn options() -> PosixOptions {
    PosixOptions {
        lustre_attribute: Some(ATTRIBUTE.to_owned()),
        ..PosixOptions::default()
    }
}

fn folder() -> tempfile::TempDir {
    // The temporary folder of the host may be in memory, without attributes of users.
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder")
}

fn store(folder: &Path, end: End, options: PosixOptions) -> PosixStore {
    PosixStore::open(folder, end, options).expect("opened")
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("good")
}

/// Returns the layout as text, with the names of the targets.
fn told(store: &PosixStore, layout: &Layout) -> String {
    let targets = store.targets();
    let name = |id: &TargetId| {
        let known = targets.iter().find(|target| target.id == *id);
        let name = known.map_or("?", |target| &target.name);
        if name.starts_with("device") {
            "device"
        } else {
            name
        }
        .to_owned()
    };
    let names = |ids: &[TargetId]| ids.iter().map(name).collect::<Vec<_>>().join(" ");
    match layout {
        Layout::Single(id) => name(id),
        Layout::Striped {
            stripe_bytes,
            targets,
        } => format!("{stripe_bytes}: {}", names(targets)),
        Layout::Composite(extents) => {
            let extent = |extent: &Extent| format!("{}: {}", extent.end, names(&extent.targets));
            extents.iter().map(extent).collect::<Vec<_>>().join(", ")
        }
        other @ Layout::Table(_) => format!("{other:?}"),
    }
}

#[test]
fn a_listing_has_the_targets_of_striped_files() {
    let top = folder();
    std::fs::create_dir(top.path().join("mapped")).expect("made");
    for (name, size, value) in [
        ("plain", 9 * MIB, v1(1 << 20, &[3, 10, 0xab])),
        ("progressive", 9 * MIB, progressive(5)),
        ("short", MIB, progressive(5)),
        ("small", 1000, v1(1 << 20, &[3, 4])),
        ("damaged", 9 * MIB, v1(1 << 20, &[3, 4])[..50].to_vec()),
        ("mapped/file", 9 * MIB, v1(1 << 20, &[3, 4])),
    ] {
        let file = std::fs::File::create(top.path().join(name)).expect("made");
        file.set_len(size).expect("sized");
        set(&top.path().join(name), &value);
    }
    let file = std::fs::File::create(top.path().join("without")).expect("made");
    file.set_len(9 * MIB).expect("sized");

    let mapped = TargetMap::new([(path("mapped"), "archive".to_owned())]);
    let store = store(
        top.path(),
        End::Source,
        PosixOptions {
            targets: mapped,
            ..options()
        },
    );
    let options = ListOptions {
        recursive: true,
        ..ListOptions::default()
    };
    let listed = store.list(&RelPath::root(), &options).expect("listed");
    let listed: BTreeMap<String, String> = listed
        .map(|item| item.expect("an entry"))
        .filter(|item| matches!(item.kind, EntryKind::File { .. }))
        .map(|item| (item.name.to_string(), told(&store, &item.layout)))
        .collect();
    let expected = [
        ("damaged", "device"),
        ("file", "archive"),
        ("plain", "1048576: OST0003 OST000a OST00ab"),
        (
            "progressive",
            "1048576: OST0005, 18446744073709551615: device",
        ),
        ("short", "OST0005"),
        ("small", "device"),
        ("without", "device"),
    ];
    let expected = expected.map(|(name, layout)| (name.to_owned(), layout.to_owned()));
    assert_eq!(listed, BTreeMap::from(expected));
    let asked = store.layout(&path("plain")).expect("known");
    assert_eq!(told(&store, &asked), "1048576: OST0003 OST000a OST00ab");
}

#[test]
fn a_partial_file_has_the_targets_that_the_store_chose() {
    let top = folder();
    let store = store(top.path(), End::Sink, options());
    let file = path("out");
    let before = store.layout(&file).expect("known");
    assert_eq!(told(&store, &before), "device");
    let name = Name::new(b".dray-p").expect("good");
    let request = |reuse| PartialRequest {
        name: name.clone(),
        reuse,
    };
    let partial = store.begin(&file, 9 * MIB, &request(None)).expect("begun");
    let id = partial.id();
    drop(partial);
    // Lustre sets the attribute when it creates the file.
    set(&top.path().join(".dray-p"), &v1(1 << 22, &[7, 8]));
    let partial = store
        .begin(&file, 9 * MIB, &request(Some(id)))
        .expect("begun");
    let layout = partial.layout().expect("chosen");
    assert_eq!(told(&store, &layout), "4194304: OST0007 OST0008");
    let wrapped = crate::wrap(
        std::sync::Arc::new(store),
        crate::WrapOptions {
            limit: Some(crate::wrap::limit::LimitOptions::default()),
            ..crate::WrapOptions::default()
        },
    );
    let partial = wrapped
        .begin(&file, 9 * MIB, &request(Some(id)))
        .expect("begun");
    assert_eq!(partial.layout(), Some(layout));
}

#[test]
fn other_file_systems_have_no_layout_of_partial_files() {
    let top = folder();
    let store = store(top.path(), End::Sink, PosixOptions::default());
    let request = PartialRequest {
        name: Name::new(b".dray-p").expect("good"),
        reuse: None,
    };
    let partial = store.begin(&path("out"), 9 * MIB, &request).expect("begun");
    assert_eq!(partial.layout(), None);
}

#[test]
fn the_name_of_a_lustre_file_system_is_read_from_its_mount() {
    let name = super::lustre_name;
    assert_eq!(name("10.0.0.1@tcp:/scratch"), Some("scratch"));
    assert_eq!(name("mgs1@o2ib:mgs2@o2ib:/home/users/a"), Some("home"));
    for wrong in ["scratch", "mgs@tcp:/", "mgs@tcp:/a b"] {
        assert_eq!(name(wrong), None, "{wrong}");
    }
}
