"""Receipts of real transfers, verified by programs that share no code with dray.

:func:`check` and :func:`check_chain` are written from docs/reference/receipts.md alone. They use
the package ``cryptography``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from dray.client import Place, Request, Retry, Selection
from dray.errors import DrayError
from integration.endpoint.scene import CALLS, words
from integration.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from dray.client import Client
    from dray.testing.endpoints import Endpoint

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

RECEIPT = "dray-receipt+1"
CHECKPOINT = "dray-receipt-checkpoint+1"
FILES = 30


# --- an independent verifier ----------------------------------------------------------------------


def decoded(text: str) -> bytes:
    """Decode base64url without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def check_line(line: bytes, keys: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Verify a signed line. Return its payload."""
    header, payload, signature = line.decode("ascii").split(".")
    fields = json.loads(decoded(header))
    assert fields["alg"] == "EdDSA"
    assert fields["typ"] == kind
    [key] = [key for key in keys["keys"] if key["kid"] == fields["kid"]]
    public = Ed25519PublicKey.from_public_bytes(decoded(key["x"]))
    public.verify(decoded(signature), f"{header}.{payload}".encode("ascii"))
    read = json.loads(decoded(payload))
    assert isinstance(read, dict)
    return read


def check(receipt: bytes, keys: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Verify a receipt. Return its head and its files."""
    line, _, rest = receipt.partition(b"\n")
    head = check_line(line, keys, RECEIPT)
    assert head["list"]["digest"] == "sha256:" + hashlib.sha256(rest).hexdigest()
    assert head["list"]["bytes"] == len(rest)
    assert head["list"]["lines"] == rest.count(b"\n")
    return head, [json.loads(line) for line in rest.splitlines()]


def id_of(receipt: bytes) -> str:
    """Return the id of a receipt."""
    return "sha256:" + hashlib.sha256(receipt.partition(b"\n")[0]).hexdigest()


def check_chain(folder: Path) -> list[dict[str, Any]]:
    """Verify all receipts of a folder and their chain. Return the heads."""
    keys = json.loads((folder / "keys.json").read_text())
    previous, sequence = None, 0
    heads = []
    for path in sorted(folder.glob("*.receipt")):
        receipt = path.read_bytes()
        head, _ = check(receipt, keys)
        assert (head["sequence"], head["previous"]) == (sequence + 1, previous), path
        sequence, previous = head["sequence"], id_of(receipt)
        heads.append(head)
    return heads


# --- scenes ---------------------------------------------------------------------------------------


def store(endpoint: Endpoint) -> Path:
    """Return the folder of an endpoint's receipts."""
    [key] = endpoint.folder.rglob("receipts/key.pem")
    return key.parent


def copy(client: Client, id: str, **more: Any) -> Any:  # noqa: ANN401
    """Copy the tree within an endpoint. Return the transfer with its receipt."""
    request = Request(
        "/data/tree", f"/data/{id}/", id=id, selection=Selection(recursive=True), **more
    )
    client.submit(request)
    client.wait(id, timeout_seconds=60)
    client.receipt(id, files=False)
    return client.transfer(id)


def dray(endpoint: Endpoint, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``dray receipt``."""
    return subprocess.run(
        [endpoint.program, "receipt", *arguments], capture_output=True, text=True, check=False
    )


def whole(folder: Path) -> tuple[str | Path, ...]:
    """Return the options that verify a folder with its own keys."""
    return ("--chain", folder, "--trust-folder-keys")


@pytest.fixture
def site(start_endpoint: Callable[..., Endpoint]) -> Endpoint:
    """Return an endpoint with a tree."""
    endpoint = start_endpoint("site")
    tree.make_tree(endpoint.root("tree"), FILES, seed=5)
    return endpoint


# --- tests ----------------------------------------------------------------------------------------


def test_an_independent_program_verifies_a_receipt(site: Endpoint) -> None:
    with site.client(policy=CALLS) as client:
        done = copy(client, "one")
        receipt = client.receipt("one").encode()
        keys = client.receipt_keys()
    assert done.state == "done", words(done)
    jwks = {"keys": list(keys.keys)}
    head, files = check(receipt, jwks)
    assert done.receipt == keys.last
    assert done.receipt is not None
    assert done.receipt.id == id_of(receipt)
    assert head["transfer"]["id"] == "one"
    assert head["transfer"]["state"] == "done"
    assert head["bytes"]["durable"] == done.bytes.durable
    entries = tree.describe(site.root("tree")).values()
    wanted = [entry for entry in entries if entry.kind == "file"]
    assert len(files) == len(wanted) == head["files"]["done"]
    assert sum(file["size"] for file in files) == sum(entry.size for entry in wanted)
    # The signature covers the head, and the head covers the list.
    for at in (0, len(receipt) // 3, receipt.index(b"\n") - 1, receipt.index(b"\n") + 9):
        changed = bytearray(receipt)
        changed[at] ^= 1
        with pytest.raises((AssertionError, InvalidSignature, ValueError)):
            check(bytes(changed), jwks)


def test_the_program_verifies_receipt_chain_and_files(site: Endpoint, tmp_path: Path) -> None:
    with site.client(policy=CALLS) as client:
        first = copy(client, "one")
        copy(client, "two")
        (tmp_path / "two.receipt").write_text(client.receipt("two"))
    folder, receipt = store(site), tmp_path / "two.receipt"
    heads = check_chain(folder)
    assert [head["transfer"]["id"] for head in heads] == ["one", "two"]
    head = heads[1]
    copies = site.root("two")
    unnamed = dray(site, "verify", receipt, "--chain", folder)
    assert (unnamed.returncode, unnamed.stdout) == (2, "")
    assert "--trust-folder-keys" in unnamed.stderr
    own = tmp_path / "keys.json"
    own.write_bytes((folder / "keys.json").read_bytes())
    known = dray(site, "verify", receipt, "--chain", folder, "--key", own, "--json")
    assert json.loads(known.stdout)["origin_verified"] is True
    words: list[str | Path] = ["verify", receipt, *whole(folder), "--files", copies]
    done = dray(site, *words)
    assert done.returncode == 0, done.stderr
    assert "origin: not verified" in done.stdout
    assert f"files: {head['files']['done']} files with equal size and checksum" in done.stdout
    shown = dray(site, "show", receipt)
    assert "transfer two, attempt 1, 1 session, owner " in shown.stdout
    assert "not checked" in shown.stderr
    # A changed file with an unchanged size.
    [victim] = [
        path for path in sorted(copies.rglob("*")) if path.is_file() and path.stat().st_size
    ][:1]
    data = bytearray(victim.read_bytes())
    data[0] ^= 1
    victim.write_bytes(data)
    failed = dray(site, *words)
    assert failed.returncode == 1
    assert victim.name in failed.stderr
    assert "crc32c" in failed.stderr or "adler32" in failed.stderr
    victim.unlink()
    assert "is missing" in dray(site, *words).stderr
    # The first receipt is exchanged for one with another key, and then removed.
    original = (folder / "000000000001.receipt").read_bytes()
    (folder / "000000000001.receipt").unlink()
    cut = dray(site, "verify", *whole(folder))
    assert (cut.returncode, cut.stdout) == (1, "")
    assert "missing" in cut.stderr
    (folder / "000000000001.receipt").write_bytes(original[:-1])
    truncated = dray(site, "verify", *whole(folder))
    assert truncated.returncode == 1
    assert "bytes" in truncated.stderr
    (folder / "000000000001.receipt").write_bytes(original)
    wrong = dray(site, "verify", *whole(folder), "--last", first.receipt.id)
    assert wrong.returncode == 1
    assert "newest" in wrong.stderr


def encoded(data: bytes) -> str:
    """Encode as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(line: bytes, key: Ed25519PrivateKey, kid: str, **changed: object) -> bytes:
    """Return a signed line with changed fields, signed with ``key``."""
    header, payload, _ = line.decode().split(".")
    fields = {**json.loads(decoded(header)), "kid": kid}
    head = {**json.loads(decoded(payload)), **changed}
    text = ".".join(encoded(json.dumps(each).encode()) for each in (fields, head))
    return f"{text}.{encoded(key.sign(text.encode()))}".encode()


def test_each_kind_of_tampering_ends_with_one_error(site: Endpoint, tmp_path: Path) -> None:
    with site.client(policy=CALLS) as client:
        for id in ("one", "two"):
            copy(client, id)
    site.stop()
    folder = store(site)
    first, second = (folder / f"00000000000{number}.receipt" for number in (1, 2))
    original = first.read_bytes()
    line, _, rest = original.partition(b"\n")
    files = rest.splitlines(keepends=True)
    key = load_pem_private_key((folder / "key.pem").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    [jwk] = json.loads((folder / "keys.json").read_text())["keys"]
    other = Ed25519PrivateKey.generate()
    # Somebody with another key, and somebody with the key of the endpoint.
    head = check_line(line, {"keys": [jwk]}, RECEIPT)
    stranger = signed(line, other, jwk["kid"])
    forger = signed(line, key, jwk["kid"], notices=["forged"])
    unknown = signed(line, other, "another")
    receipts = {
        "dropped": (line + b"\n" + b"".join(files[1:]), "lines"),
        "added": (original + files[0], "lines"),
        "reordered": (line + b"\n" + b"".join([*files[1:], files[0]]), "another content"),
        "truncated": (original[: len(line) // 2], "cut off"),
        "other signature": (stranger + b"\n" + rest, "signature"),
        "unknown key": (unknown + b"\n" + rest, "do not contain the key"),
        "not a receipt": (b"a\n", "three parts"),
        "empty": (b"", "cut off"),
    }
    for name, (content, cause) in receipts.items():
        path = tmp_path / "receipt"
        path.write_bytes(content)
        ended = dray(site, "verify", path, "--key", folder / "keys.json")
        assert (ended.returncode, ended.stdout) == (1, ""), name
        assert cause in ended.stderr, (name, ended.stderr)
        assert ended.stderr.count("\n") == 1, ended.stderr
    # Each field of the head, with the old signature.
    header, _, signature = line.decode().split(".")
    for field in head:
        changed = encoded(json.dumps({**head, field: "changed"}).encode())
        (tmp_path / "receipt").write_bytes(f"{header}.{changed}.{signature}\n".encode() + rest)
        ended = dray(site, "verify", tmp_path / "receipt", "--key", folder / "keys.json")
        assert ended.returncode == 1, field
        assert "signature" in ended.stderr
    # A valid signature does not help against the chain.
    first.write_bytes(forger + b"\n" + rest)
    ended = dray(site, "verify", *whole(folder))
    assert ended.returncode == 1
    assert "names another receipt" in ended.stderr
    first.write_bytes(second.read_bytes())
    assert "begins with the receipt 2" in dray(site, "verify", *whole(folder)).stderr
    first.write_bytes(original)
    assert dray(site, "verify", *whole(folder)).returncode == 0


def test_a_retired_key_signs_no_later_receipt(site: Endpoint, tmp_path: Path) -> None:
    """Somebody has the private key that the endpoint no longer uses."""
    with site.client(policy=CALLS) as client:
        copy(client, "one")
    folder = store(site)
    old = load_pem_private_key((folder / "key.pem").read_bytes(), None)
    assert isinstance(old, Ed25519PrivateKey)
    site.stop()
    (folder / "key.pem").unlink()
    site.start()
    with site.client(policy=CALLS) as client:
        copy(client, "two")
        keys = list(client.receipt_keys().keys)
    assert [key.get("dray_sequence_last") for key in keys] == [1, None]
    assert [key.get("dray_sequence_first") for key in keys] == [None, 2]
    assert dray(site, "verify", *whole(folder)).returncode == 0
    line, _, rest = (folder / "000000000002.receipt").read_bytes().partition(b"\n")
    (tmp_path / "forged").write_bytes(signed(line, old, keys[0]["kid"]) + b"\n" + rest)
    ended = dray(site, "verify", tmp_path / "forged", "--key", folder / "keys.json")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "was retired after the receipt 1" in ended.stderr


def test_every_kind_of_end_has_a_receipt(site: Endpoint) -> None:
    with site.client(policy=CALLS) as client:
        copy(client, "done")
        request = Request("/data/none", "/data/x", id="failed", retry=Retry(tries=0))
        client.submit(request)
        client.wait("failed", timeout_seconds=60)
        client.submit(
            Request(
                "/data/tree/f0",
                "/data/x",
                id="held",
                not_before=datetime(2100, 1, 1, tzinfo=timezone.utc),
            )
        )
        with pytest.raises(DrayError) as caught:
            client.receipt("held")
        assert caught.value.kind == "not_found"
        client.cancel("held")
        client.wait("held", timeout_seconds=60)
        for id in ("failed", "held"):
            client.receipt(id)
    states = [head["transfer"]["state"] for head in check_chain(store(site))]
    assert states == ["done", "failed", "cancelled"]


def test_kills_leave_whole_receipts_and_one_chain(start_endpoint: Callable[..., Endpoint]) -> None:
    """Kill the endpoint at several moments around the ends of transfers."""
    site = start_endpoint("site")
    for number in range(40):
        (site.root() / f"f{number}").write_bytes(b"x" * number)
    sent = 0
    for pause in (0.0, 0.005, 0.02, 0.05, 0.1, 0.2):
        with site.client(policy=CALLS) as client:
            for _ in range(6):
                client.submit(Request(f"/data/f{sent}", f"/data/out/{sent}", id=f"t{sent}"))
                sent += 1
            time.sleep(pause)
            site.kill()
        check_chain(store(site))
        site.start()
    with site.client(policy=CALLS) as client:
        for number in range(sent):
            assert client.wait(f"t{number}", timeout_seconds=60).state == "done"
            client.receipt(f"t{number}")
        last = client.receipt_keys().last
    heads = check_chain(store(site))
    assert last is not None
    assert last.sequence == len(heads) == sent
    assert sorted(head["transfer"]["id"] for head in heads) == sorted(
        f"t{number}" for number in range(sent)
    )


def test_a_receipt_names_the_break_and_the_bytes_sent_again(
    start_endpoint: Callable[..., Endpoint],
) -> None:
    src, dst = start_endpoint("src"), start_endpoint("dst")
    tree.make_file(src.root("large"), 24 * tree.MIB, seed=3)
    with dst.client(policy=CALLS) as client, src.client(policy=CALLS) as other:
        ticket = other.mint_ticket("t", "read", ["/data/large"], dst.key)
        place = Place(src.place("large"), ticket.ticket, ticket.key, ticket.address)
        client.submit(
            Request(
                place,
                "/data/large",
                id="t",
                rate_max=12 * tree.MIB,
                retry=Retry(tries=10, interval_seconds=1),
            )
        )
        until = time.monotonic() + 60
        while client.transfer("t").bytes.sent < 4 * tree.MIB:
            assert time.monotonic() < until
            time.sleep(0.02)
        dst.kill()
        dst.start()
        done = client.wait("t", timeout_seconds=120)
        receipt = client.receipt("t").encode()
        jwks = {"keys": list(client.receipt_keys().keys)}
    head, [file] = check(receipt, jwks)
    assert done.state == "done", words(done)
    assert head["transfer"]["tries"] == done.tries > 1
    assert [one["kind"] for one in head["breaks"]] == ["interrupted"]
    counts = head["bytes"]
    again = counts["sent"] + counts["resumed"] + counts["adopted"] - counts["durable"]
    assert counts["sent_again"] == max(0, again)
    assert file["path"] == "large"
    assert file["size"] == 24 * tree.MIB
