from __future__ import annotations

import pytest

from dray_fts.states import job_state

S, R, A, F, X, C, N = "SUBMITTED", "READY", "ACTIVE", "FINISHED", "FAILED", "CANCELED", "NOT_USED"


@pytest.mark.parametrize(
    ("job_type", "files", "state"),
    [
        ("N", ["STAGING", "STARTED"], "STAGING"),
        ("N", ["STARTED", S], A),
        ("N", ["STAGING", F], A),
        ("N", ["ARCHIVING", F], "ARCHIVING"),
        ("N", ["ARCHIVING", A], A),
        ("H", [F, "ARCHIVING"], "ARCHIVING"),
        ("H", ["STARTED", N], "STAGING"),
        ("N", [S, S], S),
        ("N", [S, R], R),
        ("N", [R, R], R),
        ("N", [A, S], A),
        ("N", [F, S], A),
        ("N", [F, F], F),
        ("N", [X, X], X),
        ("N", [C, C], C),
        ("N", [X, C], C),
        ("N", [F, X], "FINISHEDDIRTY"),
        ("N", [F, C], "FINISHEDDIRTY"),
        ("Y", [F, X, A], A),
        ("H", [S, N], S),
        ("H", [F, S], A),
        ("H", [F, F], F),
        ("H", [X, N], X),
        ("H", [F, X], X),
        ("H", [F, C, N], C),
        ("H", [C, N], C),
    ],
)
def test_the_state_of_a_job(job_type: str, files: list[str], state: str) -> None:
    assert job_state(job_type, enumerate(files)) == state


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([(0, S), (0, N)], S),
        ([(0, X), (0, S)], S),
        ([(0, X), (0, A)], A),
        ([(0, X), (0, F), (0, N)], F),
        ([(0, X), (0, X)], X),
        ([(0, C), (0, N)], C),
        ([(0, X), (0, C)], C),
        ([(0, F), (0, N), (1, X), (1, X)], "FINISHEDDIRTY"),
        ([(0, F), (1, X), (1, S)], A),
    ],
)
def test_the_state_of_a_job_with_alternatives(files: list[tuple[int, str]], state: str) -> None:
    assert job_state("R", files) == state
