"""Airflow assets: files and folders at endpoints, and data identifiers (DIDs) of Rucio.

- ``dray://HOST:PORT/ROOT/PATH``
- ``rucio://HOST/SCOPE/NAME``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from airflow.providers.common.compat.openlineage.facet import Dataset as OpenLineageDataset
    from airflow.sdk import Asset, Context

__all__ = [
    "announce",
    "convert_asset_to_openlineage",
    "create_asset",
    "did_uri",
    "sanitize_did_uri",
    "sanitize_uri",
    "uri",
]

DEFAULT_PORT = 4735


def uri(authority: str, path: str) -> str:
    """Return the canonical URI of a path at an endpoint.

    :param authority: ``HOST[:PORT]``.
    :param path: ``/ROOT/PATH``. A slash at its end makes no difference.
    """
    host = authority.lower()
    if host.endswith(f":{DEFAULT_PORT}"):
        host = host.removesuffix(f":{DEFAULT_PORT}")
    return f"dray://{host}/{path.strip('/')}"


def did_uri(authority: str, scope: str, name: str) -> str:
    """Return the canonical URI of a DID at a Rucio server.

    :param authority: ``HOST[:PORT]`` of the server.
    """
    from urllib.parse import quote

    # A name may contain slashes, and may begin with one. So it is one quoted segment.
    return f"rucio://{authority.lower()}/{quote(scope, safe='')}/{quote(name, safe='')}"


def create_asset(*, host: str, path: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset for a path at an endpoint.

    :param host: ``HOST[:PORT]`` of the endpoint.
    :param path: ``/ROOT/PATH``.
    :param extra: the argument ``extra`` of Airflow's ``Asset``.
    """
    from airflow.sdk import Asset

    return Asset(uri=uri(host, path), extra=extra)


def sanitize_uri(parts: SplitResult) -> SplitResult:
    """Return the canonical form of a URI. Airflow calls this for each ``dray://`` asset.

    :raises ValueError: if the URI has no host or no path.
    """
    from urllib.parse import urlsplit

    if not parts.netloc or not parts.path.strip("/"):
        raise ValueError("URI format dray:// must be dray://HOST[:PORT]/ROOT/PATH")
    return urlsplit(uri(parts.netloc, parts.path))


def sanitize_did_uri(parts: SplitResult) -> SplitResult:
    """Return the canonical form of a URI. Airflow calls this for each ``rucio://`` asset.

    :raises ValueError: if the URI has no host, scope or name.
    """
    from urllib.parse import unquote, urlsplit

    scope, _, name = parts.path.removeprefix("/").partition("/")
    if not parts.netloc or not scope or not name:
        raise ValueError("URI format rucio:// must be rucio://HOST[:PORT]/SCOPE/NAME")
    return urlsplit(did_uri(parts.netloc, unquote(scope), unquote(name)))


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> OpenLineageDataset:  # noqa: ANN401
    """Return the OpenLineage dataset of an asset."""
    from urllib.parse import urlsplit

    from airflow.providers.common.compat.openlineage.facet import Dataset

    del lineage_context
    parts = urlsplit(asset.uri)
    return Dataset(namespace=f"dray://{parts.netloc}", name=parts.path or "/")


def announce(context: Context, place: str, result: Mapping[str, Any]) -> None:
    """Add the result of the transfer to the events of the task's outlets.

    A ``dray://`` asset, or an asset with the scheme of ``place``, gets the result as ``extra``. An
    ``AssetAlias`` becomes the asset ``place``, which may be unknown when the DAG is written.

    :param place: URI of the destination, or of the Rucio data identifier.
    """
    from airflow.sdk import Asset, AssetAlias

    outlets = getattr(context.get("task"), "outlets", None) or ()
    if not outlets:
        return
    schemes = ("dray://", f"{place.partition('://')[0]}://")
    extra = {name: value for name, value in result.items() if value is not None}
    events = context["outlet_events"]
    for outlet in outlets:
        if isinstance(outlet, AssetAlias):
            events[outlet].add(Asset(uri=place), extra=extra)
        elif isinstance(outlet, Asset) and outlet.uri.startswith(schemes):
            events[outlet].extra.update(extra)
