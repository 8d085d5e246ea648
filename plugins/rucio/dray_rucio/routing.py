"""The class that Rucio knows as ``dray``. It selects endpoints or Globus for each transfer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dray_rucio import staging
from dray_rucio.globus import GlobusTransfertool
from dray_rucio.globus_places import is_globus
from dray_rucio.transfertool import DrayTransfertool

if TYPE_CHECKING:
    from rucio.transfertool.transfertool import TransferToolBuilder

__all__ = ["RoutingTransfertool"]


class RoutingTransfertool(DrayTransfertool):
    """Passes a hop to endpoints if both RSEs have endpoints, and otherwise to Globus.

    The external host of a request names the service that moves its file.
    """

    def __new__(cls, external_host: str, *words: Any, **named: Any) -> Any:  # noqa: ANN401
        """Create the tool for a host."""
        if is_globus(external_host):
            return GlobusTransfertool(external_host, *words, **named)
        return super().__new__(cls)

    @classmethod
    def can_perform_transfer(cls, source_rse: Any, dest_rse: Any) -> bool:  # noqa: ANN401 - Rucio's
        """Return true if both RSEs have endpoints, or both have collections."""
        return _by_endpoints(source_rse, dest_rse) or bool(
            GlobusTransfertool.can_perform_transfer(source_rse, dest_rse)
        )

    @classmethod
    def submission_builder_for_path(
        cls,
        transfer_path: list[Any],
        logger: Any = logging.log,  # noqa: ANN401 - Rucio's
    ) -> tuple[list[Any], TransferToolBuilder | None]:
        """Accept the first hop of a path.

        If the RSEs have both endpoints and collections, the endpoints move the file, because only
        endpoints promise deadlines and rates.
        """
        hop = transfer_path[0]
        # The buffer of a tape RSE needs no endpoint.
        if staging.is_stage_in(hop) or _by_endpoints(hop.src.rse, hop.dst.rse):
            return super().submission_builder_for_path(transfer_path, logger)
        return GlobusTransfertool.submission_builder_for_path(transfer_path, logger)


def _by_endpoints(source_rse: Any, dest_rse: Any) -> bool:  # noqa: ANN401 - Rucio's RseData
    return bool(DrayTransfertool.can_perform_transfer(source_rse, dest_rse))
