"""The operator that makes a replication rule of Rucio and waits until the rule is OK.

Rucio moves the files. The task only calls Rucio's REST server. If the plug-in ``dray_rucio`` moves
the files, the deadline of the task reaches the endpoints by the ``meta`` of the rule.

Invariant owned here: only one rule is made for each :class:`~dray_airflow.rules.RuleKey`, even if
the task has several tries, or several tries run concurrently.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from dray_airflow import assets, rules, values
from dray_airflow.datasets import split_did
from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, translated_rucio
from dray_airflow.hooks.rucio import RucioHook, RucioSettings
from dray_airflow.identity import key_of
from dray_airflow.operators.waiting import check_choice
from dray_airflow.triggers.rule import POLL_SECONDS, RucioRuleTrigger
from dray_airflow.version_compat import default_deferrable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from airflow.sdk import Context

__all__ = ["RucioRuleOperator"]

STUCK_SECONDS = 3600.0
"""Default time for which a rule may be stuck. It is an estimate: ``judge-repairer`` runs every few
minutes, and a repaired rule gets four more tries.
"""
COMMENT_CHARACTERS_MAX = 255


class RucioRuleOperator(BaseOperator):
    """Make a replication rule, or reuse an existing one, and wait until the rule is OK.

    A rule is reused if it has the same DID, RSE expression and account. So a retried task waits for
    the rule of its earlier try. The XCom result has ``rule_id``, ``did``, ``rse_expression``,
    ``rses`` and ``locks``. Outlets of the task that are ``rucio://`` assets, and asset aliases, get
    an event when the rule is OK.

    :param did: ``SCOPE:NAME`` of a file, dataset or container.
    :param rse_expression: RSEs for the copies.
    :param copies: number of copies.
    :param rucio_conn_id: connection of the Rucio server.
    :param account: account of the rule. The default is the account of the connection.
    :param lifetime: time after which Rucio deletes the rule. A reused rule that ends earlier is
        extended. The default is no end.
    :param activity: activity of the transfers in Rucio.
    :param grouping: ``ALL``, ``DATASET`` or ``NONE``.
    :param comment: comment of the rule. The default names the task.
    :param weight: RSE attribute by which Rucio weights the RSEs.
    :param source_rse_expression: RSEs from which the files may be copied.
    :param priority: priority of the transfers in Rucio.
    :param deadline: ``datetime`` with a time zone, RFC 3339 text, or ``timedelta`` from the begin
        of the run. The default follows from the deadline of the run. ``dray_rucio`` passes it to
        the endpoints.
    :param rate_min: minimum rate of each file for ``dray_rucio``, in bytes per second.
    :param rate_max: maximum rate of each file for ``dray_rucio``, in bytes per second.
    :param stuck_seconds: time for which the rule may be stuck before the task fails.
    :param cancel: ``own``: if a user ends the task, end the rule if this task has created it.
        ``never``: keep the rule.
    :param expected_duration: expected duration, only to compute the deadlines of the run's tasks.
    :param deferrable: wait in the triggerer and free the worker. The default is ``[operators]
        default_deferrable`` if it is set, otherwise ``True``.
    :param poll_seconds: time between two checks of the rule.
    """

    #: The deadline of the run is shared with other transfers (:mod:`dray_airflow.deadlines`).
    is_rucio_rule: ClassVar[bool] = True
    template_fields: Sequence[str] = (
        "did",
        "rse_expression",
        "copies",
        "rucio_conn_id",
        "account",
        "lifetime",
        "activity",
        "grouping",
        "comment",
        "weight",
        "source_rse_expression",
        "priority",
        "deadline",
        "rate_min",
        "rate_max",
        "cancel",
    )
    ui_color = "#e8e0f5"

    def __init__(
        self,
        *,
        did: str,
        rse_expression: str,
        copies: int | str = 1,
        rucio_conn_id: str = RucioHook.default_conn_name,
        account: str | None = None,
        lifetime: timedelta | float | str | None = None,
        activity: str | None = None,
        grouping: str = "DATASET",
        comment: str | None = None,
        weight: str | None = None,
        source_rse_expression: str | None = None,
        priority: int | str | None = None,
        deadline: datetime | timedelta | str | None = None,
        rate_min: int | str | None = None,
        rate_max: int | str | None = None,
        stuck_seconds: float = STUCK_SECONDS,
        cancel: str = "own",
        expected_duration: timedelta | float | None = None,
        deferrable: bool | None = None,
        poll_seconds: float = POLL_SECONDS,
        **kwargs: Any,  # noqa: ANN401 - as Airflow's own operators
    ) -> None:
        """Store the arguments.

        They are checked when the task runs, after templates are rendered.
        """
        super().__init__(**kwargs)
        self.did = did
        self.rse_expression = rse_expression
        self.copies = copies
        self.rucio_conn_id = rucio_conn_id
        self.account = account
        self.lifetime = lifetime
        self.activity = activity
        self.grouping = grouping
        self.comment = comment
        self.weight = weight
        self.source_rse_expression = source_rse_expression
        self.priority = priority
        self.deadline = deadline
        self.rate_min = rate_min
        self.rate_max = rate_max
        self.stuck_seconds = stuck_seconds
        self.cancel = cancel
        self.expected_duration = expected_duration
        self.deferrable = default_deferrable() if deferrable is None else deferrable
        self.poll_seconds = poll_seconds
        #: Id of the rule and of this try, for :meth:`on_kill`.
        self._begun: tuple[str, str] | None = None

    # --- the request ------------------------------------------------------------------------------

    def _wish(self, context: Context, account: str) -> rules.RuleWish:
        """Return the requested rule from the rendered fields.

        :raises DrayTaskFailure: if a field is invalid. The message names the field.
        """
        check_choice("grouping", self.grouping, ("ALL", "DATASET", "NONE"))
        check_choice("cancel", self.cancel, ("own", "never"))
        scope, name = split_did(self.did)
        key = key_of(context)
        comment = values.word(self.comment) or f"Airflow {key.dag_id} {key.run_id} {key.task_id}"
        options = {
            "grouping": self.grouping,
            "comment": comment[:COMMENT_CHARACTERS_MAX],
            "activity": values.word(self.activity),
            "weight": values.word(self.weight),
            "source_replica_expression": values.word(self.source_rse_expression),
            "priority": values.integer("priority", self.priority),
        }
        return rules.RuleWish(
            rules.RuleKey(scope, name, values.text("rse_expression", self.rse_expression), account),
            values.integer("copies", self.copies) or 1,
            values.seconds("lifetime", self.lifetime),
            rules.Mark(key, str(context["ti"].id)),
            self._dray(context),
            {name: value for name, value in options.items() if value is not None},
        )

    def _dray(self, context: Context) -> dict[str, Any]:
        """Return the part of the rule's ``meta`` that ``dray_rucio`` reads."""
        begin = getattr(context.get("dag_run"), "start_date", None)
        deadline = values.time("deadline", self.deadline, begin)
        if deadline is None:
            from dray_airflow.deadlines.dag import deadline_for

            found = deadline_for(context)
            if found is not None:
                self.log.info("deadline of the run: %s", found.why)
                deadline = found.latest_finish
        words = {
            "deadline": None if deadline is None else deadline.astimezone(timezone.utc).isoformat(),
            "rate_min": values.size("rate_min", self.rate_min),
            "rate_max": values.size("rate_max", self.rate_max),
        }
        return {name: value for name, value in words.items() if value is not None}

    # --- called by Airflow ------------------------------------------------------------------------

    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the XCom
        """Make or find the rule, and wait until it is OK.

        :raises DrayTaskFailure: for a permanent error.
        :raises DrayTaskRetry: for other errors, and if the rule is stuck for too long.
        """
        begun_at = datetime.now(timezone.utc)
        hook = RucioHook(values.text("rucio_conn_id", self.rucio_conn_id))
        client = hook.get_conn()
        wish = self._wish(context, self._account(hook.settings, client))
        rule, story = rules.begin_rule(client, hook.settings, wish)
        self.log.info("%s: %s", story, rules.story_of(rule))
        if wish.dray and rules.meta_of(rule).get("dray") != wish.dray:
            self.log.warning(
                "another task or program has made rule %s, so its deadline and rates are not "
                "changed to %s",
                rule["id"],
                dict(wish.dray),
            )
        self._begun = (str(rule["id"]), wish.mark.try_id)
        if rules.is_settled(rule, begun_at, self.stuck_seconds):
            return self._complete(context, client, hook.settings, rule)
        if self.deferrable:
            self.defer(
                trigger=self._trigger(hook, str(rule["id"]), begun_at, wish.mark.try_id),
                method_name="execute_complete",
                timeout=self.execution_timeout,
            )
        return self._complete(context, client, hook.settings, self._await(hook, rule, begun_at))

    def _account(self, settings: RucioSettings, client: Any) -> str:  # noqa: ANN401
        """Return the account of the rule."""
        given = values.word(self.account)
        if given:
            return given
        with translated_rucio(settings.about("ask for the account")):
            return str(client.whoami()["account"])

    def _trigger(
        self, hook: RucioHook, id: str, begun_at: datetime, try_id: str
    ) -> RucioRuleTrigger:
        return RucioRuleTrigger(
            hook.rucio_conn_id,
            id,
            poll_seconds=self.poll_seconds,
            stuck_seconds=self.stuck_seconds,
            begun_at=begun_at.isoformat(),
            try_id=try_id if self.cancel == "own" else "",
        )

    def _await(self, hook: RucioHook, rule: rules.Rule, begun_at: datetime) -> rules.Rule:
        """Wait in this process. An outage of ``outage_seconds`` does not end the wait."""
        lost_at: float | None = None
        client = None
        while True:
            time.sleep(self.poll_seconds)
            try:
                client = hook.get_conn() if client is None else client
                rule = rules.rule_of(client, hook.settings, str(rule["id"]))
                lost_at = None
            except DrayTaskRetry as error:
                client = None
                lost_at = time.monotonic() if lost_at is None else lost_at
                if time.monotonic() - lost_at >= hook.settings.outage_seconds:
                    raise
                self.log.warning("Rucio does not answer, and the task continues to wait: %s", error)
                continue
            self.log.info("%s", rules.story_of(rule))
            if rules.is_settled(rule, begun_at, self.stuck_seconds):
                return rule

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Continue after the trigger has fired, and read the rule again.

        :param event: payload of the event.
        """
        if "error" in event:
            kind = str(event.get("kind", "other"))
            error_class = DrayTaskFailure if event.get("status") == "permanent" else DrayTaskRetry
            raise error_class(f"cannot wait for the rule: {event['error']}", kind)
        hook = RucioHook(values.text("rucio_conn_id", self.rucio_conn_id))
        client = hook.get_conn()
        rule = rules.rule_of(client, hook.settings, str(event["rule_id"]))
        if rule["state"] not in ("OK", "SUSPENDED", "STUCK"):
            # The rule got new files, or its repair began, after the trigger has fired.
            raise DrayTaskRetry(
                f"the rule has changed: {rules.story_of(rule)}; a retry waits for the rule"
            )
        return self._complete(context, client, hook.settings, rule)

    def _complete(
        self,
        context: Context,
        client: Any,  # noqa: ANN401
        settings: RucioSettings,
        rule: rules.Rule,
    ) -> dict[str, Any]:
        error = rules.error_of_rule(client, settings, rule)
        if error is not None:
            raise error
        result = rules.result_of(client, settings, rule)
        self.log.info("rule %s is OK: %s", rule["id"], result)
        place = assets.did_uri(settings.authority, str(rule["scope"]), str(rule["name"]))
        assets.announce(context, place, result)
        return result

    def on_kill(self) -> None:
        """End the rule if this task has created it and ``cancel`` is ``own``."""
        if self._begun is None or self.cancel != "own":
            return
        id, try_id = self._begun
        try:
            hook = RucioHook(values.text("rucio_conn_id", self.rucio_conn_id))
            said = rules.cancel_own_rule(hook.get_conn(), hook.settings, id, try_id)
        except Exception as error:
            self.log.warning("cannot end rule %s, so the rule continues: %s", id, error)
        else:
            self.log.info("rule %s %s", id, said)
