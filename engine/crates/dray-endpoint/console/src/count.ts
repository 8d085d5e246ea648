// Counts the files and bytes of chosen folders with the calls that list folders. Every limit of the
// count is named here: a folder may have millions of files.

import type { Api } from "./api";
import type { Entry, Far } from "./types";

/** Maximum number of calls of one count. A call returns at most 500 entries. */
const CALLS_MAX = 60;
const COUNT_MS_MAX = 15_000;

export interface Counted {
  files: number;
  bytes: number;
  /** False while the count runs, and if a limit or an error has ended the count. */
  isComplete: boolean;
  isRunning: boolean;
}

export const NOTHING: Counted = { files: 0, bytes: 0, isComplete: true, isRunning: false };

export const isFolder = (entry: Entry): boolean => entry.type === "directory";

/** Counts the files that a transfer of the entries copies. Tells `told` after each call. */
export async function countFiles(
  api: Api,
  far: Far | null,
  entries: Entry[],
  signal: AbortSignal,
  told: (counted: Counted) => void,
): Promise<void> {
  const counted = { ...NOTHING, isComplete: false, isRunning: true };
  const add = (entry: Entry): void => {
    if (entry.type !== "file") return;
    counted.files += 1;
    counted.bytes += entry.size;
  };
  entries.forEach(add);
  const waiting = entries.filter(isFolder).map(({ path }) => path);
  const until = Date.now() + COUNT_MS_MAX;
  let calls = 0;
  try {
    for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
      let cursor: string | null = null;
      do {
        if (signal.aborted) return;
        if (calls >= CALLS_MAX || Date.now() > until) {
          told({ ...counted, isRunning: false });
          return;
        }
        told({ ...counted });
        calls += 1;
        const [found, next]: [Entry[], string | null] = await api.entries(
          path.replace(/(.)\/+$/, "$1"),
          cursor,
          far,
        );
        found.forEach(add);
        waiting.push(...found.filter(isFolder).map((each) => each.path));
        cursor = next;
      } while (cursor !== null);
    }
  } catch {
    // The check of the request reports the error; the count only stays incomplete.
    if (!signal.aborted) told({ ...counted, isRunning: false });
    return;
  }
  if (!signal.aborted) told({ ...counted, isComplete: true, isRunning: false });
}
