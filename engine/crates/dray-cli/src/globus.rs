//! `dray cp` with a `globus://` URL. The process becomes `python3 -m dray_globus submit`, which
//! submits the copy to the Globus Transfer service.

use crate::args::{Cp, Dray, Overwrite};
use crate::exit::{Exit, Stop, usage};
use clap::CommandFactory;
use clap::parser::ValueSource;
use dray_core::{End, Error, ErrorKind, Result};
use dray_open::prepare;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SCHEME: &[u8] = b"globus://";

/// Variable that keeps the working folder out of Python's search for modules. Otherwise a file in
/// this folder with the name of a module, such as `json.py`, would be executed. Python 3.10 ignores
/// the variable.
const SAFE_PATH: (&str, &str) = ("PYTHONSAFEPATH", "1");

/// Arguments and options of `dray cp` that this module passes to `dray_globus`.
const PASSED: [&str; 9] = [
    "paths",
    "recursive",
    "overwrite",
    "checksum",
    "deadline",
    "detach",
    "transfer_id",
    "json",
    "quiet",
];

/// Returns true if a path of a command is the URL of a Globus collection.
pub(crate) fn is_meant(paths: &[OsString]) -> bool {
    let is_globus = |path: &OsString| {
        let start = path.as_encoded_bytes().get(..SCHEME.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
    };
    paths.iter().any(is_globus)
}

/// Replaces this process by the program that submits the copy. Returns only if this fails.
pub(crate) fn run(cp: &Cp) -> Result<Exit, Stop> {
    refuse_other_options(std::env::args_os())?;
    let python = python()?;
    let error = Command::new(&python)
        .args(["-m", "dray_globus", "submit"])
        .args(options(cp)?)
        .arg("--")
        .args(paths(cp))
        .env(SAFE_PATH.0, SAFE_PATH.1)
        .exec();
    Err(cannot_start(&python, &error).into())
}

/// Returns the sources and the destination. With `-r`, the destination is a folder, so this
/// function adds the slash that marks a folder for `dray_globus`.
fn paths(cp: &Cp) -> Vec<OsString> {
    let mut paths = cp.what.paths.clone();
    if let Some(destination) = paths.last_mut().filter(|_| cp.what.recursive)
        && !destination.as_encoded_bytes().ends_with(b"/")
    {
        destination.push("/");
    }
    paths
}

/// Returns the error for a dry run with a `globus://` URL.
pub(crate) fn plan_error() -> Error {
    usage(
        "dray plan and --dry-run do not support globus:// URLs, because only Globus can list a \
         collection",
        "omit --dry-run, or use a dray:// URL of the same folder",
    )
}

/// Refuses the options of `dray cp` in `words` that `dray_globus submit` does not have.
fn refuse_other_options(words: impl Iterator<Item = OsString>) -> Result<(), Stop> {
    let command = Dray::command();
    let options: Vec<(String, String)> = command
        .find_subcommand("cp")
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .filter_map(|each| Some((each.get_id().to_string(), each.get_long()?.to_owned())))
        .filter(|(id, _)| !PASSED.contains(&id.as_str()))
        .collect();
    let Ok(given) = command.try_get_matches_from(words) else {
        return Ok(()); // Cannot happen, because `main` has parsed the same words.
    };
    let Some(given) = given.subcommand_matches("cp") else {
        return Ok(());
    };
    let is_given = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    match options.into_iter().find(|(id, _)| is_given(id)) {
        Some((_, name)) => Err(usage(
            format!("--{name} does not work with a globus:// URL, because Globus moves the data"),
            format!("omit --{name}; `python3 -m dray_globus submit --help` lists more options"),
        )
        .into()),
        None => Ok(()),
    }
}

/// Returns the options of `dray_globus submit`.
fn options(cp: &Cp) -> Result<Vec<OsString>> {
    let overwrite = match cp.what.overwrite {
        Overwrite::Never => "never",
        Overwrite::IfDifferent => "if-different",
        Overwrite::Always => "always",
    };
    let mut options = vec!["--overwrite".to_owned(), overwrite.to_owned()];
    match &cp.transfer_id {
        Some(id) => options.extend(["--id".to_owned(), id.to_string()]),
        None => options.extend(["--id".to_owned(), command_id(cp)?, "--again".to_owned()]),
    }
    for (name, value) in [
        ("--checksum", cp.what.checksum.map(|sum| sum.to_string())),
        ("--deadline", cp.owed.deadline.map(|time| time.to_string())),
    ] {
        options.extend(value.into_iter().flat_map(|text| [name.to_owned(), text]));
    }
    for (name, is_set) in [
        ("--recursive", cp.what.recursive),
        ("--wait", !cp.detach),
        ("--json", cp.what.json),
        ("--quiet", cp.say.quiet),
    ] {
        options.extend(is_set.then(|| name.to_owned()));
    }
    Ok(options.into_iter().map(OsString::from).collect())
}

/// Returns an id that is always the same for the same command of the same user on this host. So a
/// second run finds the task of the first run.
fn command_id(cp: &Cp) -> Result<String> {
    let user = rustix::process::geteuid().as_raw();
    let mut words = format!("globus\0{user}\0{}", cp.what.recursive).into_bytes();
    for path in &cp.what.paths {
        words.push(0);
        words.extend_from_slice(path.as_encoded_bytes());
    }
    Ok(prepare::id_of(&words)?.to_string())
}

/// Returns the Python interpreter that has the package `dray_globus`: the one beside this program,
/// for example in a virtual environment, or the one in `PATH`.
fn python() -> Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .map(|program| program.with_file_name("python3"))
        .filter(|python| python.exists());
    for python in beside.into_iter().chain([PathBuf::from("python3")]) {
        let has_package = Command::new(&python)
            .args(["-c", "import dray_globus, globus_sdk"])
            .env(SAFE_PATH.0, SAFE_PATH.1)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match has_package {
            Ok(ended) if ended.success() => return Ok(python),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(cannot_start(&python, &error));
            }
            _ => {}
        }
    }
    Err(
        Error::new(ErrorKind::Unsupported, End::Here, "copy with Globus")
            .cause("no Python interpreter with the package dray_globus was found")
            .remedy("install the wheel of dray with the extra: pip install 'WHEEL[globus]'"),
    )
}

