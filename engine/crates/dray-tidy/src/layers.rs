//! The permitted dependencies between crates. They point in one direction: programs and bindings ->
//! open -> runtime -> net -> link, stores -> session -> pure crates -> core.

use toml::{Table, Value};

use crate::Finding;

/// A crate of the workspace, with its permitted dependencies.
#[derive(Debug)]
pub struct Room {
    /// Name of the crate.
    pub name: &'static str,
    /// True if the crate is pure: it uses no files, sockets, threads, clocks or randomness.
    pub is_pure: bool,
    /// Crates of the workspace on which the crate may depend.
    pub may_use: &'static [&'static str],
}

const CORE: &str = "dray-core";
const PURE: &[&str] = &[CORE, "dray-wire", "dray-log", "dray-sched"];
const STORE: &[&str] = &["dray-store", CORE];
/// Permitted dependencies of dray-link, which dray-runtime and dray-net share.
const LINK_USES: &[&str] = &[
    "dray-session",
    "dray-store",
    CORE,
    "dray-wire",
    "dray-log",
    "dray-sched",
];
/// Permitted dependencies of dray-net. It does not use dray-runtime or dray-log.
const NET_USES: &[&str] = &[
    "dray-link",
    "dray-auth",
    "dray-session",
    "dray-store",
    CORE,
    "dray-wire",
];
const BELOW_RUNTIME: &[&str] = &[
    "dray-net",
    "dray-link",
    "dray-session",
    "dray-store",
    CORE,
    "dray-wire",
    "dray-log",
    "dray-sched",
];
/// Permitted dependencies of dray-open. Only this crate depends on the store crates, and programs
/// open a location through it.
const OPEN_USES: &[&str] = &[
    "dray-link",
    "dray-runtime",
    "dray-session",
    "dray-store",
    "dray-store-gridftp",
    "dray-store-http",
    "dray-store-rados",
    "dray-store-xrootd",
    CORE,
    "dray-wire",
];
const TPC_USES: &[&str] = &[
    "dray-api",
    "dray-open",
    "dray-link",
    "dray-net",
    "dray-runtime",
    "dray-session",
    "dray-store",
    "dray-store-http",
    "dray-store-xrootd",
    CORE,
    "dray-wire",
];
const OPEN_AND_BELOW: &[&str] = &[
    "dray-open",
    "dray-link",
    "dray-runtime",
    "dray-auth",
    "dray-session",
    "dray-store",
    CORE,
    "dray-wire",
    "dray-log",
    "dray-sched",
];

const ENDPOINT_USES: &[&str] = &[
    "dray-telemetry",
    "dray-access",
    "dray-client",
    "dray-config",
    "dray-queue",
    "dray-receipt",
    "dray-api",
    "dray-auth",
    "dray-open",
    "dray-link",
    "dray-net",
    "dray-runtime",
    "dray-session",
    "dray-store",
    CORE,
    "dray-wire",
    "dray-log",
    "dray-sched",
];
const CLI_USES: &[&str] = &[
    "dray-chaos",
    "dray-telemetry",
    "dray-access",
    "dray-client",
    "dray-config",
    "dray-api",
    "dray-endpoint",
    "dray-receipt",
    "dray-auth",
    "dray-open",
    "dray-link",
    "dray-net",
    "dray-runtime",
    "dray-session",
    "dray-store",
    CORE,
    "dray-wire",
    "dray-log",
    "dray-sched",
];

