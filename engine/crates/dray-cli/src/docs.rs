//! Generates the command line reference (docs/reference/cli.md) from the command line definition.

use crate::args::Dray;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write as _;

const HEAD: &str = "\
# Command line reference

<!-- Written by `dray docs-cli`; a test compares them. Change engine/crates/dray-cli/src/args.rs or
docs.rs, then run `dray docs-cli > docs/reference/cli.md`. -->

";

const TAIL: &str = "\
## Meaning of SRC and DST

The meaning follows from the spelling, never from what exists at the destination.

| command | result |
|---|---|
| `dray cp a b` | the file `b` (`b` is the new name) |
| `dray cp a b/` | the file `b/a` |
| `dray cp a .` | the file `./a`: `.` and `..` are always folders |
| `dray cp -r d b` | `b/d` with everything in it |
| `dray cp -r d/ b` | the contents of `d` in `b` |
| `dray cp -r . b` | `b/NAME`, with the real name of the current folder |
| `dray cp a c b` | the files `b/a` and `b/c` |
| `dray cp a dray://host/x/b` | the file `x/b` beneath the root that `host` serves |
| `dray cp -r dray://host/x .` | `./x`, from the folder `x` beneath that root |
| `dray cp dray://a/data/x dray://b/data/y` | the file `y` at endpoint `b`, which reads it from endpoint \
    `a`; this program only watches |
| `dray cp dray://a/data/x dray://a/data/z dray://b/in/` | the files `x` and `z` in the folder `in` |

Two sources with the same name are refused. The copy of a folder into itself is refused too. Missing
folders above the destination are created. At an endpoint, the first part of a path is the name of a
root.

Sizes are numbers with K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers
of 1000). A pattern of `--include` or `--exclude` without a slash is matched against names. A
pattern with a slash is matched against the path below the destination. `*` matches within a name,
`**` also matches across folders. Paths on the command line itself are always copied.

## The report: `--json`

`dray cp --json` prints one object on standard output at the end, whatever happened, except after a
usage error.

| field | meaning |
|---|---|
| `transfer_id` | id of the transfer |
| `state` | `done`: all data is durable (exit 0). `failed`: some files failed (1), or the other \
    host is unreachable (4). `refused`: no data moved (3). `cancelled`: stopped by a signal; \
    `interrupted`: stopped by an error (both 5; both resume when run again) |
| `files` | files complete under their final names: published by this transfer, or adopted |
| `files_adopted` | part of `files`: files that already existed at the destination with the same \
    content |
| `files_updated` | adopted files whose mode or extended attributes were changed (0 in a push) |
| `files_skipped` | existing files that were kept unchanged; not counted in `files` |
| `files_failed` | the first 1000 failures: `path` (below the destination), `end`, `kind`, \
    `status`, `cause`, `remedy`, `message` |
| `files_failed_total` | number of all failures |
| `bytes` | durable bytes: of all files in `files` and `files_skipped`, and of the durable \
    objects of unfinished files |
| `objects` | `objects_sent` + `objects_resumed` |
| `objects_sent` | objects sent; several small files share an object, and an object sent twice \
    counts twice |
| `objects_resumed` | objects that were durable from an earlier run |
| `bytes_sent`, `bytes_read` | bytes of file content sent to the destination, and bytes read from \
    the source for it (in a pull: bytes received) |
| `bytes_resumed` | bytes that were durable from an earlier run |
| `bytes_adopted` | bytes of adopted files |
| `bytes_read_back` | bytes that were read back from the storage and compared, if this host is \
    the destination; holes are not read |
| `log` | form of the object log (`MECHANISM:METHOD`, with `:nosums` and `:async`), if this host is \
    the destination; else null |
| `seconds` | duration |
| `error` | the error that ended the transfer, else null: `end`, `kind`, `status`, `cause`, \
    `remedy`, `message` |
| `notices` | notices that are not failures |
| `profile` | time by stage: `source` and `sink`, each with seconds by stage |
| `bottleneck` | the stage that took the most time; null if no stage took a third of it |
| `keeps_nothing` | true if the destination was a null end; `files` and `bytes` are 0 then |

