// The endpoint's decision about a request, before the request is started.

import { useEffect, useRef, useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import type { Admission, Draft } from "./types";

/** Pause between the last change of the form and the check. */
const CHECK_PAUSE_MS = 400;

/** Interval of the checks of a request with a deadline. */
const CHECK_AGAIN_MS = 10_000;

/** Returns an id that no earlier transfer has. */
function freshId(): string {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return `ui-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The answer to a check, with the request that was checked. */
interface Checked {
  id: string;
  wanted: string;
  decision: Admission;
}

interface Calls {
  checked: Checked | null;
  error: CallError | null;
  isBusy: boolean;
  start: (call: () => Promise<void>) => Promise<void>;
}

/** Checks the request after each change of it; null if the request is not complete. */
export function useCalls(api: Api, wanted: Draft | null, expired: () => void): Calls {
  const [checked, setChecked] = useState<Checked | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [round, setRound] = useState(0);
  const named = useRef({ key: "", id: "" });
  const key = wanted && JSON.stringify(wanted);
  const failed = (reason: unknown): void => {
    const refused = asCallError(reason);
    if (refused.code === 401) expired();
    else setError(refused);
  };
  useEffect(() => setError(null), [key]);
  useEffect(() => {
    if (key === null || wanted === null) return undefined;
    // A repeated start of the same request has the same id, so it starts no second transfer.
    if (named.current.key !== key) named.current = { key, id: freshId() };
    const { id } = named.current;
    let isWanted = true;
    let timer = 0;
    const check = (): void => {
      api.admission(wanted).then(
        (decision) => {
          if (!isWanted) return;
          setChecked({ id, wanted: key, decision });
          // The decision about a deadline changes with the time.
          if (wanted.deadline) timer = window.setTimeout(check, CHECK_AGAIN_MS);
        },
        (reason) => isWanted && failed(reason),
      );
    };
    timer = window.setTimeout(check, CHECK_PAUSE_MS);
    return () => {
      isWanted = false;
      window.clearTimeout(timer);
    };
  }, [api, key, round]);
  const start = async (call: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await call();
    } catch (reason) {
      failed(reason);
      // The endpoint decided otherwise than in the check.
      setChecked(null);
      setRound((before) => before + 1);
    }
    setBusy(false);
  };
  // A check holds only for the request that it was made for.
  return { checked: checked?.wanted === key ? checked : null, error, isBusy, start };
}
