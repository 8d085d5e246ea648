"""Replication rules of Rucio: create or reuse a rule, and judge its state.

Rucio's REST server keeps all state. A task finds its rule again by the rule's :class:`RuleKey`, so
a retried task makes no second rule. The ``meta`` of a rule that a task has created names the task.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from dray_airflow.errors import DrayTaskFailure, DrayTaskRetry, bad_input, translated_rucio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dray_airflow.hooks.rucio import RucioSettings
    from dray_airflow.identity import TaskKey

__all__ = [
    "Found",
    "Mark",
    "RuleKey",
    "RuleWish",
    "begin_rule",
    "cancel_own_rule",
    "error_of_rule",
    "is_settled",
    "mark_of",
    "meta_of",
    "result_of",
    "rule_of",
    "story_of",
]

LOCKS_NAMED_MAX = 3
LOCKS_READ_MAX = 10_000
"""Maximum number of locks that are read for the names of the RSEs. A rule may have a million."""
MARK = "airflow"
"""Key of the mark in a rule's ``meta``. The plug-in of Rucio reads only the key ``dray``."""
Rule = dict[str, Any]
"""A rule as Rucio's REST server returns it."""


class RuleKey(NamedTuple):
    """The values by which a task finds its rule again.

    :param account: account that the rule belongs to.
    """

    scope: str
    name: str
    rse_expression: str
    account: str

    @property
    def did(self) -> str:
        """The data identifier in Rucio's usual form."""
        return f"{self.scope}:{self.name}"


class Mark(NamedTuple):
    """The task that has created a rule, and the last try of this task.

    :param try_id: Airflow's id of the task instance, which is different for each try.
    """

    key: TaskKey
    try_id: str


@dataclass(frozen=True, slots=True)
class RuleWish:
    """The requested rule.

    :param lifetime: seconds from now until Rucio deletes the rule. ``None`` means never.
    :param dray: the part of ``meta`` for dray: deadline and rates.
    :param options: further arguments of Rucio's ``add_replication_rule``.
    """

    key: RuleKey
    copies: int
    lifetime: int | None
    mark: Mark
    dray: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def meta(self) -> str:
        """The ``meta`` of the rule, which Rucio's client requires as a text."""
        mark = {**self.mark.key._asdict(), "try": self.mark.try_id}
        words: dict[str, Any] = {MARK: mark}
        if self.dray:
            words["dray"] = dict(self.dray)
        return json.dumps(words)


class Found(NamedTuple):
    """The rule of a task.

    :param story: ``created`` or ``reused``: how the task got the rule. For the log.
    """

    rule: Rule
    story: str


