"""The command line. It writes results to the standard output, and progress and errors to stderr.

The exit codes have the same meanings as those of ``dray`` (docs/reference/README.md): 0 done, 1 the
task failed or some files failed, 2 a usage error, 3 refused, 4 the service is unreachable or busy,
5 interrupted (the same command with the same id continues the task).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn

import globus_sdk

from dray.client import Content, Request, Selection
from dray.errors import DrayError, DrayUsageError
from dray_globus.errors import of_sdk, usage
from dray_globus.executor import GlobusExecutor
from dray_globus.jobs import Options
from dray_globus.login import open_app, open_client
from dray_globus.settings import Settings

if TYPE_CHECKING:
    from dray.client import Transfer
    from dray_globus.report import GlobusTask

__all__ = ["main"]

PROGRAM = "python -m dray_globus"
EPILOG = """\
Environment variables:
  DRAY_GLOBUS_CLIENT_ID, DRAY_GLOBUS_CLIENT_SECRET   login of a program
  DRAY_GLOBUS_NATIVE_CLIENT_ID                       login of a user; run `login` once
  DRAY_GLOBUS_SITES                                  file with the site map for dray:// URLs
  DRAY_GLOBUS_STATE                                  folder for the records of submissions

Exit codes: 0 success; 1 the task failed or was cancelled, or some source files could not be read;
2 usage error; 3 refused; 4 the service is unreachable or busy, or the time of --timeout has passed;
5 the task failed for a temporary reason, or a signal ended the wait.

Example:
  python -m dray_globus submit --wait --id night-42 \\
      globus://COLLECTION/data/f globus://COLLECTION2/in/
