"""The link from a task's page in Airflow to its transfer, and the transfer's state in Airflow.

An endpoint has no page for browsers, because its control API needs a token. So the link leads to
the page that the connection names. Without such a page, it leads to the task's XComs in Airflow,
which have the last known state of the transfer.
"""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

    from dray.client import Transfer
    from dray_airflow.hooks.dray import Settings
    from dray_airflow.identity import TaskKey

__all__ = [
    "STANDING_KEY",
    "DrayTransferLink",
    "page_of",
    "publish",
    "publish_at",
    "show_command",
    "standing",
]

log = logging.getLogger(__name__)

STANDING_KEY = "dray_transfer"
"""Key of the XCom with the last known state of the transfer."""


class DrayTransferLink(BaseOperatorLink):
    """Links to the URL in the field ``link`` of the connection, or else to the task's XComs.

    Airflow asks for the URL in the process of the task, when the task ends or defers, and stores
    it.
    """

    name = "Transfer"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the URL. Empty if the task has not started a transfer."""
        del ti_key
        return str(getattr(operator, "transfer_url", ""))


def page_of(key: TaskKey) -> str:
    """Return the URL of a task's XComs in Airflow, relative to the host."""
    from airflow.configuration import conf

    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    names = {"dags": key.dag_id, "runs": key.run_id, "tasks": key.task_id}
    path = "".join(f"/{kind}/{quote(name, safe='')}" for kind, name in names.items())
    index = f"/mapped/{key.map_index}" if key.map_index >= 0 else ""
    return f"{below}{path}{index}/xcom"


def show_command(settings: Settings, id: str) -> str:
    """Return the command that shows a transfer in a terminal."""
    return f"dray show {id} --endpoint {settings.authority}"


def standing(endpoint: str, show: str, transfer: Transfer, connection: str = "") -> dict[str, Any]:
    """Return a transfer's state as a dictionary for users of Airflow.

    :param endpoint: address of the endpoint or of the service that moves the files.
    :param show: command or page that shows the transfer.
    :param connection: name of the Airflow connection to the endpoint. Empty if another service
        moves the files.
    """
    found: dict[str, Any] = {
        "id": transfer.id,
        "endpoint": endpoint,
        "state": transfer.state,
        "as_of": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "files_done": transfer.files.done,
        "files_listed": transfer.files.listed,
        "bytes_durable": transfer.bytes.durable,
        "bytes_listed": transfer.bytes.listed,
        "show": show,
    }
    if connection:
        found["connection"] = connection
    if transfer.error is not None:
        found["error"] = transfer.error.message
    if transfer.miss is not None:
        found["deadline_missed"] = transfer.miss.cause
    if transfer.notices:
        found["notices"] = list(transfer.notices)
    return found


def publish(context: Context, settings: Settings, transfer: Transfer) -> None:
    """Store a transfer's state for the link."""
    show = show_command(settings, transfer.id)
    publish_at(context, settings.url, show, transfer, settings.conn_id)


def publish_at(
    context: Context, endpoint: str, show: str, transfer: Transfer, connection: str = ""
) -> None:
    """Store a transfer's state for the link. An error is only logged, so that no task fails.

    :param endpoint: as for :func:`standing`.
    :param show: as for :func:`standing`.
    :param connection: as for :func:`standing`.
    """
    try:
        value = standing(endpoint, show, transfer, connection)
        context["ti"].xcom_push(key=STANDING_KEY, value=value)
    except Exception as error:
        log.warning("the task's page does not show transfer %s: %s", transfer.id, error)
