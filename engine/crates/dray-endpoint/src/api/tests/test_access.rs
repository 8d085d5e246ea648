//! Access rules for tests. A token is an owner's name. `NAME-reads` may only read, and may not read
//! a path that contains `hidden`.

use dray_access::{Access, Action, Credentials, Future, Principal, Rights};
use dray_api::api_path::ApiPath;
use dray_core::{End, Error, ErrorKind, Result};

#[derive(Debug, Default)]
pub(super) struct Names;

impl Access for Names {
    fn authenticate<'a>(&'a self, credentials: Credentials<'a>) -> Future<'a, Result<Principal>> {
        let shown = match (credentials.bearer, credentials.certificates) {
            (Some(token), _) if !token.is_empty() && !token.contains("bad") => Some(token),
            (None, [_, ..]) => Some("certificate"),
            _ => None,
        };
        let principal = shown.map(|token| {
            let owner = token.strip_suffix("-reads").unwrap_or(token);
            Principal {
                name: format!("{owner}@test"),
                owner: owner.to_owned(),
                is_administrator: owner == "root",
                rights: match owner == token {
                    true => Rights::Rules,
                    false => Rights::Scopes(
                        dray_auth::Scopes::parse("storage.read:/", &dray_core::RelPath::root())
                            .expect("a scope"),
                    ),
                },
            }
        });
        let refused = Error::new(ErrorKind::Unauthorized, End::Here, "believe the token");
        Box::pin(async move { principal.ok_or(refused) })
    }

    fn allow(&self, principal: &Principal, action: Action, path: &ApiPath) -> Result<()> {
        match (&principal.rights, action) {
            (Rights::Rules, _) => Ok(()),
            (_, Action::Read) if !path.text().contains("hidden") => Ok(()),
            (Rights::Scopes(_) | Rights::Granted(_), action) => {
                Err(
                    Error::new(ErrorKind::PermissionDenied, End::Here, "use the path")
                        .cause(format!("{action:?} needs a scope for {}", path.text())),
                )
            }
        }
    }

    fn still_allow(&self, owner: &str, _: &str, action: Action, path: &ApiPath) -> Result<()> {
        match owner {
            "nobody" => Err(
                Error::new(ErrorKind::PermissionDenied, End::Here, "use the path")
                    .cause(format!("{action:?} of {}", path.text())),
            ),
            _ => Ok(()),
        }
    }
}
