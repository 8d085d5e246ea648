use super::{Action, Capability, Scopes};
use crate::resource::Resource;
use dray_core::{ErrorKind, RelPath};
use proptest::prelude::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a good path")
}

fn scopes(claim: &str) -> Scopes {
    Scopes::parse(claim, &RelPath::root()).expect("good scopes")
}

fn allows(claim: &str, action: Action, at: &str) -> bool {
    scopes(claim).allows(action, &Resource::parse(at).expect("a good path"))
}

#[test]
fn capabilities_allow_the_actions_of_the_profile() {
    use Action::*;
    let table: [(&str, &[Action]); 4] = [
        ("storage.read:/", &[Read, List, Stat]),
        ("storage.create:/", &[Stat, Create, MakeFolder]),
        (
            "storage.modify:/",
            &[Stat, Create, MakeFolder, Replace, Rename, Remove],
        ),
        ("storage.stage:/", &[Read, List, Stat, Stage]),
    ];
    for (claim, allowed) in table {
        for action in Action::ALL {
            assert_eq!(
                allows(claim, action, "/a/b"),
                allowed.contains(&action),
                "{claim} {action:?}"
            );
        }
    }
    for action in Action::ALL {
        assert!(!allows("", action, "/a"));
        assert!(!allows(
            "openid compute.read storage.poll:/ other:/",
            action,
            "/a"
        ));
    }
}

#[test]
fn prefixes_match_whole_names_only() {
    let claim = "storage.read:/foo";
    for inside in ["/foo", "/foo/", "/foo/bar", "/foo/bar/qux", "/%66oo/x"] {
        assert!(allows(claim, Action::Read, inside), "{inside}");
    }
    for outside in ["/", "/foobar", "/fo", "/bar", "/bar/foo", "/Foo"] {
        assert!(!allows(claim, Action::Read, outside), "{outside}");
    }
}

#[test]
fn profile_examples_are_satisfied() {
    // The example in section 2.2.1 of the WLCG profile.
    let claim = "storage.create:/foo/bar";
    assert!(allows(claim, Action::MakeFolder, "/foo"));
    assert!(allows(claim, Action::Create, "/foo/bar"));
    assert!(allows(claim, Action::MakeFolder, "/foo/bar"));
    assert!(allows(claim, Action::Create, "/foo/bar/qux"));
    assert!(!allows(claim, Action::Create, "/foo"));
    assert!(!allows(claim, Action::Create, "/foo/bargain"));
    assert!(!allows(claim, Action::MakeFolder, "/foo/bargain"));
    let folder = "storage.create:/foo/bar/";
    assert!(!allows(folder, Action::Create, "/foo/bar"));
    assert!(allows(folder, Action::MakeFolder, "/foo/bar"));
    assert!(allows(folder, Action::Create, "/foo/bar/qux"));
    // A read scope does not allow creating folders.
    assert!(!allows("storage.read:/foo/bar", Action::MakeFolder, "/foo"));
}

#[test]
fn base_is_prefixed_and_scopes_stay_within_it() {
    let base = path("vo/area");
    let scopes = Scopes::parse("storage.read:/ storage.create:/out/x", &base).expect("good");
    let allows = |action, at| scopes.allows(action, &Resource::parse(at).expect("good"));
    assert!(allows(Action::Read, "/vo/area/file"));
    assert!(allows(Action::Create, "/vo/area/out/x/file"));
    assert!(allows(Action::MakeFolder, "/vo/area/out"));
    assert!(allows(Action::MakeFolder, "/vo/area"));
    assert!(!allows(Action::Read, "/vo/areas"));
    assert!(!allows(Action::Read, "/file"));
    assert!(!allows(Action::Create, "/out/x/file"));
    assert!(
        !allows(Action::MakeFolder, "/vo"),
        "above the issuer's area"
    );
}