Names are bytes. In JSON they are text in [one form](urls.md#output-of-urls): `%HH` for bytes that
are not UTF-8, control characters, `%`, `?` and `#`.

## The feed: `--progress json`

JSON objects on lines of standard error. `event` is one of:

- `start`: `transfer_id`.
- `file`: one file is finished: `state` `done` with `path`, `bytes`, `crc32c`, `adler32`, or
  `failed` with the fields of `files_failed`. Adopted and skipped files have no event.
- `progress`, every second and at the end: `seconds`, `listing_done`, `files_listed`, `files_done`,
  `files_failed`, `files_remaining`, `bytes_listed`, `bytes_durable`, `bytes_remaining`,
  `bytes_read_back`,
  `bytes_per_second` (over the last ten seconds), `eta_seconds` (null if unknown),
  `silent_seconds` (seconds since bytes last moved, if 10 or more; else null),
  `streams` (data connections in use, if this host reads or tunes their number; else 0),
  `readers`, `writers` (maximum of each storage target, at the ends on this host; else 0),
  `profile` of this attempt so far, `bottleneck` of the last ten seconds.
- `notice`: `kind`, `message`.
- `note`: `message`, a line that is otherwise printed as text.

A program that reads the feed too slowly delays the transfer.

## Environment

| variable | meaning |
|---|---|
| `DRAY_ENDPOINT` | the endpoint of `transfers`, `show`, `top`, `cancel`, `stage`, \
    `tier show` and `endpoint status`: `HOST[:PORT]` |
| `DRAY_PEER_KEY` | as `--peer-key`; several as `HOST=sha256:HEX`, separated by commas |
| `DRAY_CA` | as `--ca` |
| `DRAY_TOKEN`, `BEARER_TOKEN` | the token itself, instead of `--token-file` |
| `BEARER_TOKEN_FILE`, `XDG_RUNTIME_DIR` | further places of a token: that file, then `bt_uUID` in \
    that folder, then `/tmp/bt_uUID` if you own it (WLCG Bearer Token Discovery) |
| `X509_USER_PROXY` | as `--cert` |
| `XDG_STATE_HOME`, `HOME` | folder of the key of `dray serve`, and of the numbers that \
    `dray cp --streams auto` found: `$XDG_STATE_HOME/dray`, else `~/.local/state/dray` |
| `DRAY_CHAOS_SOCKET` | set by `dray chaos`: the socket from which the process receives storage \
    faults |
";

pub(crate) fn reference() -> String {
    let mut root = Dray::command();
    root.build();
    let mut page = HEAD.to_owned();
    if let Some(after) = root.get_after_help() {
        let _ = write!(page, "```text\n{after}\n```\n\n");
    }
    for command in visible(&root) {
        section(&mut page, command, "dray");
    }
    page.push_str(TAIL);
    page
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn section(page: &mut String, command: &Command, above: &str) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string);
    let _ = write!(page, "## `{name}`\n\n{}.\n\n", about.unwrap_or_default());
    if visible(command).next().is_some() {
        for sub in visible(command) {
            section(page, sub, &name);
        }
        return;
    }
    for alias in command.get_visible_aliases() {
        let _ = write!(
            page,
            "`{above} {alias}` is a second name of this command.\n\n"
        );
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let _ = write!(page, "```text\n{usage}\n```\n\n");
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && arg.get_id() != "help")
        .collect();
    if !arguments.is_empty() {
        page.push_str("| | |\n|---|---|\n");
    }
    for arg in arguments {
        // A bar would end the cell of the table, even within code.
        let name = spelling(arg).replace('|', "\\|");
        let _ = writeln!(page, "| `{name}` | {} |", meaning(arg));
    }
    page.push('\n');
    if let Some(after) = command.get_after_help() {
        let _ = write!(page, "```text\n{after}\n```\n\n");
    }
}

fn spelling(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values = names.iter().map(|name| name.as_str()).collect::<Vec<_>>();
    let values = values.join(" ");
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    if names.is_empty() {
        return values;
    }
    let takes_value = arg.get_action().takes_values();
    match takes_value {
        true => format!("{} {values}", names.join(", ")),
        false => names.join(", "),
    }
}

fn meaning(arg: &Arg) -> String {
    let mut words = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = match arg.get_action().takes_values() {
        true => arg
            .get_possible_values()
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect(),
        false => Vec::new(),
    };
    // The list of shells is left out, because it depends on the version of `clap_complete`.
    if !choices.is_empty() && arg.get_id() != "shell" {
        let _ = write!(words, "; one of {}", choices.join(", "));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        let _ = write!(words, "; default `{}`", defaults.join(" "));
    }
    words.replace('|', "\\|").replace('\n', " ")
}
