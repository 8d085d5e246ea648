"""The sensor that waits for a file or folder at an endpoint."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from dray_airflow import values
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, translated
from dray_airflow.hooks.dray import DrayHook
from dray_airflow.operators.waiting import time_allowed
from dray_airflow.triggers.file import is_settled
from dray_airflow.version_compat import default_deferrable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from airflow.sdk import Context

__all__ = ["DrayFileSensor"]


class DrayFileSensor(BaseSensorOperator):
    """Wait until a file or folder exists. The XCom result has ``path`` and ``size``.

    If an endpoint writes the file, the file gets its final name when it is complete. If another
    program writes the file, the file may still grow: set ``size_min`` or ``quiet``.

    :param path: ``/ROOT/PATH``.
    :param dray_conn_id: connection of the endpoint.
    :param size_min: minimum size in bytes, as a number or as ``1GB``.
    :param quiet: required time without a change, in seconds or as a ``timedelta``.
    :param deferrable: wait in the triggerer and free the worker. The default is ``[operators]
        default_deferrable`` if it is set, otherwise ``True``.
    """

    template_fields: Sequence[str] = ("path", "dray_conn_id", "size_min", "quiet")
    ui_color = "#d7e8f5"

    def __init__(
        self,
        *,
        path: str,
        dray_conn_id: str = DrayHook.default_conn_name,
        size_min: int | str | None = None,
        quiet: timedelta | float | str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own sensors
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.path = path
        self.dray_conn_id = dray_conn_id
        self.size_min = size_min
        self.quiet = quiet
        self.deferrable = default_deferrable() if deferrable is None else deferrable

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the XCom
        """Check once and then wait in the triggerer, or check repeatedly."""
        if not self.deferrable:
            return super().execute(context)
        try:
            found = self.poke(context)
        except DrayTaskRetry as error:
            self.log.warning("cannot check the file now; the triggerer tries again: %s", error)
        else:
            if found.is_done:
                return found.xcom_value
        from dray_airflow.triggers.file import DrayFileTrigger

        self.defer(
            trigger=DrayFileTrigger(
                dray_conn_id=values.text("dray_conn_id", self.dray_conn_id),
                path=values.text("path", self.path),
                size_min=values.size("size_min", self.size_min) or 0,
                quiet_seconds=values.seconds("quiet", self.quiet) or 0,
                poll_seconds=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=time_allowed(self),
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once if the file exists.

        :raises DrayTaskFailure: if the endpoint refuses the call.
        """
        del context
        from dray.errors import DrayError

        path = values.text("path", self.path)
        size_min = values.size("size_min", self.size_min) or 0
        quiet = values.seconds("quiet", self.quiet) or 0
        hook = DrayHook(values.text("dray_conn_id", self.dray_conn_id))
        with hook.get_conn() as client, translated(hook.settings.about(path), hook.settings):
            try:
                entry = client.stat(path)
            except DrayError as error:
                if error.kind != "not_found":
                    raise
                return PokeReturnValue(is_done=False)
        if not is_settled(entry, size_min, quiet, datetime.now(timezone.utc)):
            return PokeReturnValue(is_done=False)
        return PokeReturnValue(is_done=True, xcom_value={"path": entry.path, "size": entry.size})

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Continue after the trigger has fired.

        :param event: payload of the event.
        """
        del context
        if "error" in event:
            # The first check accepted the token, so the token has expired since.
            is_permanent = event.get("status") == "permanent"
            is_permanent = is_permanent and event.get("kind") != "unauthorized"
            error_class = DrayTaskFailure if is_permanent else DrayTaskRetry
            raise error_class(f"{self.path}: {event['error']}", str(event.get("kind", "other")))
        return {"path": event["path"], "size": event["size"]}
