from __future__ import annotations

import re
from pathlib import Path

import pytest

from dray_fts.settings import SettingsError, check_endpoint_files, check_tls_files, read

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "fts.md"


def example() -> str:
    """Return the configuration file in the how-to."""
    found = re.search(r"```toml\n(listen.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def write(folder: Path, text: str) -> Path:
    path = folder / "fts.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_file_of_the_how_to(tmp_path: Path) -> None:
    settings = read(write(tmp_path, example()))
    assert (settings.host, settings.port, settings.vo) == ("0.0.0.0", 8446, "atlas")  # noqa: S104
    assert settings.sites.place("davs://se.b.example/atlas/x").path == "/data/x"
    assert settings.users["/DC=org/DC=example/CN=rucio-robot"].owner == "rucio"
    assert settings.tokens_at is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('state = "/var/lib/dray-fts"', "", "the key state is missing"),
        ("[tls]", "nonsense = 1\n[tls]", "the key nonsense is unknown"),
        ('vo = "atlas"', "vo = 1", "vo is 1; write a value of type text"),
        (":8446", "", "write ADDRESS:PORT"),
        ('endpoint = "b"', 'endpoint = "c"', "no [[endpoint]] has the name c"),
        ('path = "/data"', 'path = "data"', "write /ROOT or /ROOT/PATH"),
        ('owner = "rucio"', 'owner = "../x"', "owner is '../x'"),
        ('token_file = "/etc/dray-fts/tokens/a"', "", "endpoint a: no credential"),
        ('client_ca = "/etc/grid-security/certificates"', "", "no client could authenticate"),
        ("[tls]", "[limits]\nfiles = 0\n[tls]", "files is 0; write a number over 0"),
        ("[tls]", '[tokens]\nendpoint = "x"\n[tls]', "[tokens]: no [[endpoint]] has the name x"),
        ("[tls]", "[tls", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in example()
    with pytest.raises(SettingsError) as caught:
        read(write(tmp_path, example().replace(old, new, 1)))
    assert words in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*none: No such file"):
        read(tmp_path / "none")


MESSAGES = """
[messages]
broker = "broker.example:61614"
ca = "/etc/broker-ca.pem"
user = "fts"
password_file = "/etc/broker-password"
"""


def test_the_broker_of_the_how_to(tmp_path: Path) -> None:
    text = HOW_TO.read_text(encoding="utf-8")
    found = re.search(r"```toml\n(\[messages\].*?)```", text, re.DOTALL)
    assert found is not None
    settings = read(write(tmp_path, example() + found[1])).messages
    assert settings is not None
    assert (settings.host, settings.port, settings.user) == ("broker.example", 61614, "fts")
    complete = {"complete": "/topic/transfer.fts_monitoring_complete"}
    assert settings.destinations == complete
    more = 'destination_start = "/topic/x"\ndestination_state = "/topic/y"\n'
    settings = read(write(tmp_path, example() + found[1] + more)).messages
    assert settings is not None
    assert settings.destinations == {**complete, "start": "/topic/x", "state": "/topic/y"}
    assert read(write(tmp_path, example())).messages is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (":61614", "", "[messages]: broker is 'broker.example'; write ADDRESS:PORT"),
        ('ca = "/etc/broker-ca.pem"', "", "ca is missing"),
        ('user = "fts"', 'user = "fts"\ntls = false', "ca is set, but tls is false"),
        ('user = "fts"', 'user = "fts"\nkey = "k"', "set both certificate and key"),
        ('user = "fts"', "", "set both user and password_file"),
        (
            'user = "fts"',
            'user = "fts"\nkeep_hours = 0',
            "keep_hours is 0.0; write a number over 0",
        ),
        ('user = "fts"', 'user = "fts"\nttl = 1', "the key ttl is unknown"),
        (
            'ca = "/etc/broker-ca.pem"',
            'tls = false\ncertificate = "c"\nkey = "k"',
            "certificate needs TLS",
        ),
    ],
)
def test_mistakes_about_the_broker_are_named(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in MESSAGES
    with pytest.raises(SettingsError) as caught:
        read(write(tmp_path, example() + MESSAGES.replace(old, new, 1)))
    assert words in str(caught.value)


def test_files_that_the_service_cannot_read_are_named(tmp_path: Path) -> None:
    text = example()
    for name in ("/etc/grid-security/", "/etc/dray-fts/"):
        text = text.replace(name, f"{tmp_path}/")
    settings = read(write(tmp_path, text))
    (tmp_path / "tokens").mkdir()
    (tmp_path / "hostcert.pem").touch()
    with pytest.raises(
        SettingsError, match=r"\[tls\]: cannot read key .*hostkey.pem: No such file"
    ):
        check_tls_files(settings)
    (tmp_path / "hostkey.pem").touch()
    (tmp_path / "certificates").mkdir()
    check_tls_files(settings)
    (tmp_path / "tokens" / "a").touch()
    with pytest.raises(SettingsError, match=r"endpoint b: cannot read token_file .*tokens/b: No "):
        check_endpoint_files(settings)
    (tmp_path / "tokens" / "b").touch()
    check_endpoint_files(settings)
    (tmp_path / "certificates").rmdir()
    with pytest.raises(SettingsError, match=r"endpoint a: cannot read ca .*certificates: No such"):
        check_endpoint_files(settings)


def test_tokens_of_owners_are_not_checked(tmp_path: Path) -> None:
    text = example().replace("/etc/grid-security/certificates", str(tmp_path))
    for name in ("a", "b"):
        text = text.replace(f"tokens/{name}", f"tokens/{name}/{{owner}}")
    check_endpoint_files(read(write(tmp_path, text)))
