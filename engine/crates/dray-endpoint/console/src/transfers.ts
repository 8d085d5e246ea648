// The transfers that a page names, although the list may not hold them.

import { useEffect, useState } from "preact/hooks";
import type { Api } from "./api";
import type { Store } from "./store";
import type { Transfer } from "./types";

/** Maximum number of transfers of one call. */
const IDS_MAX = 1000;

/** Returns the transfers with these ids, from the list or by a call. */
export function useTransfers(
  api: Api,
  store: Store,
  ids: readonly string[],
): ReadonlyMap<string, Transfer> {
  const [read, setRead] = useState<ReadonlyMap<string, Transfer | null>>(new Map());
  const missing = [...new Set(ids)].filter((id) => !store.rows.has(id) && !read.has(id));
  const key = missing.slice(0, IDS_MAX).join("\n");
  useEffect(() => {
    if (key === "") return undefined;
    let isShown = true;
    // Without an answer, the page shows the ids, and asks again with the next change.
    api.query(key.split("\n")).then(
      (found) => isShown && setRead((before) => new Map([...before, ...found])),
      () => undefined,
    );
    return () => {
      isShown = false;
    };
  }, [api, key]);
  const known = new Map<string, Transfer>();
  for (const id of ids) {
    const found = store.rows.get(id) ?? read.get(id);
    if (found) known.set(id, found);
  }
  return known;
}
