//! Scopes of a token: the storage actions they allow, and the paths (WLCG Common JWT Profile,
//! section 2.2.1).
//!
//! The path of a scope is a [`Resource`]; a token with an invalid one is refused.

use crate::escape::unauthorized;
use crate::resource::Resource;
use dray_core::{End, Error, ErrorKind, RelPath, Result};

/// Maximum number of storage scopes in a token. Our bound: the largest known tokens have some tens.
pub const SCOPES_MAX: usize = 256;

/// Right that a scope grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// `storage.read`: read online data.
    Read,
    /// `storage.create`: write a path that does not exist yet.
    Create,
    /// `storage.modify`: write, replace, rename, remove. Does not grant reading.
    Modify,
    /// `storage.stage`: bring online, and read.
    Stage,
}

impl Capability {
    const ALL: [Self; 4] = [Self::Read, Self::Create, Self::Modify, Self::Stage];

    /// Returns the name in a token.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "storage.read",
            Self::Create => "storage.create",
            Self::Modify => "storage.modify",
            Self::Stage => "storage.stage",
        }
    }
}

/// Action of a caller on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read a file, or a tree.
    Read,
    /// List a folder.
    List,
    /// Query size, times and the like; any storage scope of the path allows it.
    Stat,
    /// Write a file at a path that does not exist.
    Create,
    /// Create a folder. A scope of a path allows the creation of its parent folders.
    MakeFolder,
    /// Write a file over an existing one.
    Replace,
    /// Rename: checked for the old path and for the new one.
    Rename,
    /// Remove.
    Remove,
    /// Bring online from slow storage.
    Stage,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::List,
        Self::Stat,
        Self::Create,
        Self::MakeFolder,
        Self::Replace,
        Self::Rename,
        Self::Remove,
        Self::Stage,
    ];

    /// Returns the capabilities that grant the action, of which one suffices; the first is the
    /// smallest.
    #[must_use]
    pub const fn granted_by(self) -> &'static [Capability] {
        match self {
            Self::Read | Self::List => &[Capability::Read, Capability::Stage],
            Self::Stat => &Capability::ALL,
            Self::Create | Self::MakeFolder => &[Capability::Create, Capability::Modify],
            Self::Replace | Self::Rename | Self::Remove => &[Capability::Modify],
            Self::Stage => &[Capability::Stage],
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Stat => "look at",
            Self::Create => "create",
            Self::MakeFolder => "make the folder",
            Self::Replace => "replace",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::Stage => "stage",
        }
    }
}

/// One scope of a token, with the issuer's base prefixed to its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Right that it grants.
    pub capability: Capability,
    /// Path that it covers, with all paths beneath.
    pub resource: Resource,
}

/// All storage scopes of one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes {
    base: RelPath,
    scopes: Vec<Scope>,
}

