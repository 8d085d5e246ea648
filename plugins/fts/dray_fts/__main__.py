"""The program ``dray-fts``."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sqlite3
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dray_fts.settings import SettingsError, check_endpoint_files, check_tls_files, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main"]

CONNECTIONS_MAX = 512
HEAD_BYTES_MAX = 256 << 10
"""Maximum size of the head of a request. Rucio asks for up to 1000 jobs in one URL."""
_EPILOG = """\
The configuration file names the certificate of the service, the endpoints, and the prefixes of URLs
that belong to each endpoint. docs/how-to/fts.md shows a complete file.

Exit codes: 0 after SIGTERM or SIGINT, or if --check finds no error; 1 if the service cannot start,
or if --check finds an error; 2 for wrong arguments.
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run the service until a signal ends it."""
    parser = argparse.ArgumentParser(
        prog="dray-fts",
        description="Accept jobs from clients of FTS and from Rucio by the REST API of FTS3, and\n"
        "submit their transfers to dray endpoints.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", metavar="FILE", type=Path, required=True, help="the configuration file (TOML)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the configuration file and the files that it names, call no endpoint, and exit",
    )
    options = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # The client of endpoints logs each call.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        return _run(options.config, is_check=options.check)
    except ImportError as error:
        print(f"dray-fts: {error}; install dray with the extra fts", file=sys.stderr)
    except SettingsError as error:
        print(f"dray-fts: {error}", file=sys.stderr)
    except (ssl.SSLError, sqlite3.Error, OSError) as error:
        print(f"dray-fts: cannot start: {error}", file=sys.stderr)
    return 1


def _run(path: Path, *, is_check: bool) -> int:
    settings = read(path)
    import uvicorn

    from dray_fts import tls
    from dray_fts.revoked import Revocations
    from dray_fts.service import Service

    check_tls_files(settings)
    context = tls.context(settings)
    try:
        Revocations(settings.crls)
    except ValueError as error:
        raise SettingsError(f"[tls]: crls: {error}") from error
    if settings.messages is not None:
        try:
            from dray_fts.publisher import Publisher
        except ImportError as error:
            text = f"[messages]: {error}; install dray with the extra fts-messages"
            raise SettingsError(text) from error
        Publisher.check(settings.messages)
    if is_check:
        check_endpoint_files(settings)
        print(f"{path}: {len(settings.endpoints)} endpoints, {len(settings.users)} users")
        return 0
    service = Service(settings)
    config = uvicorn.Config(
        service.app(),
        host=settings.host,
        port=settings.port,
        http=tls.PeerProtocol,
        ssl_context_factory=lambda _config, _usual: context,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )

    class Server(uvicorn.Server):
        """Ends with exit code 0 after a signal. uvicorn's own server raises the signal again."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Stop the server when one of the signals arrives."""
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.handle_exit)
            yield

    server = Server(config)
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
