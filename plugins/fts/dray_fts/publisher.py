"""The thread that publishes the stored messages at a STOMP broker.

A message is deleted when the broker has confirmed it with a receipt. So a broker that is down, or a
kill of the service, loses no message. A message may be published twice.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import stomp

from dray_fts.settings import SettingsError, expect_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dray_fts.changes import Row
    from dray_fts.database import Database
    from dray_fts.settings import Messages

__all__ = ["Publisher"]

BATCH = 200
CALL_SECONDS = 20.0
"""Time for a connection, and for the receipts of a batch. Also the time after which the library
closes a connection without traffic."""
IDLE_SECONDS = 1.0
REFUSAL_SECONDS = 2.0
FAILED_TEXT = "the broker closed the connection before it answered the login"
PAUSE_FIRST = 1.0
PAUSE_MAX = 60.0
DROP_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


class _RefusedError(ConnectionError):
    """The broker accepted the login, but refused again a message that it had refused before."""


class _Events:
    """Receives the frames of one connection. The library calls the methods in its own thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_connected = False
        self._receipts: set[str] = set()
        self._fault: str | None = None
        self.answer: str | None = None

    def on_connected(self, frame: Any) -> None:  # noqa: ANN401 - stomp's Frame
        """Note that the broker has accepted the login."""
        del frame
        with self._changed:
            self._is_connected = True
            self._changed.notify_all()

    def on_receipt(self, frame: Any) -> None:  # noqa: ANN401 - stomp's Frame
        """Note that the broker has stored a message."""
        with self._changed:
            self._receipts.add(frame.headers["receipt-id"])
            self._changed.notify_all()

    def on_error(self, frame: Any) -> None:  # noqa: ANN401 - stomp's Frame
        """Note that the broker refuses a frame. The broker then closes the connection."""
        texts = (frame.headers.get("message"), (frame.body or "").strip("\x00\n "))
        self.answer = "the broker answered: " + ": ".join(text for text in texts if text)
        self._end(self.answer)

    def on_disconnected(self) -> None:
        """Note that the broker has closed the connection."""
        self._end("the broker closed the connection")

    def _end(self, fault: str) -> None:
        with self._changed:
            # The first fault is the cause of the others.
            self._fault = self._fault or fault
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """True if the connection cannot be used any more."""
        return self._fault is not None

    def await_connected(self) -> None:
        """Wait until the broker has accepted the login.

        :raises ConnectionError: if the broker refuses the login or does not answer.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_connected or self._fault, CALL_SECONDS)
            if not self._is_connected:
                late = f"the broker did not answer within {CALL_SECONDS:g} s"
                raise ConnectionError(self._fault if done else late)

    def await_receipts(self, ids: Sequence[str]) -> tuple[set[str], str | None]:
        """Wait for receipts. Return those that have arrived, and the fault if some are missing."""
        wanted = set(ids)
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._receipts >= wanted or self._fault, CALL_SECONDS
            )
            found = self._receipts & wanted
            self._receipts -= wanted
            if found == wanted:
                return found, None
            late = f"the broker sent no receipt within {CALL_SECONDS:g} s"
            return found, self._fault if done else late


class Publisher:
    """Publishes the messages in their order, and tries again while the broker is down."""

    def __init__(self, database: Database, settings: Messages) -> None:
        """Check the files of the configuration. No connection is made.

        :raises SettingsError: if a file cannot be read or used.
        """
        self._database, self._settings = database, settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dray-fts-messages", daemon=True)
        self._open: tuple[Any, _Events] | None = None
        self._drop_at = self._retry_at = 0.0
        # The library logs each fault too, without its cause.
        logging.getLogger("stomp.py").setLevel(logging.CRITICAL)
        self.check(settings)

    @staticmethod
    def check(settings: Messages) -> None:
        """Read the files that the configuration names.

        :raises SettingsError: if a file cannot be read or used.
        """
        for key in ("ca", "certificate", "key", "password_file"):
            expect_readable("[messages]", key, getattr(settings, key))
        try:
            _password(settings)
            if settings.ca is not None:
                _context(settings)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise SettingsError(f"[messages]: cannot use a file: {error}") from error

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Messages that are not published stay in the database."""
        self._stop.set()
        self._thread.join()
        self._close()

    def _run(self) -> None:
        pause, failures = 0.0, 0
        while not self._stop.wait(pause):
            try:
                self._drop()
                rows = self._next()
                if rows:
                    self._publish(rows)
                pause, failures = 0.0 if rows else IDLE_SECONDS, 0
            except Exception as error:
                self._close()
                failures += 1
                later = pause = min(PAUSE_FIRST * 2 ** min(failures - 1, 8), PAUSE_MAX)
                if isinstance(error, _RefusedError):
                    later = max(self._retry_at - time.monotonic(), 0.0)
                    pause = IDLE_SECONDS
                where = f"{self._settings.host}:{self._settings.port}"
                _LOG.warning(
                    "cannot publish messages at the broker %s: %s; next try in %.0f s. The "
                    "messages are kept",
                    where,
                    error,
                    later,
                )

    def _next(self) -> Sequence[Row]:
        """Return the messages to publish now. A message that was refused waits, but not others."""
        rows = self._database.messages(BATCH)
        is_early = bool(rows) and rows[0]["tries"] and time.monotonic() < self._retry_at
        return [] if is_early else rows

    def _drop(self) -> None:
        if time.monotonic() < self._drop_at:
            return
        self._drop_at = time.monotonic() + DROP_SECONDS
        count = self._database.drop_messages(self._settings.keep_hours * 3600)
        if count:
            hours = self._settings.keep_hours
            _LOG.error("%d messages were not published within %g h and are dropped", count, hours)

    def _publish(self, rows: Sequence[Row]) -> None:
        """Send messages, and wait for their receipts.

        :raises ConnectionError: if the broker does not confirm all messages.
        """
        connection, events = self._connected()
        sent, fault = [], None
        for row in rows:
            receipt = str(row["message_id"])
            try:
                connection.send(
                    self._settings.destinations[row["kind"]],
                    row["body"],
                    "application/json",
                    {"persistent": "true", "receipt": receipt, "vo": row["vo_name"]},
                )
            except Exception as error:
                # The broker may have confirmed earlier messages, or may have named the fault.
                fault = str(error)
                break
            sent.append(receipt)
        found, missing = events.await_receipts(sent)
        failed = [row["message_id"] for row in rows if str(row["message_id"]) not in found]
        self._database.tried([int(each) for each in found], failed)
        if not failed:
            return
        cause, tries = events.answer or missing or fault, rows[0]["tries"]
        if tries == 0:
            raise ConnectionError(cause)
        self._retry_at = time.monotonic() + min(PAUSE_FIRST * 2 ** min(tries, 8), PAUSE_MAX)
        raise _RefusedError(cause)

    def _connected(self) -> tuple[Any, _Events]:
        if self._open is not None and not self._open[1].is_over:
            return self._open
        self._close()
        settings = self._settings
        # The library tries without end to connect with a file that does not exist.
        self.check(settings)
        place = (settings.host, settings.port)
        connection = stomp.Connection12(
            [place],
            prefer_localhost=False,
            try_loopback_connect=False,
            reconnect_attempts_max=1,
            timeout=CALL_SECONDS,
            vhost=settings.virtual_host,
        )
        if settings.ca is not None:
            connection.set_ssl(
                [place],
                key_file=_text(settings.key),
                cert_file=_text(settings.certificate),
                ca_certs=str(settings.ca),
            )
        events = _Events()
        connection.set_listener("dray-fts", events)
        self._open = connection, events
        password = _password(settings)
        try:
            connection.connect(settings.user, password)
            events.await_connected()
        except (stomp.exception.StompException, OSError) as error:
            # The library does not report why a connection fails.
            raise ConnectionError(events.answer or _why(settings) or FAILED_TEXT) from error
        return self._open

    def _close(self) -> None:
        if self._open is None:
            return
        connection, _ = self._open
        self._open = None
        # The library's `stop` waits for the end of a read, up to CALL_SECONDS.
        with contextlib.suppress(Exception):
            connection.transport.running = False
            connection.transport.socket.shutdown(socket.SHUT_RDWR)


def _why(settings: Messages) -> str | None:
    """Connect once more without the library. Return the error, or ``None`` after a success."""
    try:
        with socket.create_connection((settings.host, settings.port), CALL_SECONDS) as plain:
            if settings.ca is not None:
                context = _context(settings)
                with context.wrap_socket(plain, server_hostname=settings.host) as secure:
                    # With TLS 1.3, the broker refuses a certificate after the handshake.
                    secure.settimeout(REFUSAL_SECONDS)
                    with contextlib.suppress(TimeoutError):
                        secure.recv(1)
    except OSError as error:
        return f"cannot connect: {error}"
    return None


def _context(settings: Messages) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca)
    if settings.certificate is not None:
        context.load_cert_chain(settings.certificate, settings.key)
    return context


def _password(settings: Messages) -> str | None:
    """Return the password. The file is read for each connection, so that it can be changed."""
    if settings.password_file is None:
        return None
    return settings.password_file.read_text(encoding="utf-8").strip()


def _text(path: object) -> str | None:
    return None if path is None else str(path)