impl Scopes {
    /// Returns scopes that allow nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            base: RelPath::root(),
            scopes: Vec::new(),
        }
    }

    /// Parses the `scope` claim (names separated by single spaces) of an issuer whose area is
    /// `base`. Scopes that do not concern storage are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] for a storage scope without a path (the profile requires one),
    /// with a path that is not absolute and normalized, and past [`SCOPES_MAX`].
    pub fn parse(claim: &str, base: &RelPath) -> Result<Self> {
        const REMEDY: &str = "ask the issuer for a token with scopes like storage.read:/a/folder";
        let refuse = |cause: String| unauthorized("accept the token", cause, REMEDY);
        let mut scopes = Vec::new();
        for text in claim.split(' ').filter(|text| !text.is_empty()) {
            let (name, path) = match text.split_once(':') {
                Some((name, path)) => (name, Some(path)),
                None => (text, None),
            };
            let found = Capability::ALL.iter().find(|known| known.name() == name);
            let Some(capability) = found.copied() else {
                continue;
            };
            let Some(path) = path else {
                return Err(refuse(format!("the scope {name} names no path")));
            };
            let below = Resource::parse(path)
                .map_err(|error| refuse(format!("the path of a scope {name}: {}", error.cause)))?;
            let is_folder = below.is_folder && !below.path.is_root();
            let path = base
                .join_path(&below.path)
                .map_err(|_| refuse(format!("the path of a scope {name} is too long")))?;
            if scopes.len() == SCOPES_MAX {
                return Err(refuse(format!("it has over {SCOPES_MAX} storage scopes")));
            }
            scopes.push(Scope {
                capability,
                resource: Resource { path, is_folder },
            });
        }
        Ok(Self {
            base: base.clone(),
            scopes,
        })
    }

    /// Returns the scopes, in the token's order.
    #[must_use]
    pub fn as_slice(&self) -> &[Scope] {
        &self.scopes
    }

    /// Returns true if one of the scopes allows the action on the resource.
    #[must_use]
    pub fn allows(&self, action: Action, resource: &Resource) -> bool {
        self.scopes
            .iter()
            .any(|scope| scope.allows(action, resource, &self.base))
    }

    /// Checks that the action is allowed.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], naming the missing scope.
    pub fn demand(&self, action: Action, resource: &Resource) -> Result<()> {
        if self.allows(action, resource) {
            return Ok(());
        }
        let cause = match self.missing(action, resource) {
            Some(missing) => format!("the token has no scope {missing}"),
            None => format!(
                "{resource} lies outside of what the token's issuer may give, {}",
                Resource::folder(self.base.clone())
            ),
        };
        let operation = format!("{} {resource}", action.words());
        Err(
            Error::new(ErrorKind::PermissionDenied, End::Here, operation)
                .cause(cause)
                .remedy("ask the issuer for a token with that scope"),
        )
    }

    /// Returns the smallest scope that would allow the action, as written in a token; `None` if the
    /// path is outside the issuer's area.
    #[must_use]
    pub fn missing(&self, action: Action, resource: &Resource) -> Option<String> {
        if !resource.path.starts_with(&self.base) {
            return None;
        }
        let depth = self.base.components().count();
        let mut below = RelPath::root();
        for name in resource.path.components().skip(depth) {
            below = below.join(&name).ok()?;
        }
        let capability = action.granted_by().first()?;
        Some(format!("{}:{}", capability.name(), Resource::file(below)))
    }
}

impl Scope {
    fn allows(&self, action: Action, resource: &Resource, base: &RelPath) -> bool {
        if !action.granted_by().contains(&self.capability) {
            return false;
        }
        let own = &self.resource;
        let is_folder = resource.is_folder || matches!(action, Action::List | Action::MakeFolder);
        if resource.path == own.path {
            return is_folder || !own.is_folder;
        }
        // A scope that allows writing a path also allows creating its parent folders, within the
        // issuer's area: without them the path could not be written.
        let leads_here = action == Action::MakeFolder
            && own.path.starts_with(&resource.path)
            && resource.path.starts_with(base);
        leads_here || resource.path.starts_with(&own.path)
    }
}

#[cfg(test)]
mod tests {
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
    fn capabilities_allow_what_the_profile_says() {
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
    fn the_profile_s_examples_hold() {
        // Section 2.2.1, `storage.create:/foo/bar`.
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
        // A scope that only reads cannot create folders.
        assert!(!allows("storage.read:/foo/bar", Action::MakeFolder, "/foo"));
    }

    #[test]
    fn a_base_is_put_before_and_never_left() {
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
    fn a_scope_without_a_plain_absolute_path_refuses_the_token() {
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
    fn refusals_name_the_scope_that_is_missing() {
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
             storage.modify:/a%20b); ask the issuer for a token with that scope"
        );
        let error = refused(Action::Read, "/other");
        assert!(error.cause.contains("outside"), "{error}");
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
        /// Compares with an independent implementation: names are decoded one by one and compared.
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
            // As seen by a file system: no component climbs, none is empty.
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
}
