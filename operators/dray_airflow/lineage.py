"""The lineage of a task for OpenLineage: input files, output files, and number of moved bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from dray_airflow import assets
from dray_airflow.hooks.dray import DrayHook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import OutputDatasetFacet

    from dray_airflow.submission import End

    Lineage: TypeAlias = OperatorLineage[Any, Any]

__all__ = ["of_places", "of_transfer"]


def of_transfer(
    sources: Sequence[End],
    destination: End,
    task_instance: Any,  # noqa: ANN401 - whichever kind of task instance the listener has
) -> Lineage:
    """Return the lineage of a transfer.

    :param task_instance: the ended task instance, whose XCom has the result of the transfer.
        ``None`` if the task has not ended. The lineage then has no counts.
    """
    result: dict[str, Any] = {}
    if task_instance is not None:
        found = task_instance.xcom_pull(task_ids=task_instance.task_id)
        result = found if isinstance(found, dict) else {}
    return of_places([_uri(end) for end in sources], [_uri(destination)], result)


def of_places(inputs: Sequence[str], outputs: Sequence[str], result: dict[str, Any]) -> Lineage:
    """Return the lineage of paths at endpoints, by their URIs. Includes the counts of a result."""
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    def split(uri: str) -> tuple[str, str]:
        scheme, _, rest = uri.partition("://")
        host, _, path = rest.partition("/")
        return f"{scheme}://{host}", f"/{path}"

    facets: dict[str, OutputDatasetFacet] = {}
    if "bytes" in result:
        facets["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
            rowCount=None, size=result["bytes"], fileCount=result.get("files")
        )
    reads = [Dataset(namespace=space, name=name) for space, name in map(split, inputs)]
    writes = [
        OutputDataset(namespace=space, name=name, outputFacets=facets)
        for space, name in map(split, outputs)
    ]
    return OperatorLineage(inputs=reads, outputs=writes)


def _uri(end: End) -> str:
    from dray.executors import scheme_of

    if scheme_of(end.path) is not None:
        return end.path
    authority, path = end.split(DrayHook(end.conn_id).settings)
    return assets.uri(authority, path)
