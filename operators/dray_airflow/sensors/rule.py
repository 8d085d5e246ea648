"""The sensor that waits for a rule of Rucio, or for a dataset. The sensor changes no rule."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from dray_airflow import assets, datasets, rules, values
from dray_airflow.datasets import split_did
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, bad_input
from dray_airflow.hooks.rucio import RucioHook
from dray_airflow.operators.rule import STUCK_SECONDS
from dray_airflow.operators.waiting import time_allowed
from dray_airflow.triggers.rule import RucioDatasetTrigger, RucioRuleTrigger
from dray_airflow.version_compat import default_deferrable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

__all__ = ["RucioRuleSensor"]


class RucioRuleSensor(BaseSensorOperator):
    """Wait until a rule is OK, or until a dataset is complete at RSEs.

    Give either ``rule_id``, or ``did`` and ``rse_expression``. With ``rule_id``, the task fails if
    the rule is suspended, or stuck for ``stuck_seconds``. With ``did``, the sensor counts every
    file at an RSE, no matter if a rule or an upload brought it there. The result then has ``did``,
    ``files``, ``bytes`` and ``rses``. The task's outlets get an event if they are ``rucio://``
    assets or asset aliases.

    :param rule_id: id of the rule.
    :param did: ``SCOPE:NAME`` of a dataset or file.
    :param rse_expression: RSEs at which the sensor looks for the files.
    :param copies: required number of RSEs with all files.
    :param is_closed_required: wait until the dataset is closed, so that it can get no more files.
    :param rucio_conn_id: connection of the Rucio server.
    :param stuck_seconds: time for which the rule may be stuck before the task fails.
    :param deferrable: wait in the triggerer and free the worker. The default is ``[operators]
        default_deferrable`` if it is set, otherwise ``True``.
    """

    template_fields: Sequence[str] = (
        "rule_id",
        "did",
        "rse_expression",
        "copies",
        "is_closed_required",
        "rucio_conn_id",
    )
    ui_color = "#e8e0f5"

    def __init__(
        self,
        *,
        rule_id: str | None = None,
        did: str | None = None,
        rse_expression: str | None = None,
        copies: int | str = 1,
        is_closed_required: bool | str = False,
        rucio_conn_id: str = RucioHook.default_conn_name,
        stuck_seconds: float = STUCK_SECONDS,
        deferrable: bool | None = None,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own sensors
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.rule_id = rule_id
        self.did = did
        self.rse_expression = rse_expression
        self.copies = copies
        self.is_closed_required = is_closed_required
        self.rucio_conn_id = rucio_conn_id
        self.stuck_seconds = stuck_seconds
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self._begun_at = datetime.now(timezone.utc)

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the XCom
        """Check once and then wait in the triggerer, or check repeatedly."""
        self._begun_at = datetime.now(timezone.utc)
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        self.defer(
            trigger=self._trigger(),
            method_name="execute_complete",
            timeout=time_allowed(self),
        )

    def _trigger(self) -> RucioRuleTrigger | RucioDatasetTrigger:
        conn_id = values.text("rucio_conn_id", self.rucio_conn_id)
        pause = float(self.poke_interval)
        if self._is_rule():
            return RucioRuleTrigger(
                conn_id,
                values.text("rule_id", self.rule_id),
                poll_seconds=pause,
                stuck_seconds=self.stuck_seconds,
                begun_at=self._begun_at.isoformat(),
            )
        return RucioDatasetTrigger(
            conn_id,
            values.text("did", self.did),
            values.text("rse_expression", self.rse_expression),
            copies=values.integer("copies", self.copies) or 1,
            is_closed_required=bool(values.truth("is_closed_required", self.is_closed_required)),
            poll_seconds=pause,
        )

    def _is_rule(self) -> bool:
        is_rule = not values.is_empty(self.rule_id)
        if is_rule != values.is_empty(self.did):
            raise bad_input(
                "wait for a rule or a dataset",
                "rule_id and did are both given, or both empty",
                "give rule_id, or did and rse_expression",
            )
        return is_rule

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the rule or the dataset once.

        :raises DrayTaskFailure: if the rule is suspended.
        :raises DrayTaskRetry: if the rule is stuck for more than ``stuck_seconds``.
        """
        hook = RucioHook(values.text("rucio_conn_id", self.rucio_conn_id))
        client = hook.get_conn()
        settings = hook.settings
        if self._is_rule():
            rule = rules.rule_of(client, settings, values.text("rule_id", self.rule_id))
            self.log.info("%s", rules.story_of(rule))
            if not rules.is_settled(rule, self._begun_at, self.stuck_seconds):
                return PokeReturnValue(is_done=False)
            error = rules.error_of_rule(client, settings, rule)
            if error is not None:
                raise error
            result = rules.result_of(client, settings, rule)
            scope, name = str(rule["scope"]), str(rule["name"])
        else:
            scope, name = split_did(values.text("did", self.did))
            expression = values.text("rse_expression", self.rse_expression)
            found = datasets.completeness_of(client, settings, scope, name, expression)
            self.log.info("%s", found.story)
            copies = values.integer("copies", self.copies) or 1
            is_closed = bool(values.truth("is_closed_required", self.is_closed_required))
            if not found.is_enough(copies, is_closed_required=is_closed):
                return PokeReturnValue(is_done=False)
            result = found.result()
        assets.announce(context, assets.did_uri(settings.authority, scope, name), result)
        return PokeReturnValue(is_done=True, xcom_value=result)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Continue after the trigger has fired, and check again.

        :param event: payload of the event.
        """
        if "error" in event:
            kind = str(event.get("kind", "other"))
            error_class = DrayTaskFailure if event.get("status") == "permanent" else DrayTaskRetry
            raise error_class(f"cannot wait for the rule or dataset: {event['error']}", kind)
        # The trigger has waited for ``stuck_seconds``.
        if event.get("state") == "STUCK":
            self.stuck_seconds = 0.0
        found = self.poke(context)
        if not found.is_done:
            raise DrayTaskRetry(
                "the rule or dataset was complete when the trigger fired, and has changed",
                "other",
            )
        return found.xcom_value