def meta_of(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``meta`` of a rule. Empty if it is no object: Rucio permits any text."""
    words = rule.get("meta")
    # Rucio encodes the text that its client requires a second time.
    for _ in range(2):
        if isinstance(words, str):
            try:
                words = json.loads(words)
            except ValueError:
                return {}
    return words if isinstance(words, dict) else {}


def mark_of(rule: Mapping[str, Any]) -> Mark | None:
    """Return the mark of the task that has created a rule. ``None`` for a rule of others."""
    from dray_airflow.identity import TaskKey

    words = meta_of(rule).get(MARK)
    if not isinstance(words, dict):
        return None
    try:
        key = TaskKey(*(words[name] for name in TaskKey._fields))
        return Mark(key, str(words["try"]))
    except KeyError:
        return None


def begin_rule(client: Any, settings: RucioSettings, wish: RuleWish) -> Found:  # noqa: ANN401
    """Return the rule that has the key of ``wish``. Create the rule if there is none.

    :raises DrayTaskFailure: if a rule with the key has another number of copies, or if Rucio
        refuses the rule.
    :raises DrayTaskRetry: if the server is unreachable, or if a quota is exhausted.
    """
    from rucio.common.exception import DuplicateRule

    key = wish.key
    about = settings.about(f"add a rule for {key.did} at {key.rse_expression}")
    with translated_rucio(about):
        found = _existing(client, wish)
        if found is None:
            try:
                (id,) = client.add_replication_rule(
                    [{"scope": key.scope, "name": key.name}],
                    wish.copies,
                    key.rse_expression,
                    account=key.account,
                    lifetime=wish.lifetime,
                    meta=wish.meta,
                    **wish.options,
                )
                return Found(client.get_replication_rule(id), "created")
            except DuplicateRule:
                # Two tries of the task have called at the same time.
                found = _existing(client, wish)
                if found is None:
                    raise
        return Found(_adapt(client, wish, found), "reused")


def _existing(client: Any, wish: RuleWish) -> Rule | None:  # noqa: ANN401
    key = wish.key
    same = [
        rule
        for rule in client.list_did_rules(key.scope, key.name)
        if rule["rse_expression"] == key.rse_expression and str(rule["account"]) == key.account
    ]
    for rule in same:
        if rule["copies"] == wish.copies:
            return dict(rule)
    if same:
        raise bad_input(
            f"use a rule for {key.did} at {key.rse_expression}",
            f"rule {same[0]['id']} of account {key.account} has {same[0]['copies']} copies, but "
            f"{wish.copies} are requested",
            f"set copies to {same[0]['copies']}, or delete the rule",
        )
    return None


def _adapt(client: Any, wish: RuleWish, rule: Rule) -> Rule:  # noqa: ANN401
    """Change an existing rule to the wish, as far as the rule belongs to the task."""
    mark = mark_of(rule)
    is_own = mark is not None and mark.key == wish.mark.key
    options: dict[str, Any] = {}
    if is_own and meta_of(rule) != json.loads(wish.meta):
        options["meta"] = wish.meta
    ends = _utc(rule.get("expires_at"))
    if ends is not None:
        left = (ends - datetime.now(timezone.utc)).total_seconds()
        if wish.lifetime is not None and left < wish.lifetime:
            options["lifetime"] = wish.lifetime
        elif wish.lifetime is None and is_own:
            # An earlier try has ended its own rule, and Rucio has not deleted the rule yet.
            options["lifetime"] = None
    if rule["state"] == "STUCK":
        options["boost_rule"] = True
    if not options:
        return rule
    client.update_replication_rule(rule["id"], options)
    return dict(client.get_replication_rule(rule["id"]))


def rule_of(client: Any, settings: RucioSettings, id: str) -> Rule:  # noqa: ANN401
    """Return a rule.

    :raises DrayTaskFailure: if the rule does not exist.
    """
    with translated_rucio(settings.about(f"read rule {id}")):
        return dict(client.get_replication_rule(id))


def _utc(value: object) -> datetime | None:
    """Return a time of Rucio. Rucio's times are in UTC and have no zone."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
    return None


def is_settled(rule: Mapping[str, Any], begun_at: datetime, stuck_seconds: float) -> bool:
    """Return true if a wait for the rule ends: the rule is OK, suspended, or stuck for too long.

    :param begun_at: begin of the try. A rule that was stuck before gets the full time again,
        because the try makes Rucio repair the rule.
    :param stuck_seconds: time for which a rule may be stuck. Rucio's daemon ``judge-repairer``
        repairs stuck rules.
    """
    if rule["state"] in ("OK", "SUSPENDED"):
        return True
    if rule["state"] != "STUCK":
        return False
    since = max(_utc(rule.get("stuck_at")) or begun_at, begun_at)
    return (datetime.now(timezone.utc) - since).total_seconds() >= stuck_seconds


def story_of(rule: Mapping[str, Any]) -> str:
    """Describe the state of a rule in one line."""
    counts = (
        f"{rule['locks_ok_cnt']} locks OK, {rule['locks_replicating_cnt']} replicating, "
        f"{rule['locks_stuck_cnt']} stuck"
    )
    words = [f"rule {rule['id']} is {rule['state']}", counts]
    if rule["state"] == "WAITING_APPROVAL":
        call = f"rucio.client.Client().approve_replication_rule({rule['id']!r})"
        words.append(f"an administrator must approve it, in Python: {call}")
    if rule.get("error"):
        words.append(str(rule["error"]))
    return ", ".join(words)


def error_of_rule(
    client: Any,  # noqa: ANN401
    settings: RucioSettings,
    rule: Mapping[str, Any],
) -> DrayTaskFailure | DrayTaskRetry | None:
    """Return the error of a settled rule. ``None`` if the rule is OK."""
    if rule["state"] == "OK":
        return None
    id = rule["id"]
    if rule["state"] == "SUSPENDED":
        return DrayTaskFailure(
            f"{story_of(rule)}; Rucio does not move the files of a suspended rule; find the "
            "reason, set the rule to STUCK so that Rucio repairs the rule, then clear the task",
            "cancelled",
        )
    with translated_rucio(settings.about(f"examine rule {id}")):
        locks = client.examine_replication_rule(id)["transfers"]
        named = [_lock_error(client, lock) for lock in locks[:LOCKS_NAMED_MAX]]
    more = f"; and {len(locks) - len(named)} more" if len(locks) > len(named) else ""
    about = "; ".join(named) or "Rucio names no lock"
    return DrayTaskRetry(f"{story_of(rule)}: {about}{more}; a retry makes Rucio repair the rule")


def _lock_error(client: Any, lock: Mapping[str, Any]) -> str:  # noqa: ANN401
    """Describe a stuck lock: the file, the RSE, and the error of its last request."""
    error = lock.get("last_error")
    try:
        request = client.list_request_history_by_did(lock["name"], lock["rse"], lock["scope"])
        error = request.get("err_msg") or error
    except Exception as denied:
        # Only some accounts may read requests. The state of the request must be enough then.
        error = f"{error} (the message cannot be read: {type(denied).__name__})"
    tries = f"{lock.get('attempts', 0)} tries"
    return f"{lock['scope']}:{lock['name']} to {lock['rse']} ({tries}): {error}"


def result_of(client: Any, settings: RucioSettings, rule: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Return the result of a rule that is OK, small enough for an XCom."""
    with translated_rucio(settings.about(f"list the locks of rule {rule['id']}")):
        locks = itertools.islice(client.list_replica_locks(rule["id"]), LOCKS_READ_MAX)
        rses = sorted({str(lock["rse"]) for lock in locks})
    return {
        "rule_id": str(rule["id"]),
        "did": f"{rule['scope']}:{rule['name']}",
        "rse_expression": rule["rse_expression"],
        "rses": rses,
        "locks": rule["locks_ok_cnt"],
    }


def cancel_own_rule(client: Any, settings: RucioSettings, id: str, try_id: str) -> str:  # noqa: ANN401
    """End a rule that this try has created or continued. Return text for the log.

    The rule expires immediately. Rucio's daemon ``judge-cleaner`` then deletes the rule and cancels
    its transfers. Rules of other tasks and users are kept.
    """
    with translated_rucio(settings.about(f"end rule {id}")):
        mark = mark_of(client.get_replication_rule(id))
        if mark is None:
            return "continues, because this task has not created the rule"
        if mark.try_id != try_id:
            return "continues, because another try waits for the rule"
        client.update_replication_rule(id, {"lifetime": 0})
    return "expires now, because the task was ended; Rucio's judge-cleaner cancels its transfers"
