from __future__ import annotations

import shutil
import socket
import time
from typing import TYPE_CHECKING

import certifi
import pytest

from dray_fts.database import Database
from dray_fts.settings import Messages

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("stomp")


def test_a_file_that_is_removed_later_does_not_stop_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from dray_fts.publisher import Publisher

    ca = tmp_path / "ca.pem"
    shutil.copy(certifi.where(), ca)
    database = Database(tmp_path / "fts.db", "fts.example")
    with database._change() as db:
        text = "INSERT INTO message (created, vo_name, body) VALUES (?, 'dteam', '{}')"
        db.execute(text, (time.time(),))
    with socket.create_server(("127.0.0.1", 0)) as broker:
        settings = Messages(
            host="127.0.0.1",
            port=broker.getsockname()[1],
            destination="/queue/x",
            ca=ca,
            certificate=None,
            key=None,
            user=None,
            password_file=None,
            virtual_host=None,
            keep_hours=1.0,
        )
        publisher = Publisher(database, settings)
        ca.unlink()
        publisher.start()
        until = time.monotonic() + 10
        while "cannot use a file" not in caplog.text and time.monotonic() < until:
            time.sleep(0.05)
        assert "cannot use a file" in caplog.text
        publisher.stop()
    assert len(database.messages(10)) == 1
    database.close()