fn cannot_start(program: impl AsRef<OsStr>, error: &io::Error) -> Error {
    Error::new(ErrorKind::Internal, End::Here, "copy with Globus")
        .cause(format!(
            "cannot start {}: {error}",
            program.as_ref().display()
        ))
        .remedy("check the installation of Python")
}

#[cfg(test)]
mod tests {
    use super::{PASSED, is_meant, options, refuse_other_options};
    use crate::args::{Command, Cp, Dray};
    use clap::{CommandFactory, Parser};
    use std::ffi::OsString;

    const FROM: &str = "globus://6c54cade-bde5-45c1-bdea-f4bd71dba2cc/f";

    fn cp(words: &[&str]) -> Cp {
        let words = ["dray", "cp"].iter().chain(words);
        match Dray::try_parse_from(words).map(|dray| dray.command) {
            Ok(Command::Cp(cp)) => *cp,
            other => panic!("{other:?}"),
        }
    }

    fn is_refused(words: &[&str]) -> Option<String> {
        let words = ["dray", "cp", FROM, "/d/"].iter().chain(words);
        let refused = refuse_other_options(words.map(OsString::from));
        refused.err().map(|stop| stop.error.to_string())
    }

    #[test]
    fn a_url_of_a_collection_is_recognized() {
        for (path, expected) in [
            (FROM, true),
            ("GLOBUS://x/y", true),
            ("globus:/x", false),
            ("./globus://x", false),
            ("globus", false),
        ] {
            assert_eq!(is_meant(&["/a".into(), path.into()]), expected, "{path}");
        }
    }

    #[test]
    fn each_passed_argument_exists() {
        let command = Dray::command();
        let cp = command.find_subcommand("cp").expect("cp exists");
        for name in PASSED {
            assert!(
                cp.get_arguments().any(|each| each.get_id() == name),
                "{name}"
            );
        }
    }

    #[test]
    fn options_of_the_engine_are_refused_by_name() {
        assert_eq!(is_refused(&["-r", "--detach", "--json", "-q"]), None);
        for option in ["--threads=4", "--verify", "--range=0:1", "--progress=json"] {
            let message = is_refused(&[option]).expect("refused");
            let name = option.split('=').next().unwrap_or_default();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn options_are_translated() {
        let words = [
            FROM,
            "dray://h/d/",
            "--checksum",
            "adler32:00620062",
            "-q",
            "-r",
        ];
        let found = options(&cp(&words)).expect("options");
        let id = found[3].clone();
        let expected = "--overwrite if-different --id ID --again --checksum adler32:00620062 \
                        --recursive --wait --quiet";
        let expected: Vec<&str> = expected.split_whitespace().collect();
        let shown: Vec<_> = found
            .iter()
            .map(|word| word.to_str().unwrap_or(""))
            .collect();
        let shown: Vec<_> = shown
            .iter()
            .map(|&w| if w == id { "ID" } else { w })
            .collect();
        assert_eq!(shown, expected);
        let more = [
            FROM,
            "dray://h/d/",
            "--transfer-id",
            "x",
            "--detach",
            "--overwrite",
            "never",
        ];
        let found = options(&cp(&more)).expect("options");
        assert_eq!(
            found.join(OsString::from(" ").as_os_str()),
            "--overwrite never --id x"
        );
    }

    #[test]
    fn the_same_command_has_the_same_id() {
        let id = |words: &[&str]| options(&cp(words)).expect("options")[3].clone();
        assert_eq!(id(&[FROM, "dray://h/d"]), id(&["-q", FROM, "dray://h/d"]));
        assert_ne!(id(&[FROM, "dray://h/d"]), id(&[FROM, "dray://h/e"]));
        assert_ne!(id(&[FROM, "dray://h/d"]), id(&["-r", FROM, "dray://h/d"]));
    }
}
