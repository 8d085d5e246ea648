"""The Ceph clusters of the tests store data, listen on the loopback only, and check users."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from integration.storage.ceph import Cluster

pytestmark = [pytest.mark.full, pytest.mark.server]


def test_striped_file_of_the_stock_program_returns(ceph: Cluster, tmp_path: Path) -> None:
    ceph.make_pool("stock")
    data = bytes(range(256)) * 40960
    (tmp_path / "in").write_bytes(data)
    put = ceph.rados("-p", "stock", "--striper", "put", "file", tmp_path / "in")
    assert put.returncode == 0, put.stderr
    assert ceph.rados("-p", "stock", "--striper", "get", "file", tmp_path / "out").returncode == 0
    assert (tmp_path / "out").read_bytes() == data
    names = [f"file.{number:016x}" for number in range(3)]
    assert ceph.names("stock") == names
    attributes = ceph.attributes("stock", names[0])
    assert attributes["striper.size"] == str(len(data))
    assert attributes["striper.layout.object_size"] == str(4 << 20)


def test_listens_only_on_the_loopback(ceph: Cluster) -> None:
    pids = ceph.pids()
    assert len(pids) == 5
    shown = subprocess.run(["ss", "-ltnpH"], check=True, capture_output=True, text=True).stdout
    ours = [line for line in shown.splitlines() if any(f"pid={pid}," in line for pid in pids)]
    assert len(ours) >= 13
    assert {line.split()[3].rpartition(":")[0] for line in ours} == {"127.0.0.1"}


def test_user_with_rights_on_one_pool(ceph_with_keys: Cluster, tmp_path: Path) -> None:
    for pool in ("open", "closed"):
        ceph_with_keys.make_pool(pool)
    key = ceph_with_keys.make_user("client.some", "mon allow r", "osd allow rwx pool=open")
    (tmp_path / "in").write_bytes(b"data")
    user = ["--id", "some", "--keyring", str(key)]
    put = ceph_with_keys.rados(*user, "-p", "open", "put", "object", tmp_path / "in")
    assert put.returncode == 0, put.stderr
    refused = ceph_with_keys.rados(*user, "-p", "closed", "put", "object", tmp_path / "in")
    assert refused.returncode != 0
    assert "Operation not permitted" in refused.stderr
    nameless = ceph_with_keys.rados("--id", "nobody", "-p", "open", "ls")
    assert nameless.returncode != 0


@pytest.mark.slow
def test_data_survives_a_restart_of_an_osd(ceph_on_disk: Cluster) -> None:
    ceph_on_disk.make_pool("kept")
    for number in range(30):
        ceph_on_disk.write("kept", f"object{number}", str(number))
    ceph_on_disk.kill("osd.1")
    ceph_on_disk.begin_osd(1)
    ceph_on_disk.await_up(3)
    read = [ceph_on_disk.read("kept", f"object{number}", 10) for number in range(30)]
    assert read == [str(number) for number in range(30)]
