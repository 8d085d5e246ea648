"""The link from a task's page to its transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = ["DrayTransferLink"]


class DrayTransferLink(BaseOperatorLink):
    """Leads to the live transfer: where the connection's ``link`` says, or to the control API.

    Airflow asks for it in the task's process when that ends or defers, and keeps the answer.
    """

    name = "Transfer"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Give the address; nothing if no transfer was begun."""
        del ti_key
        return str(getattr(operator, "transfer_url", ""))