#[test]
fn scope_without_normalized_absolute_path_refuses_the_token() {
    for bad in [
        "storage.read",
        "storage.read:",
        "storage.read:foo",
        "storage.read:../foo",
        "storage.modify:/foo/..",
        "storage.modify:/foo/../bar",
        "storage.modify:/./foo",
        "storage.modify://foo",
        "storage.modify:/foo//bar",
        "storage.modify:/foo//",
        "storage.modify:/%2e%2e/bar",
        "storage.modify:/.%2E/bar",
        "storage.modify:/foo%2fbar",
        "storage.modify:/foo%00",
        "storage.modify:/foo%",
        "storage.modify:/foo%2",
        "storage.modify:/foo%zz",
        "storage.modify:/foo?x",
        "storage.modify:/foo#x",
        "storage.modify:/foo\\bar",
        "storage.modify:/f\u{f6}o",
        "storage.read:/ok storage.stage",
    ] {
        let error = Scopes::parse(bad, &RelPath::root()).expect_err(bad);
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{bad}");
        assert!(error.cause.contains("storage."), "{error}");
    }
    let many = "storage.read:/a ".repeat(super::SCOPES_MAX + 1);
    assert!(Scopes::parse(&many, &RelPath::root()).is_err());
}

#[test]
fn refusals_name_the_missing_scope() {
    let scopes = Scopes::parse("storage.read:/a", &path("vo")).expect("good");
    let refused = |action, at| {
        let resource = Resource::parse(at).expect("good");
        scopes.demand(action, &resource).expect_err("refused")
    };
    let error = refused(Action::Replace, "/vo/a%20b");
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    assert_eq!(
        error.to_string(),
        "cannot replace /vo/a%20b: permission denied (the token has no scope \
         storage.modify:/a%20b); ask the issuer for a token with the missing scope"
    );
    let error = refused(Action::Read, "/other");
    assert!(error.cause.contains("is outside the folder"), "{error}");
    let allowed = Resource::parse("/vo/a/b").expect("good");
    assert!(scopes.demand(Action::Read, &allowed).is_ok());
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{1,2}",
        Just(".".to_owned()),
        Just("..".to_owned()),
        Just(String::new()),
        Just("%2e%2e".to_owned()),
        Just("%2E".to_owned()),
        Just("%2f".to_owned()),
        Just("a%2f..%2fb".to_owned()),
        Just("%61".to_owned()),
        Just("..;x".to_owned()),
        Just("%252e%252e".to_owned()),
        Just("%5c".to_owned()),
    ]
}

proptest! {
    /// Checks the answer of [`Scopes::allows`] with an independent implementation, which decodes
    /// the path of the scope and the path of the request, and compares them name by name.
    #[test]
    fn no_spelling_of_a_path_widens_a_scope(
        granted in prop::collection::vec(name(), 0..4),
        asked in prop::collection::vec(name(), 0..5),
        trailing in any::<bool>(),
    ) {
        let claim = format!(
            "storage.modify:/{}{}",
            granted.join("/"),
            if trailing { "/" } else { "" }
        );
        let asked_text = format!("/{}", asked.join("/"));
        let (Ok(scopes), Ok(resource)) = (
            Scopes::parse(&claim, &path("base")),
            Resource::parse(&format!("/base{asked_text}")),
        ) else {
            return Ok(());
        };
        // Checked as a file system would see the path: no name is `.`, `..` or empty.
        for component in resource.path.components() {
            let bytes = component.as_bytes().to_vec();
            prop_assert!(!bytes.is_empty() && bytes != b"." && bytes != b"..");
            prop_assert!(!bytes.contains(&b'/'));
        }
        if scopes.allows(Action::Remove, &resource) {
            let plain = |text: &str| text.replace("%61", "a");
            let granted: Vec<_> = granted.iter().map(|name| plain(name)).collect();
            let granted: Vec<_> = granted.iter().filter(|name| !name.is_empty()).collect();
            let asked: Vec<_> = asked.iter().map(|name| plain(name)).collect();
            prop_assert!(asked.len() >= granted.len());
            for (one, other) in granted.iter().zip(&asked) {
                prop_assert_eq!(*one, other);
            }
        }
    }

    #[test]
    fn nothing_outside_the_base_is_ever_allowed(
        claim in "(storage\\.(read|create|modify|stage):/[a-c./%2e]{0,12} ?){0,3}",
        at in "[a-c]{1,2}(/[a-c]{1,2}){0,3}",
    ) {
        let base = path("base");
        if let Ok(scopes) = Scopes::parse(&claim, &base) {
            for action in Action::ALL {
                prop_assert!(!scopes.allows(action, &Resource::folder(path(&at))));
            }
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in "\\PC{0,40}") {
        let _ = Scopes::parse(&text, &RelPath::root());
    }
}

#[test]
fn capabilities_have_distinct_names() {
    let names: std::collections::BTreeSet<_> =
        Capability::ALL.iter().map(|one| one.name()).collect();
    assert_eq!(names.len(), Capability::ALL.len());
}
