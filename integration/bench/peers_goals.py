"""Goals of copies between two ends on one host, beside other movers of the same rounds."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from integration.bench.goals import Goal, Reached
from integration.bench.peers import ESCP
from integration.bench.results import BASE, samples_of, times_as_fast
from integration.bench.tools import CLEAR, COMPARED, ENCRYPTED

if TYPE_CHECKING:
    from integration.bench.results import Case, Results

#: Maximum time of a copy divided by that of ``cp -r``, for each data set with a goal.
TIMES_COPY = {"a": 1.15, "b": 1.15, "c": 1.25, "d": 1.15}
BY_HAND = "by-hand"
OURS, OURS_ENCRYPTED, OURS_THIRD = "dray", "dray-tls", "dray-third"
OURS_COMPARED = "dray-verify"

FAST = {
    name: Goal(
        "at least 1.3 times as fast as the fastest peer, or at most"
        f" {times} times as long as `cp -r`",
        1.3,
    )
    for name, times in TIMES_COPY.items()
}
CHEAP = Goal("less CPU for each byte than every peer", 1.0, is_least=False)
FAST_COMPARED = Goal("read back and compared: at least 1.3 times as fast as the fastest peer", 1.3)
CHEAP_COMPARED = Goal("read back and compared: less CPU than every peer", 1.0, is_least=False)
FAST_ENCRYPTED = Goal("encrypted: at least 1.2 times as fast as the fastest peer", 1.2)
CHEAP_ENCRYPTED = Goal(
    "encrypted: at most 1.6 times the CPU of the unencrypted copy", 1.6, is_least=False
)
SUMS = Goal(
    "checksums of each byte, once at each end: at most 15 % of the time", 0.15, is_least=False
)
BETWEEN = Goal("third party: at most 1.03 times as long as client to server", 1.03, is_least=False)


class _Case:
    """The runs of one table without an error, and its goals."""

    def __init__(self, results: Results, case: Case) -> None:
        self.results, self.case = results, case

    def title(self, tool: str) -> str:
        return next(row.title for row in self.results.rows if row.name == tool)

    def peers(self, kind: str) -> list[str]:
        rows = (row for row in self.results.rows if row.kind == kind and not row.is_ours)
        return [row.name for row in rows if samples_of(self.results, self.case, row.name)]

    def times(self, tool: str, as_tool: str) -> float:
        return times_as_fast(self.results, self.case, tool, as_tool)

    def seconds(self, tool: str) -> float:
        samples = samples_of(self.results, self.case, tool)
        return statistics.median(each.seconds for each in samples) if samples else 0.0

    def cpu(self, tool: str) -> float:
        samples = samples_of(self.results, self.case, tool)
        return statistics.median(each.cpu_seconds for each in samples) if samples else 0.0

    def sums(self) -> list[Reached]:
        """Compare the time for checksums with the goal, in the work by hand."""
        shares = [each.summing for each in samples_of(self.results, self.case, BY_HAND)]
        share = statistics.median(shares) if shares else 0.0
        if not share:
            return []
        words, is_met = f"{share * 100:.1f} %", SUMS.is_met(share)
        return [Reached(SUMS, self.title(BY_HAND), self.case, words, is_met)]

    def clear(self) -> list[Reached]:
        """Compare copies without encryption with their goals."""
        peers = self.peers(CLEAR)
        if not peers or not self.cpu(OURS):
            return []
        fastest = min(peers, key=self.seconds)
        least = min(map(self.cpu, peers))

        def words(tool: str) -> str:
            of_peer, of_copy = self.times(tool, fastest), self.times(BASE, tool)
            if not of_peer:
                return ""
            return f"{of_peer:.2f}" + (f" ({of_copy:.2f} times `cp -r`)" if of_copy else "")

        goal = FAST[self.case[0]]
        of_copy = self.times(BASE, OURS)
        is_met = goal.is_met(self.times(OURS, fastest))
        is_met |= 0.0 < of_copy <= TIMES_COPY[self.case[0]]
        found = [Reached(goal, self.title(OURS), self.case, words(OURS), is_met, words(BY_HAND))]
        ratio, by_hand = self.cpu(OURS) / least, self.cpu(BY_HAND) / least
        machine = f"{by_hand:.2f}" if by_hand else ""
        is_met = CHEAP.is_met(ratio)
        return [
            *found,
            Reached(CHEAP, self.title(OURS), self.case, f"{ratio:.2f}", is_met, machine),
        ]

    def compared(self) -> list[Reached]:
        """Judge copies without encryption that read back and compare the written data."""
        peers = self.peers(COMPARED)
        fastest = min(peers, key=self.seconds, default="")
        faster = self.times(OURS_COMPARED, fastest)
        if not faster:
            return []
        cheaper = self.cpu(OURS_COMPARED) / min(map(self.cpu, peers))
        return [
            Reached(goal, self.title(OURS_COMPARED), self.case, f"{found:.2f}", goal.is_met(found))
            for goal, found in ((FAST_COMPARED, faster), (CHEAP_COMPARED, cheaper))
        ]

    def encrypted(self) -> list[Reached]:
        """Compare encrypted copies with their goals."""
        encrypted = self.cpu(OURS_ENCRYPTED)
        if not encrypted:
            return []
        title, ratios = self.title(OURS_ENCRYPTED), []
        peers = self.peers(ENCRYPTED)
        if peers and (of_peer := self.times(OURS_ENCRYPTED, min(peers, key=self.seconds))):
            ratios.append((of_peer, f"{of_peer:.2f}"))
        if of_copy := self.times(BASE, OURS_ENCRYPTED):
            of_escp = ESCP[self.case[0]] / of_copy
            ratios.append((of_escp, f"{of_escp:.2f} of EScp as recorded"))
        found = []
        if ratios:
            is_met = all(FAST_ENCRYPTED.is_met(ratio) for ratio, _ in ratios)
            words = ", ".join(each for _, each in ratios)
            found.append(Reached(FAST_ENCRYPTED, title, self.case, words, is_met))
        if clear := self.cpu(OURS):
            ratio = encrypted / clear
            is_met = CHEAP_ENCRYPTED.is_met(ratio)
            found.append(Reached(CHEAP_ENCRYPTED, title, self.case, f"{ratio:.2f}", is_met))
        return found

    def third(self) -> list[Reached]:
        """Compare third-party copies with their goal."""
        more = self.times(OURS, OURS_THIRD)
        if not more:
            return []
        is_met, title = BETWEEN.is_met(more), self.title(OURS_THIRD)
        return [Reached(BETWEEN, title, self.case, f"{more:.3f}", is_met)]


def reached(results: Results, cases: list[Case]) -> list[Reached]:
    """List the goals of each case, and whether dray met them.

    Only whole sets on tmpfs have goals, because the compared values were measured there.
    """
    found = []
    for case in cases:
        if case[0] in TIMES_COPY and case[1] == "tmpfs" and results.scale == 1:
            there = _Case(results, case)
            found += [*there.clear(), *there.compared(), *there.sums()]
            found += [*there.encrypted(), *there.third()]
    return found
