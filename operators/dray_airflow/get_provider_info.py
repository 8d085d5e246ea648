"""The description of the provider for Airflow: a plain dictionary. This module imports nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["get_provider_info"]

NAME = "dray"


def _modules(*modules: str) -> list[dict[str, Any]]:
    return [{"integration-name": NAME, "python-modules": list(modules)}]


def _text(label: str, description: str) -> dict[str, Any]:
    return {
        "label": label,
        "schema": {"type": ["string", "null"]},
        "description": description,
    }


def _number(label: str, default: int, description: str) -> dict[str, Any]:
    return {
        "label": label,
        "schema": {"type": ["number", "null"], "default": default, "exclusiveMinimum": 0},
        "description": description,
    }


def _dray_connection() -> dict[str, Any]:
    return {
        "connection-type": "dray",
        "hook-class-name": "dray_airflow.hooks.dray.DrayHook",
        "hook-name": "dray endpoint",
        "conn-fields": {
            "pin": _text("Pin", "Fingerprint of the endpoint, sha256: and 64 digits"),
            "ca": _text(
                "Authorities",
                "File or folder with certificate authorities on the workers, instead of a pin",
            ),
            "certificate": _text("Certificate", "Client certificate on the workers (PEM)"),
            "key": _text(
                "Key",
                "Private key of the certificate, if it is in a separate file on the workers",
            ),
            "token_file": _text(
                "Token file", "File with the token on the workers, instead of a password"
            ),
            "seconds": _number("Seconds", 60, "Time limit of one call, including its retries"),
            "outage_seconds": _number(
                "Outage",
                300,
                "Seconds for which a waiting task retries an unreachable endpoint",
            ),
            "namespace": _text(
                "Namespace",
                "Name of this Airflow installation, if several use an endpoint as the same owner",
            ),
            "link": _text("Link", "URL of a page that shows a transfer; {id} stands for its id"),
        },
        "ui-field-behaviour": {
            "hidden-fields": ["login", "extra"],
            "relabeling": {"password": "Token", "schema": "Scheme"},
            "placeholders": {
                "host": "dtn.example.org",
                "port": "4735",
                "schema": "dray, https or http",
                "password": "empty: token file, certificate, or WLCG token discovery",
                "pin": "sha256:...",
            },
        },
    }


def _rucio_connection() -> dict[str, Any]:
    return {
        "connection-type": "rucio",
        "hook-class-name": "dray_airflow.hooks.rucio.RucioHook",
        "hook-name": "Rucio server",
        "conn-fields": {
            "account": _text(
                "Account", "Account in Rucio; empty: the default account of the identity"
            ),
            "auth_host": _text(
                "Authentication",
                "URL of the server that issues tokens, if it is not the server in Host",
            ),
            "auth_type": _text("Type", "userpass, x509 or x509_proxy"),
            "vo": _text("VO", "Virtual organisation, if the server has several"),
            "ca": _text(
                "Authorities", "File or folder with certificate authorities on the workers"
            ),
            "certificate": _text("Certificate", "Client certificate on the workers (PEM)"),
            "key": _text("Key", "Private key of the certificate on the workers"),
            "proxy": _text("Proxy", "X.509 proxy on the workers"),
            "seconds": _number("Seconds", 60, "Time limit of one call"),
            "outage_seconds": _number(
                "Outage", 300, "Seconds for which a waiting task retries an unreachable server"
            ),
        },
        "ui-field-behaviour": {
            "hidden-fields": ["extra"],
            "relabeling": {"login": "User", "schema": "Scheme"},
            "placeholders": {
                "host": "https://rucio.example.org",
                "schema": "https or http",
                "login": "empty: certificate or proxy",
            },
        },
    }


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description in Airflow's schema."""
    return {
        "package-name": "dray",
        "name": NAME,
        "description": "Object-level transfers of scientific data: fast, verified, resumable.",
        "integrations": [{"integration-name": NAME, "tags": ["protocol"]}],
        "operators": _modules(
            "dray_airflow.operators.admit",
            "dray_airflow.operators.rule",
            "dray_airflow.operators.stage",
            "dray_airflow.operators.transfer",
            "dray_airflow.operators.verify",
        ),
        "sensors": _modules(
            "dray_airflow.sensors.file",
            "dray_airflow.sensors.rule",
            "dray_airflow.sensors.transfer",
        ),
        "hooks": _modules("dray_airflow.hooks.dray", "dray_airflow.hooks.rucio"),
        "triggers": _modules(
            "dray_airflow.triggers.executor",
            "dray_airflow.triggers.file",
            "dray_airflow.triggers.rule",
            "dray_airflow.triggers.transfer",
        ),
        "connection-types": [
            _dray_connection(),
            _rucio_connection(),
        ],
        "extra-links": ["dray_airflow.links.transfer.DrayTransferLink"],
        "notifications": ["dray_airflow.notifications.dray.DrayNotifier"],
        "asset-uris": [
            {
                "schemes": ["dray"],
                "handler": "dray_airflow.assets.sanitize_uri",
                "factory": "dray_airflow.assets.create_asset",
                "to_openlineage_converter": "dray_airflow.assets.convert_asset_to_openlineage",
            },
            {"schemes": ["rucio"], "handler": "dray_airflow.assets.sanitize_did_uri"},
        ],
    }
