"""The sensor that waits for a transfer which another program has submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from dray_airflow import values
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, of_transfer, translated
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.identity import key_of
from dray_airflow.links.transfer import DrayTransferLink, page_of, publish
from dray_airflow.operators.transfer import outcome
from dray_airflow.operators.waiting import BOUND_SECONDS, some_failures, time_allowed
from dray_airflow.version_compat import default_deferrable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from dray.client import Client, Transfer

__all__ = ["DrayTransferSensor"]


class DrayTransferSensor(BaseSensorOperator):
    """Wait until a transfer is done. The sensor never changes or cancels the transfer.

    The XCom result has the same keys as the result of
    :class:`~dray_airflow.operators.transfer.DrayTransferOperator`. If the transfer does not
    succeed, the task fails.

    :param transfer_id: id of the transfer.
    :param dray_conn_id: connection of the endpoint that drives the transfer.
    :param is_awaited: wait even if no transfer has this id yet. Otherwise an unknown id is an
        error.
    :param deferrable: wait in the triggerer and free the worker. The default is ``[operators]
        default_deferrable`` if it is set, otherwise ``True``.
    """

    template_fields: Sequence[str] = ("transfer_id", "dray_conn_id")
    operator_extra_links = (DrayTransferLink(),)
    ui_color = "#d7e8f5"

    def __init__(
        self,
        *,
        transfer_id: str,
        dray_conn_id: str = DrayHook.default_conn_name,
        is_awaited: bool = False,
        deferrable: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own sensors
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.transfer_id = transfer_id
        self.dray_conn_id = dray_conn_id
        self.is_awaited = is_awaited
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        #: URL for the link on the task's page.
        self.transfer_url = ""

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the XCom
        """Check once and then wait in the triggerer, or check repeatedly."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        from dray_airflow.triggers.transfer import DrayTransferTrigger

        self.defer(
            trigger=DrayTransferTrigger(
                dray_conn_id=values.text("dray_conn_id", self.dray_conn_id),
                transfer_id=values.text("transfer_id", self.transfer_id),
                is_awaited=self.is_awaited,
                patience_seconds=float(BOUND_SECONDS),
            ),
            method_name="execute_complete",
            timeout=time_allowed(self),
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once if the transfer has ended.

        :raises DrayTaskFailure: if the transfer has failed.
        """
        id = values.text("transfer_id", self.transfer_id)
        hook = DrayHook(values.text("dray_conn_id", self.dray_conn_id))
        self.transfer_url = hook.settings.link_to(id) or page_of(key_of(context))
        with (
            hook.get_conn() as client,
            translated(hook.settings.about(f"transfer {id}"), hook.settings),
        ):
            transfer = client.query([id])[id] if self.is_awaited else client.transfer(id)
            if transfer is not None:
                publish(context, hook.settings, transfer)
            if transfer is None or not transfer.is_terminal:
                return PokeReturnValue(is_done=False)
            return PokeReturnValue(is_done=True, xcom_value=_ended(client, transfer))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Continue after the trigger has fired.

        :param event: payload of the event.
        """
        try:
            found = self.poke(context)
        except DrayTaskFailure as error:
            if error.kind != "unauthorized":
                raise
            # The first check accepted the token, so the token has expired since.
            raise DrayTaskRetry(str(error), error.kind) from None
        if not found.is_done:
            message = event.get("error") or "it was started again"
            raise DrayTaskRetry(
                f"transfer {self.transfer_id}: {message}", str(event.get("kind", "other"))
            )
        return found.xcom_value


def _ended(client: Client, transfer: Transfer) -> dict[str, Any]:
    failed = some_failures(client, transfer.id) if transfer.state == "incomplete" else ()
    error = of_transfer(transfer, failed)
    if error is not None:
        raise error
    return outcome(client, transfer)
