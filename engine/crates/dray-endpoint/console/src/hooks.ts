// Hooks that several parts of the page share.

import { useEffect, useRef, useState } from "preact/hooks";
import { asCallError, type CallError } from "./api";
import type { Store } from "./store";

/** Draws the component again after each change of the store, at most every `pause` milliseconds. */
export function useStore(store: Store, pause: number): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let timer: number | undefined;
    const stop = store.subscribe(() => {
      timer ??= window.setTimeout(() => {
        timer = undefined;
        setTurn((before) => before + 1);
      }, pause);
    });
    // The store may have changed between the first drawing and this moment.
    setTurn((before) => before + 1);
    return () => {
      stop();
      window.clearTimeout(timer);
    };
  }, [store, pause]);
  return turn;
}

/** Returns the present time, which changes every `seconds`. */
export function useNow(seconds: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), 1000 * seconds);
    return () => window.clearInterval(timer);
  }, [seconds]);
  return now;
}

/** Returns the part of the address after `#`. It names the page and never holds a secret. */
export function useHash(): string {
  const [hash, setHash] = useState(window.location.hash);
  useEffect(() => {
    const changed = (): void => setHash(window.location.hash);
    window.addEventListener("hashchange", changed);
    // The address may have changed between the first drawing and this moment.
    changed();
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

/** Returns true while the window is narrow; rows of the list are then higher (app.css). */
export function useNarrow(): boolean {
  const [query] = useState(() => window.matchMedia("(max-width: 48rem)"));
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = (): void => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return isNarrow;
}

/**
 * Returns a function to call at the start of a read. It returns a function that is true while the
 * answer is wanted: until the next read, until `key` changes, and while the component is shown.
 */
export function useNewest(key: string): () => () => boolean {
  const newest = useRef(0);
  useEffect(
    () => () => {
      newest.current += 1;
    },
    [key],
  );
  return () => {
    newest.current += 1;
    const read = newest.current;
    return () => read === newest.current;
  };
}

export interface Polled<T> {
  value: T | null;
  error: CallError | null;
}

/**
 * Reads a value again `seconds` after each answer, while the page is visible. `read` and `expired`
 * must stay the same between two drawings.
 */
export function usePoll<T>(
  read: () => Promise<T>,
  seconds: number,
  expired: () => void,
): Polled<T> {
  const [polled, setPolled] = useState<Polled<T>>({ value: null, error: null });
  useEffect(() => {
    let isShown = true;
    let timer: number | undefined;
    const again = async (): Promise<void> => {
      try {
        if (!document.hidden) {
          const value = await read();
          if (isShown) setPolled({ value, error: null });
        }
      } catch (failed) {
        const error = asCallError(failed);
        if (error.code === 401 && isShown) {
          expired();
          return;
        }
        // Keep the last value: the page says that it is old.
        if (isShown) setPolled(({ value }) => ({ value, error }));
      }
      if (isShown) timer = window.setTimeout(() => void again(), 1000 * seconds);
    };
    void again();
    return () => {
      isShown = false;
      window.clearTimeout(timer);
    };
  }, [read, seconds, expired]);
  return polled;
}