"""
EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED, EXIT_AWAY, EXIT_STOPPED = 1, 2, 3, 4, 5


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the command that shows the help."""

    def error(self, message: str) -> NoReturn:
        """Print the error and end."""
        self.exit(EXIT_USAGE, f"{self.prog}: {message}; run `{self.prog} --help`\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command. Return the exit code."""
    options = _parser().parse_args(words)
    try:
        return int(options.run(options))
    except DrayUsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except DrayError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_REFUSED if error.status == "permanent" else EXIT_AWAY
    except KeyboardInterrupt:
        print(
            "stopped; a submitted task continues; `python -m dray_globus cancel ID` cancels it",
            file=sys.stderr,
        )
        return EXIT_STOPPED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Copy files between collections with the Globus Transfer service.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _add_submit(commands)
    for name, run, help in (
        ("show", _show, "print the state, the faults and the newest events of a transfer"),
        ("cancel", _cancel, "cancel a transfer, and keep the files that are copied completely"),
        ("wait", _wait, "wait for the end of a transfer, and print its progress"),
    ):
        command = commands.add_parser(name, help=help, description=f"{help.capitalize()}.")
        command.add_argument("id", metavar="ID", help="id of the transfer, or of a Globus task")
        _add_json(command)
        if name == "wait":
            _add_timeout(command)
        command.set_defaults(run=run, quiet=False)
    login = commands.add_parser(
        "login", help="log in as a user", description="Log in as a user, in a browser."
    )
    login.add_argument(
        "--data-access",
        action="append",
        default=[],
        metavar="COLLECTION",
        help="also give the consent data_access for this mapped collection (UUID); repeatable",
    )
    login.set_defaults(run=_login)
    return parser


def _add_submit(commands: Any) -> None:  # noqa: ANN401 - a private type of argparse
    submit = commands.add_parser(
        "submit",
        help="submit a transfer",
        description="Submit a transfer. A second command with the same --id finds the same task.",
    )
    submit.add_argument("sources", nargs="+", metavar="SOURCE", help="globus:// or dray:// URL")
    submit.add_argument("destination", metavar="DESTINATION", help="URL; a folder ends with /")
    submit.add_argument("--id", help="id of the transfer (default: a random id)")
    submit.add_argument("-r", "--recursive", action="store_true", help="every SOURCE is a folder")
    submit.add_argument(
        "--overwrite",
        choices=("never", "if-different", "always"),
        help="replacement of existing files (default: if-different, which compares checksums)",
    )
    submit.add_argument(
        "--checksum", metavar="ALGORITHM:HEX", help="required checksum of the only SOURCE"
    )
    submit.add_argument(
        "--size", type=int, metavar="BYTES", help="required size of the only SOURCE"
    )
    submit.add_argument(
        "--no-verify", action="store_true", help="compare no checksums after the copy"
    )
    submit.add_argument(
        "--encrypt", action="store_true", help="encrypt the data between the collections"
    )
    submit.add_argument(
        "--deadline", metavar="TIME", help="time at which the task is cancelled (RFC 3339)"
    )
    submit.add_argument("--label", help="title of the task in the Globus web app")
    submit.add_argument("--preserve-timestamp", action="store_true", help="copy modification times")
    submit.add_argument(
        "--skip-source-errors", action="store_true", help="continue if a source file cannot be read"
    )
    submit.add_argument(
        "--retry-quota-errors",
        action="store_true",
        help="if the quota is exceeded, retry instead of failing",
    )
    submit.add_argument(
        "--notify", action="store_true", help="send e-mails when the task ends or is inactive"
    )
    submit.add_argument(
        "--wait", action="store_true", help="wait for the end, and print the progress"
    )
    submit.add_argument(
        "--again", action="store_true", help="submit again even if the transfer has succeeded"
    )
    submit.add_argument("-q", "--quiet", action="store_true", help="print only errors")
    _add_json(submit)
    _add_timeout(submit)
    submit.set_defaults(run=_submit)


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _add_timeout(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="maximum time to wait; the task then continues",
    )


# --- commands -------------------------------------------------------------------------------------


def _submit(options: argparse.Namespace) -> int:
    has_content = options.checksum is not None or options.size is not None
    request = Request(
        options.sources,
        options.destination,
        id=options.id,
        selection=Selection(recursive=True) if options.recursive else None,
        content=Content(options.size, options.checksum) if has_content else None,
        overwrite=options.overwrite,
        verify=False if options.no_verify else None,
        clear_data=False if options.encrypt else None,
        deadline=_time(options.deadline),
    )
    more = Options(
        label=options.label,
        preserve_timestamp=options.preserve_timestamp,
        skip_source_errors=options.skip_source_errors,
        fail_on_quota_errors=not options.retry_quota_errors,
        notify_on_succeeded=options.notify,
        notify_on_failed=options.notify,
        notify_on_inactive=options.notify,
    )
    executor = GlobusExecutor()
    found = executor.submit(request, more, is_repeated=options.again)
    if options.wait:
        return _waited(executor, found.id, options)
    if options.json or not options.quiet:
        _print(found, executor.task(found.id), is_json=options.json)
    return 0


def _show(options: argparse.Namespace) -> int:
    executor = GlobusExecutor()
    found = executor.transfer(options.id)
    _print(found, executor.task(options.id), is_json=options.json)
    return 0


def _cancel(options: argparse.Namespace) -> int:
    executor = GlobusExecutor()
    found = executor.cancel(options.id)
    _print(found, executor.task(options.id), is_json=options.json)
    return 0


def _wait(options: argparse.Namespace) -> int:
    return _waited(GlobusExecutor(), options.id, options)


def _login(options: argparse.Namespace) -> int:
    settings = Settings.from_environment()
    access = (*settings.data_access, *options.data_access)
    settings = dataclasses.replace(settings, data_access=access)
    app = open_app(settings)
    open_client(settings, app)
    try:
        app.login(force=True)
    except globus_sdk.GlobusError as error:
        raise of_sdk(error, "log in at Globus") from None
    print("logged in", file=sys.stderr)
    return 0


def _waited(executor: GlobusExecutor, id: str, options: argparse.Namespace) -> int:
    is_terminal = sys.stderr.isatty()
    said: str | None = None

    def tell(found: Transfer) -> None:
        nonlocal said
        line = _line(found)
        if is_terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif found.state != said:
            print(line, file=sys.stderr, flush=True)
            said = found.state

    try:
        ended = executor.wait(id, options.timeout, told=None if options.quiet else tell)
    finally:
        if is_terminal and not options.quiet:
            print(file=sys.stderr)
    if options.json or not options.quiet:
        _print(ended, executor.task(id), is_json=options.json)
    elif ended.error is not None:
        print(f"error: {ended.error}", file=sys.stderr)
    if ended.state == "done":
        return 0
    is_temporary = ended.error is not None and ended.error.status != "permanent"
    return EXIT_STOPPED if is_temporary else EXIT_FAILED


# --- output ---------------------------------------------------------------------------------------


def _print(found: Transfer, task: GlobusTask, *, is_json: bool) -> None:
    if is_json:
        words = {"transfer": _plain(found), "task": {**_plain(task), "page": task.page}}
        print(json.dumps(words, ensure_ascii=False))
        return
    print(_line(found))
    print(f"task      {task.id} ({task.page})")
    if task.deadline is not None:
        print(f"deadline  {task.deadline.isoformat(timespec='seconds')}")
    if task.faults:
        print(f"faults    {task.faults}, retried by the service")
    if found.error is not None:
        print(f"error     {found.error}")
    for event in task.events[:5]:
        print(f"event     {event.at} {event.code} {event.text}".rstrip())


def _line(found: Transfer) -> str:
    files = f"{found.files.done} of {found.files.listed} files"
    words = [f"{found.id}: {found.state}", files, f"{found.bytes.sent} bytes sent"]
    if found.rate.now:
        words.append(f"{found.rate.now / (1 << 20):.1f} MiB/s")
    if found.files.skipped:
        words.append(f"{found.files.skipped} existing files kept")
    if found.error is not None and not found.is_terminal:
        words.append(found.error.message)
    return ", ".join(words)


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a dataclass
    """Convert a value to JSON's types. An error becomes its fields."""
    if isinstance(value, DrayError):
        names = ("kind", "status", "end", "message", "remedy")
        return {name: getattr(value, name) for name in names}
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="seconds")
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise usage(
            "use --deadline", f"{text!r} is not a time", "write it as 2026-12-01T08:00:00Z"
        ) from None