/// All crates of the workspace. The test fails if a crate on disk is not in this list. A crate in
/// the list may be missing on disk.
pub const ROOMS: &[Room] = &[
    Room {
        name: CORE,
        is_pure: true,
        may_use: &[],
    },
    Room {
        name: "dray-wire",
        is_pure: true,
        may_use: &[CORE],
    },
    Room {
        name: "dray-log",
        is_pure: true,
        may_use: &[CORE],
    },
    Room {
        name: "dray-sched",
        is_pure: true,
        may_use: &[CORE],
    },
    Room {
        name: "dray-auth",
        is_pure: true,
        may_use: &[CORE],
    },
    Room {
        name: "dray-receipt",
        is_pure: true,
        may_use: &[CORE],
    },
    Room {
        name: "dray-api",
        is_pure: true,
        may_use: &[CORE, "dray-sched"],
    },
    Room {
        name: "dray-session",
        is_pure: true,
        may_use: PURE,
    },
    Room {
        name: "dray-store",
        is_pure: false,
        may_use: &[CORE],
    },
    Room {
        name: "dray-store-gridftp",
        is_pure: false,
        may_use: STORE,
    },
    Room {
        name: "dray-store-http",
        is_pure: false,
        may_use: STORE,
    },
    Room {
        name: "dray-store-rados",
        is_pure: false,
        may_use: STORE,
    },
    Room {
        name: "dray-store-xrootd",
        is_pure: false,
        may_use: STORE,
    },
    Room {
        name: "dray-link",
        is_pure: false,
        may_use: LINK_USES,
    },
    Room {
        name: "dray-net",
        is_pure: false,
        may_use: NET_USES,
    },
    Room {
        name: "dray-runtime",
        is_pure: false,
        may_use: BELOW_RUNTIME,
    },
    Room {
        name: "dray-open",
        is_pure: false,
        may_use: OPEN_USES,
    },
    Room {
        name: "dray-telemetry",
        is_pure: false,
        may_use: &[
            "dray-link",
            "dray-runtime",
            "dray-session",
            CORE,
            "dray-wire",
        ],
    },
    Room {
        name: "dray-client",
        is_pure: false,
        may_use: &["dray-api", "dray-link", "dray-net", "dray-store", CORE],
    },
    Room {
        name: "dray-config",
        is_pure: false,
        may_use: &[
            "dray-api",
            "dray-auth",
            "dray-open",
            "dray-runtime",
            "dray-sched",
            "dray-store",
            CORE,
        ],
    },
    Room {
        name: "dray-access",
        is_pure: false,
        may_use: &[
            "dray-api",
            "dray-auth",
            "dray-client",
            "dray-config",
            "dray-net",
            "dray-wire",
            CORE,
        ],
    },
    Room {
        name: "dray-queue",
        is_pure: false,
        may_use: &["dray-api", "dray-link", "dray-sched", "dray-session", CORE],
    },
    Room {
        name: "dray-endpoint",
        is_pure: false,
        may_use: ENDPOINT_USES,
    },
    // It runs programs as a user does, so it does not link the code that it tests.
    Room {
        name: "dray-chaos",
        is_pure: false,
        may_use: &[CORE],
    },
    // The program `dray` is also the program `drayd`, so it includes the endpoint.
    Room {
        name: "dray-cli",
        is_pure: false,
        may_use: CLI_USES,
    },
    // The program that an XRootD server runs for a third-party copy. It is in the folder of the
    // XRootD plug-ins.
    Room {
        name: "dray-xrootd-tpc",
        is_pure: false,
        may_use: TPC_USES,
    },
    Room {
        name: "dray-py",
        is_pure: false,
        may_use: OPEN_AND_BELOW,
    },
    // The simulator drives the session's machines itself, and never through the runtime.
    Room {
        name: "dray-sim",
        is_pure: false,
        may_use: &[
            "dray-session",
            "dray-store",
            CORE,
            "dray-wire",
            "dray-log",
            "dray-sched",
        ],
    },
    Room {
        name: "dray-tidy",
        is_pure: false,
        may_use: &[],
    },
];

/// External crates that a pure crate may not use, because each of them does I/O, reads the time or
/// draws random numbers.
const IMPURE_CRATES: &[&str] = &[
    "chrono",
    "crossbeam-channel",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "rand",
    "rayon",
    "rusqlite",
    "rustix",
    "socket2",
    "tempfile",
    "time",
    "tokio",
];

/// Returns the entry of a crate in the table.
pub fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Checks the manifest of one crate. `folder` is the name of the crate's folder, and `place` is the
/// path of the manifest.
pub fn check(place: &str, folder: &str, manifest: &str) -> Vec<Finding> {
    let table: Table = match manifest.parse() {
        Ok(table) => table,
        Err(error) => return vec![Finding::at(place, format!("not TOML: {error}"))],
    };
    let mut findings = Vec::new();
    let mut complain = |message: String| findings.push(Finding::at(place, message));

    let name = lookup(&table, &["package", "name"])
        .and_then(Value::as_str)
        .unwrap_or("");
    if name != folder {
        complain(format!(
            "the crate is called `{name}`, its folder `{folder}`"
        ));
    }
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        if !is_inherited(&table, &["package", key]) {
            complain(format!(
                "`{key}` must come from the workspace: `{key}.workspace = true`"
            ));
        }
    }
    if !is_inherited(&table, &["lints"]) && lookup(&table, &["lints", "rust"]).is_none() {
        complain("no `[lints]`: say `workspace = true`, or list the crate's own".into());
    }

    let Some(room) = room(folder) else {
        complain(
            "not in the table of dray-tidy/src/layers.rs: give it a room and its arrows".into(),
        );
        return findings;
    };
    for (section, dependency) in dependencies(&table) {
        let is_dev = section == "dev-dependencies";
        if dependency.starts_with("dray-") {
            let is_allowed = if is_dev {
                dependency != "dray-tidy" && self::room(&dependency).is_some()
            } else {
                room.may_use.contains(&dependency.as_str())
            };
            if !is_allowed {
                complain(format!(
                    "{section}: `{folder}` may not use `{dependency}`; it may use {:?}",
                    room.may_use
                ));
            }
        } else if room.is_pure && !is_dev && IMPURE_CRATES.contains(&dependency.as_str()) {
            complain(format!(
                "{section}: `{dependency}` does not belong in a pure crate"
            ));
        }
    }
    if room.is_pure && lookup(&table, &["package", "build"]).is_some() {
        complain("a pure crate needs no build script".into());
    }
    findings
}

