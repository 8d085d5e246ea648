from __future__ import annotations

import contextlib
import re
import shutil
import socket
import threading
import time
from typing import TYPE_CHECKING

import certifi
import pytest

from dray_fts.database import Database
from dray_fts.settings import Messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("stomp")
WAIT_SECONDS = 10.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "fts.db", "fts.example", ["complete"])
    yield made
    made.close()


def put(database: Database, body: str) -> None:
    """Store a message."""
    with database._change() as db:
        text = "INSERT INTO message (created, vo_name, body) VALUES (?, 'dteam', ?)"
        db.execute(text, (time.time(), body))


def settings(broker: socket.socket, ca: Path | None = None) -> Messages:
    return Messages(
        host="127.0.0.1",
        port=broker.getsockname()[1],
        destinations={"complete": "/queue/x"},
        ca=ca,
        certificate=None,
        key=None,
        user=None,
        password_file=None,
        virtual_host=None,
        keep_hours=1.0,
    )


def serve(broker: socket.socket) -> None:
    """Be a broker that refuses messages with the body ``bad``, and then closes the connection."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = broker.accept()
            with connection, contextlib.suppress(OSError):
                talk(connection)


def talk(connection: socket.socket) -> None:
    kept = b""
    while data := connection.recv(65536):
        *frames, kept = (kept + data).split(b"\0")
        for frame in frames:
            if b"CONNECT" in frame or b"STOMP" in frame:
                connection.sendall(b"CONNECTED\nversion:1.2\n\n\0\n")
            elif frame.endswith(b"bad"):
                connection.sendall(b"ERROR\nmessage:refused\n\n\0\n")
                return
            elif found := re.search(rb"receipt:(\d+)", frame):
                connection.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % found[1])


def test_a_file_that_is_removed_later_does_not_stop_the_thread(
    tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    from dray_fts.publisher import Publisher

    ca = tmp_path / "ca.pem"
    shutil.copy(certifi.where(), ca)
    put(database, "{}")
    with socket.create_server(("127.0.0.1", 0)) as broker:
        publisher = Publisher(database, settings(broker, ca))
        ca.unlink()
        publisher.start()
        until = time.monotonic() + WAIT_SECONDS
        while "cannot read ca" not in caplog.text and time.monotonic() < until:
            time.sleep(0.05)
        assert "cannot read ca" in caplog.text
        publisher.stop()
    assert len(database.messages(10)) == 1


def test_new_messages_do_not_wait_for_a_refused_message(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dray_fts import publisher

    # The pauses after failures are longer than this test.
    monkeypatch.setattr(publisher, "PAUSE_MAX", 600.0)
    put(database, "bad")
    with database._change() as db:
        db.execute("UPDATE message SET tries = 8")
    with socket.create_server(("127.0.0.1", 0)) as broker:
        threading.Thread(target=serve, args=(broker,), daemon=True).start()
        made = publisher.Publisher(database, settings(broker))
        made.start()
        until = time.monotonic() + WAIT_SECONDS
        while database.messages(1)[0]["tries"] == 8:
            assert time.monotonic() < until
            time.sleep(0.05)
        for number in range(4):
            put(database, f"good{number}")
            while [row["body"] for row in database.messages(10)] != ["bad"]:
                assert time.monotonic() < until
                time.sleep(0.05)
        # The refused message was not tried again meanwhile.
        assert [row["tries"] for row in database.messages(10)] == [9]
        made.stop()
        broker.shutdown(socket.SHUT_RDWR)
