// The running sessions and the promises of the endpoint, with the rate of each session.

import { useCallback, useRef } from "preact/hooks";
import type { Api } from "./api";
import { usePoll, type Polled } from "./hooks";
import type { Load, Session } from "./types";

const LOAD_SECONDS = 2;

/** A session with its rate since the answer before; null until there are two answers. */
export interface Rated extends Session {
  rate: number | null;
}

export type RatedLoad = Omit<Load, "sessions"> & { sessions: Rated[] };

const identity = (session: Session): string =>
  JSON.stringify([session.transfer, session.direction, session.peer, session.is_own]);

/** Adds the rate of each session since the answer before. */
function useRates(): (load: Load) => Rated[] {
  const last = useRef(new Map<string, { moved: number; at: number }>());
  return useCallback((load: Load) => {
    const at = performance.now();
    const before = last.current;
    last.current = new Map();
    return load.sessions.map((session) => {
      const key = identity(session);
      const known = before.get(key);
      last.current.set(key, { moved: session.moved, at });
      const seconds = known ? (at - known.at) / 1000 : 0;
      // A new session of the transfer counts from 0 again.
      const isComparable = known && seconds > 0 && session.moved >= known.moved;
      return { ...session, rate: isComparable ? (session.moved - known.moved) / seconds : null };
    });
  }, []);
}

/** Reads the load of the endpoint again and again, while the page is visible. */
export function useLoad(api: Api, expired: () => void): Polled<RatedLoad> {
  const rated = useRates();
  const read = useCallback(async () => {
    const load = await api.load();
    return { ...load, sessions: rated(load) };
  }, [api, rated]);
  return usePoll(read, LOAD_SECONDS, expired);
}