fn lookup<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let mut value = table.get(*first)?;
    for key in rest {
        value = value.get(*key)?;
    }
    Some(value)
}

fn is_inherited(table: &Table, path: &[&str]) -> bool {
    let value = lookup(table, path).and_then(|value| value.get("workspace"));
    value.and_then(Value::as_bool) == Some(true)
}

/// Returns all dependencies, each with its section. Sections in `[target.'cfg(...)']` are included.
fn dependencies(table: &Table) -> Vec<(String, String)> {
    const SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut found = Vec::new();
    let targets = table.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(|targets| targets.values());
    for holder in tables.filter_map(Value::as_table).chain([table]) {
        for section in SECTIONS {
            let Some(entries) = holder.get(section).and_then(Value::as_table) else {
                continue;
            };
            for (key, value) in entries {
                // `alias = { package = "real" }` depends on `real`.
                let package = value.get("package").and_then(Value::as_str).unwrap_or(key);
                found.push((section.to_owned(), package.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!(
            "[package]\nname = \"{name}\"\nversion.workspace = true\nedition.workspace = true\n\
             rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
             [lints]\nworkspace = true\n{rest}"
        )
    }

    fn messages(folder: &str, manifest: &str) -> Vec<String> {
        check("Cargo.toml", folder, manifest)
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn a_crate_within_its_rights_passes() {
        let text = manifest(
            "dray-session",
            "[dependencies]\ndray-core.workspace = true\ndray-log.workspace = true\nserde = \"1\"\n\
             [dev-dependencies]\ndray-sim.workspace = true\ntempfile = \"3\"\n",
        );
        assert_eq!(messages("dray-session", &text), Vec::<String>::new());
    }

    #[test]
    fn every_arrow_against_the_table_is_found() {
        for room in ROOMS {
            for other in ROOMS {
                let rest = format!("[dependencies]\n{} = {{ path = \"x\" }}\n", other.name);
                let is_found = !messages(room.name, &manifest(room.name, &rest)).is_empty();
                assert_eq!(
                    is_found,
                    !room.may_use.contains(&other.name),
                    "{room:?} -> {other:?}"
                );
            }
        }
    }

    #[test]
    fn the_table_has_no_circles() {
        // Returns the length of the longest chain of dependencies from `name`. A chain longer than
        // the list of crates contains a circle.
        fn reach(name: &str, depth: usize) -> usize {
            assert!(depth <= ROOMS.len(), "a circle through {name}");
            let uses = room(name).map_or(&[][..], |room| room.may_use);
            uses.iter()
                .map(|used| 1 + reach(used, depth + 1))
                .max()
                .unwrap_or(0)
        }
        for room in ROOMS {
            reach(room.name, 0);
        }
    }

    #[test]
    fn nobody_ships_the_simulator_or_the_house_rules() {
        for room in ROOMS {
            assert!(!room.may_use.contains(&"dray-sim") && !room.may_use.contains(&"dray-tidy"));
        }
        let text = manifest(
            "dray-core",
            "[dev-dependencies]\ndray-tidy = { path = \"x\" }\n",
        );
        assert_eq!(messages("dray-core", &text).len(), 1);
    }

    #[test]
    fn hidden_arrows_are_found() {
        let hidden = [
            "[dependencies]\ncore2 = { package = \"dray-runtime\", path = \"x\" }\n",
            "[target.'cfg(unix)'.dependencies]\ndray-store = { path = \"x\" }\n",
            "[build-dependencies]\ndray-wire = { path = \"x\" }\n",
            "[dependencies]\nrand = \"0.9\"\n",
            "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n",
        ];
        for rest in hidden {
            assert_eq!(
                messages("dray-log", &manifest("dray-log", rest)).len(),
                1,
                "{rest}"
            );
        }
    }

    #[test]
    fn strangers_own_versions_and_missing_lints_are_found() {
        assert_eq!(messages("dray-new", &manifest("dray-new", "")).len(), 1);
        assert_eq!(messages("dray-log", &manifest("dray-logs", "")).len(), 1);
        let own_version = manifest("dray-log", "").replace("version.workspace = true\ned", "ed");
        assert_eq!(messages("dray-log", &own_version).len(), 1);
        let no_lints = manifest("dray-log", "").replace("[lints]\nworkspace = true", "");
        assert_eq!(messages("dray-log", &no_lints).len(), 1);
        assert_eq!(messages("dray-log", "[package").len(), 1);
    }
}
