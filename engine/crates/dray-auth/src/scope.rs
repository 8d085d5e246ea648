//! Scopes of a token: the storage actions that a scope allows, and the paths on which it allows
//! them (WLCG Common JWT Profile, section 2.2.1).
//!
//! The path of a scope is a [`Resource`]. A token with an invalid path is refused.

use crate::escape::unauthorized;
use crate::resource::Resource;
use dray_core::{End, Error, ErrorKind, RelPath, Result};

/// Maximum number of storage scopes in a token. The largest known tokens have some tens of scopes,
/// so the limit leaves a wide margin.
pub const SCOPES_MAX: usize = 256;

/// Right that a scope grants on its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// `storage.read`: read data that is online.
    Read,
    /// `storage.create`: write a path that does not exist yet.
    Create,
    /// `storage.modify`: write, replace, rename, remove. Does not grant reading.
    Modify,
    /// `storage.stage`: bring data online from slow storage, and read it.
    Stage,
}

impl Capability {
    const ALL: [Self; 4] = [Self::Read, Self::Create, Self::Modify, Self::Stage];

    /// Returns the name of the capability in a token.
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
    /// Query metadata such as size and times. Every storage scope that covers the path allows this
    /// action.
    Stat,
    /// Write a file at a path that does not exist.
    Create,
    /// Create a folder. A scope that allows writing a path also allows the creation of its parent
    /// folders.
    MakeFolder,
    /// Replace an existing file.
    Replace,
    /// Rename. The caller checks this action for both the old and the new path.
    Rename,
    /// Remove a file or folder.
    Remove,
    /// Bring a file online from slow storage.
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

    /// Returns the capabilities that grant the action. A token needs only one of these
    /// capabilities. The first capability of the list grants the fewest rights.
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
            Self::Stat => "read the attributes of",
            Self::Create => "create",
            Self::MakeFolder => "create the folder",
            Self::Replace => "replace",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::Stage => "stage",
        }
    }
}

/// One scope of a token. The path of the scope already contains the issuer's base as its prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The right that the scope grants.
    pub capability: Capability,
    /// The path that the scope covers. The scope also covers all paths below it.
    pub resource: Resource,
}

/// All storage scopes of one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scopes {
    base: RelPath,
    scopes: Vec<Scope>,
}

impl Scopes {
    /// Returns a set without scopes, which allows nothing.
    #[must_use]
    pub fn none() -> Self {
        Self {
            base: RelPath::root(),
            scopes: Vec::new(),
        }
    }

    /// Parses the `scope` claim, which has names separated by single spaces. `base` is the issuer's
    /// area and is prefixed to each path. Scopes that do not concern storage are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] for a storage scope without a path (the token profile of WLCG
    /// requires a path), for a path that is not absolute and normalized, and for more than
    /// [`SCOPES_MAX`] scopes.
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
            let below = Resource::parse(path).map_err(|error| {
                let why = error.cause;
                refuse(format!("the path of a scope {name} is not valid: {why}"))
            })?;
            let is_folder = below.is_folder && !below.path.is_root();
            let path = base
                .join_path(&below.path)
                .map_err(|_| refuse(format!("the path of a scope {name} is too long")))?;
            if scopes.len() == SCOPES_MAX {
                return Err(refuse(format!(
                    "the token has more than {SCOPES_MAX} storage scopes"
                )));
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

    /// Returns the scopes in the order of the token.
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

    /// Checks that the action on the resource is allowed.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`], with the name of the missing scope.
    pub fn demand(&self, action: Action, resource: &Resource) -> Result<()> {
        if self.allows(action, resource) {
            return Ok(());
        }
        let cause = match self.missing(action, resource) {
            Some(missing) => format!("the token has no scope {missing}"),
            None => format!(
                "{resource} is outside the folder for which the token's issuer may grant rights at \
                    this endpoint: {}",
                Resource::folder(self.base.clone())
            ),
        };
        let operation = format!("{} {resource}", action.words());
        Err(
            Error::new(ErrorKind::PermissionDenied, End::Here, operation)
                .cause(cause)
                .remedy("ask the issuer for a token with the missing scope"),
        )
    }

    /// Returns the smallest scope that would allow the action, in the form that tokens use. `None`
    /// if the path is outside the issuer's area.
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
        // A scope for writing a path also allows creating the parent folders of the path within the
        // issuer's area. Without these folders the path could not be written.
        let leads_here = action == Action::MakeFolder
            && own.path.starts_with(&resource.path)
            && resource.path.starts_with(base);
        leads_here || resource.path.starts_with(&own.path)
    }
}

#[cfg(test)]
mod tests;
