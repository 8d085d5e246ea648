"""The configuration files of a Rucio: sections with keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

Settings: TypeAlias = Mapping[str, Mapping[str, str]]
#: Identity of the account ``root``.
USER = "ddmlab"


def usual(folder: Path, log: Path, url: str, database: str, password: str) -> Settings:
    """Return the settings of all processes of a Rucio.

    :param folder: folder with ``alembic.ini``, and with the token of the client.
    :param log: folder for the logs of the daemons.
    :param url: URL of the REST server.
    :param database: URL of the database.
    :param password: password of :data:`USER`.
    """
    return {
        "common": {"logdir": str(log), "loglevel": "INFO"},
        "client": {
            "rucio_host": url,
            "auth_host": url,
            "auth_type": "userpass",
            "username": USER,
            "password": password,
            "account": "root",
            "request_retries": "3",
            # By default, all processes of a user share one token file. Concurrent tests would
            # overwrite it.
            "auth_token_file_path": str(folder / "token"),
        },
        "database": {"default": database, "pool_reset_on_return": "rollback", "echo": "0"},
        "bootstrap": {
            "userpass_identity": USER,
            "userpass_pwd": password,
            "userpass_email": "root@example.org",
        },
        "monitor": {"enable_metrics": "False"},
        "core": {"default_mail_from": "root@example.org"},
        "conveyor": {"scheme": "file"},
        "policy": {
            "permission": "generic",
            "schema": "generic",
            "lfn2pfn_algorithm_default": "hash",
        },
        "alembic": {"cfg": str(folder / "alembic.ini")},
    }


def merged(settings: Settings, more: Settings) -> Settings:
    """Return settings in which those of ``more`` override those of the same section and key."""
    names = sorted({*settings, *more})
    return {name: {**settings.get(name, {}), **more.get(name, {})} for name in names}


def write(path: Path, settings: Settings) -> None:
    """Write a configuration file."""
    parser = ConfigParser(interpolation=None)
    parser.read_dict(settings)
    with path.open("w", encoding="utf-8") as out:
        parser.write(out)


def write_alembic(folder: Path, database: str, package: Path) -> None:
    """Write ``alembic.ini``, the configuration of Rucio's database migration.

    :param package: folder of the Python package ``rucio``.
    """
    # The database migration of Rucio requires the sections about logging.
    handler = {"class": "StreamHandler", "args": "(sys.stderr,)", "formatter": "plain"}
    alembic = {
        "alembic": {
            "script_location": str(package / "db/sqla/migrate_repo"),
            "sqlalchemy.url": database,
        },
        "loggers": {"keys": "root"},
        "handlers": {"keys": "console"},
        "formatters": {"keys": "plain"},
        "logger_root": {"level": "WARN", "handlers": "console", "qualname": ""},
        "handler_console": handler,
        "formatter_plain": {"format": "%(message)s"},
    }
    write(folder / "alembic.ini", alembic)
