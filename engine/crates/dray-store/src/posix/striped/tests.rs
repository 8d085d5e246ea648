use crate::lustre::Stripes;
use crate::posix::{PosixOptions, PosixStore};
use crate::store::Store;
use crate::types::{Attributes, ListOptions, PartialRequest, Publish};
use dray_core::attribute::STRIPES_NAME;
use dray_core::{End, ErrorKind, Metadata, Name, RelPath, StripeChoice};
use rustix::fs::XattrFlags;
use std::path::Path;

/// Attribute that takes the place of `lustre.lov`, which only Lustre has.
const ATTRIBUTE: &str = "user.lov";

fn store(folder: &Path, end: End, stripes: &str) -> PosixStore {
    let options = PosixOptions {
        lustre_attribute: Some(ATTRIBUTE.to_owned()),
        stripes: Some(stripes.parse().expect("good")),
        ..PosixOptions::default()
    };
    PosixStore::open(folder, end, options).expect("opened")
}

fn folder() -> tempfile::TempDir {
    // The temporary folder of the host may be in memory, without attributes of users.
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder")
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("good")
}

fn request(name: &[u8]) -> PartialRequest {
    PartialRequest {
        name: Name::new(name).expect("good"),
        reuse: None,
    }
}

fn attribute(file: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(file, name, value.as_mut_slice()).ok()?;
    value.truncate(length);
    Some(value)
}

fn stripes_of(file: &Path) -> Option<Vec<u8>> {
    attribute(file, ATTRIBUTE.as_bytes())
}

#[test]
fn new_files_have_the_requested_stripes() {
    let top = folder();
    let store = store(top.path(), End::Sink, "4:16MiB");
    let wanted = Stripes::whole(4, 16 << 20).expect("good").encode();
    store
        .begin(&path("a"), 10, &request(b".dray-a"))
        .expect("begun");
    assert_eq!(
        stripes_of(&top.path().join(".dray-a")),
        Some(wanted.clone())
    );
    let metadata = Metadata {
        mode: 0o644,
        ..Metadata::default()
    };
    let name = Name::new(b".dray-b").expect("good");
    let attributes = Attributes::of(&metadata);
    let id = store
        .write_small(&path("b"), &name, b"b", &[], &attributes)
        .expect("written");
    store
        .publish_small(&path("b"), &name, id, Publish::Replace)
        .expect("published");
    assert_eq!(stripes_of(&top.path().join("b")), Some(wanted));
}

#[test]
fn a_copy_has_the_stripes_of_its_source() {
    let (from, to) = (folder(), folder());
    let stripes = "1048576:mdt:1048576,18446744073709551615:16:4194304";
    let layout = stripes.parse::<Stripes>().expect("good").encode();
    std::fs::write(from.path().join("file"), b"content").expect("written");
    let set = |name: &str, value: &[u8]| {
        let flags = XattrFlags::empty();
        rustix::fs::setxattr(from.path().join("file"), name, value, flags).expect("set");
    };
    set(ATTRIBUTE, &layout);
    // The user's attribute of this name does not replace the stripes.
    set("user.lustre.stripes", b"from a user");

    let source = store(from.path(), End::Source, "source");
    let options = ListOptions {
        xattrs: true,
        ..ListOptions::default()
    };
    let mut listed = source.list(&path("file"), &options).expect("listed");
    let metadata = listed.next().expect("an entry").expect("a file").metadata;
    let sent: Vec<_> = metadata
        .xattrs
        .iter()
        .filter(|(name, _)| name == STRIPES_NAME)
        .collect();
    assert_eq!(
        sent,
        [&(STRIPES_NAME.to_vec(), stripes.as_bytes().to_vec())]
    );

    let sink = store(to.path(), End::Sink, "source");
    let begun = sink.begin_striped(&path("a"), 10, &request(b".dray-a"), &sent[0].1);
    begun.expect("begun");
    assert_eq!(stripes_of(&to.path().join(".dray-a")), Some(layout.clone()));
    let name = Name::new(b".dray-b").expect("good");
    let attributes = Attributes::of(&metadata);
    sink.write_small(&path("b"), &name, b"b", &[], &attributes)
        .expect("written");
    let small = to.path().join(".dray-b");
    assert_eq!(attribute(&small, STRIPES_NAME), None);
    // In this test a `user.` attribute stands for `lustre.lov`. The source sends every `user.`
    // attribute, so the small file gets this attribute although `write_small` sets no stripes.
    assert_eq!(stripes_of(&small), Some(layout));
    // If the sink cannot parse the stripes, the file gets the default stripes of its folder.
    let begun = sink.begin_striped(&path("c"), 10, &request(b".dray-c"), b"4 stripes");
    begun.expect("begun");
    assert_eq!(stripes_of(&to.path().join(".dray-c")), None);
}

#[test]
fn stripes_are_refused_outside_lustre() {
    let top = folder();
    let open = |end| {
        let options = PosixOptions {
            stripes: Some(StripeChoice::Source),
            ..PosixOptions::default()
        };
        PosixStore::open(top.path(), end, options)
    };
    assert!(open(End::Source).is_ok());
    let error = open(End::Sink).expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(
        error
            .cause
            .ends_with("is not a folder on a Lustre file system"),
        "{error}"
    );
}
