"""The id of a task's transfer, which is the same for each try, on each worker, and after a clear.

The id of Airflow's task instance is not used, because it is different for each try. All functions
of this module are pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["TaskKey", "key_of", "transfer_id"]

#: Number of hexadecimal digits of the digest in an id. 128 bits make collisions improbable.
DIGEST_DIGITS = 32
#: Maximum length of the readable part, because an id has at most 64 characters.
WORD_CHARACTERS = 24
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")


class TaskKey(NamedTuple):
    """The part of a task's identity that is the same for all tries.

    :param map_index: number of the mapped instance, or -1 if the task is not mapped.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


def key_of(context: Context) -> TaskKey:
    """Return the key of the running task."""
    task = context["ti"]
    return TaskKey(task.dag_id, task.run_id, task.task_id, _index(task.map_index))


def _index(value: int | None) -> int:
    return -1 if value is None else value


def transfer_id(
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int = -1,
    *,
    namespace: str = "",
    part: str = "",
) -> str:
    """Return the id of a task's transfer: ``af-``, the task's name, and a digest of all arguments.

    :param namespace: separates several Airflow installations that use one endpoint as the same
        owner.
    :param part: separates several transfers of one task.
    :returns: at most 60 characters of ``[A-Za-z0-9._-]``.
    """
    words = json.dumps([dag_id, run_id, task_id, map_index, namespace, part], separators=(",", ":"))
    digest = hashlib.sha256(words.encode()).hexdigest()[:DIGEST_DIGITS]
    word = _OTHERS.sub("-", task_id)[:WORD_CHARACTERS].strip(".-_")
    return f"af-{word}-{digest}" if word else f"af-{digest}"
