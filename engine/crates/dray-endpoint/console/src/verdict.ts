// The relation of a transfer to its deadline.

import { isInterrupted, isLive, type Transfer } from "./types";

/**
 * - `kept`: the transfer was done before its deadline.
 * - `missed`: the deadline has passed, and the transfer was not done.
 * - `missing`: the endpoint predicts that it cannot keep its promise.
 * - `late`: at its present rate, a transfer ends after its deadline.
 * - `open`: none of these is known.
 */
export type Verdict = "kept" | "missed" | "missing" | "late" | "open";

/** Returns true if the deadline comes before the estimated end. */
function isLateSoFar(of: Transfer, deadline: string): boolean {
  const end = isInterrupted(of) ? null : (of.eta_between?.early ?? of.eta);
  return end !== null && Date.parse(deadline) < Date.parse(end);
}

/** Returns the relation of a transfer to its deadline; `null` if no deadline applies. */
export function verdictOf(of: Transfer, now: number): Verdict | null {
  const { deadline } = of.request;
  if (!deadline || of.state === "cancelled") return null;
  if (!isLive(of.state)) {
    const isInTime = of.state === "done" && Date.parse(of.ended_at ?? "") <= Date.parse(deadline);
    return isInTime ? "kept" : "missed";
  }
  if (Date.parse(deadline) < now) return "missed";
  if (of.miss) return "missing";
  return isLateSoFar(of, deadline) ? "late" : "open";
}
