// The state of the page: the loaded transfers, kept current by the stream of events.
//
// Progress events change a row directly. Every other event about a transfer makes the store read
// the transfer again, many ids in one call. After a gap in the events the store reads the list
// again.

import { Api, asCallError, type CallError, type ListFilter } from "./api";
import {
  isLive,
  type Bytes,
  type Event,
  type Files,
  type Rates,
  type State,
  type Transfer,
} from "./types";

/** Maximum number of transfers that the list holds. The list then names the newest ones. */
export const ROWS_MAX = 10_000;
const QUERY_PAUSE_MS = 400;
const QUERY_IDS_MAX = 1000;
/** Interval at which a moving transfer without a known end is read again. */
const MEASURE_MS = 3000;
const RECONNECT_MS_MIN = 1000;
const RECONNECT_MS_MAX = 15_000;
/** A century: a later end would not be a valid date. */
const SECONDS_MAX = 3.2e9;

export type Connection = "connecting" | "live" | "lost";
type Listener = () => void;

/** Returns the class of a transfer; a request without a class has the endpoint's default. */
function classOf({ request }: Transfer): string {
  return request.class ?? (request.deadline ? "deadline" : "background");
}

/** Returns the expected end at the current rate, which no event contains. */
function eta(files: Files, bytes: Bytes, rate: Rates): string | null {
  if (!rate.now || !files.listing_done) return null;
  const seconds = Math.max(0, bytes.listed - bytes.durable) / rate.now;
  return new Date(Date.now() + 1000 * Math.min(seconds, SECONDS_MAX)).toISOString();
}

export class Store {
  readonly rows = new Map<string, Transfer>();
  connection: Connection = "connecting";
  isLoading = false;
  hasMore = false;
  error: CallError | null = null;
  filter: ListFilter = { state: "", class: "" };

  readonly #api: Api;
  readonly #expired: () => void;
  readonly #listeners = new Set<Listener>();
  readonly #stopping = new AbortController();
  readonly #stale = new Set<string>();
  #isDrawn = true;
  /** Times at which transfers without a known end were read again, by id. */
  readonly #measured = new Map<string, number>();
  #queryTimer: number | undefined;
  #queryPause = QUERY_PAUSE_MS;
  #queryError: CallError | null = null;
  #loads = 0;
  #last: number | null = null;

  constructor(api: Api, expired: () => void) {
    this.#api = api;
    this.#expired = expired;
  }

  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    void this.#follow();
  }

  stop(): void {
    this.#stopping.abort();
    window.clearTimeout(this.#queryTimer);
  }

  /** Returns true if the transfer passes the filters that the endpoint applies. */
  has(transfer: Transfer): boolean {
    const { state, class: wanted } = this.filter;
    if (wanted && classOf(transfer) !== wanted) return false;
    if (state === "") return true;
    if (state === "live") return isLive(transfer.state);
    if (state === "terminal") return !isLive(transfer.state);
    return transfer.state === (state as State);
  }

  /** Reads the list again, page by page. A later call replaces the calls before it. */
  async load(): Promise<void> {
    this.#loads += 1;
    const load = this.#loads;
    this.isLoading = true;
    this.#changed();
    const found = new Map<string, Transfer>();
    let cursor: string | null = null;
    try {
      do {
        const page = await this.#api.list(this.filter, cursor);
        if (load !== this.#loads || this.#stopping.signal.aborted) return;
        for (const transfer of page.transfers) found.set(transfer.id, transfer);
        cursor = page.next;
        // Show the first page while the others are read.
        if (found.size > this.rows.size) this.#replace(found);
      } while (cursor !== null && found.size < ROWS_MAX);
      this.#replace(found);
      this.hasMore = cursor !== null;
      this.error = null;
    } catch (error) {
      if (load !== this.#loads) return;
      this.#failed(error);
    }
    this.isLoading = false;
    this.#changed();
  }

  #replace(found: Map<string, Transfer>): void {
    this.rows.clear();
    for (const [id, transfer] of found) this.rows.set(id, transfer);
    this.#changed();
  }

  /** Drops the oldest rows. Otherwise a page that stays open would grow without a bound. */
  #trim(): void {
    if (this.rows.size <= ROWS_MAX + QUERY_IDS_MAX) return;
    const rows = [...this.rows.values()];
    rows.sort((a, b) => (a.submitted_at < b.submitted_at ? 1 : -1));
    for (const row of rows.slice(ROWS_MAX)) this.rows.delete(row.id);
    this.hasMore = true;
  }

  put(transfer: Transfer): void {
    this.rows.set(transfer.id, transfer);
    this.#changed();
  }

  /** Reads a transfer again. Calls within a short time become one call of the API. */
  refresh(id: string): void {
    this.#stale.add(id);
    if (this.#queryTimer !== undefined) return;
    this.#queryTimer = window.setTimeout(() => {
      this.#queryTimer = undefined;
      void this.#query();
    }, this.#queryPause);
  }

  /** Reads a transfer without a known end again, at most once in some seconds. */
  #measure(id: string): void {
    const now = Date.now();
    if (now - (this.#measured.get(id) ?? 0) < MEASURE_MS) return;
    if (this.#measured.size > ROWS_MAX) this.#measured.clear();
    this.#measured.set(id, now);
    this.refresh(id);
  }

  async #query(): Promise<void> {
    const ids = [...this.#stale].slice(0, QUERY_IDS_MAX);
    for (const id of ids) this.#stale.delete(id);
    try {
      for (const [id, transfer] of await this.#api.query(ids)) {
        if (transfer === null) this.rows.delete(id);
        else if (this.rows.has(id) || this.has(transfer)) this.rows.set(id, transfer);
      }
      this.#trim();
      this.#queryPause = QUERY_PAUSE_MS;
      if (this.error === this.#queryError) this.error = null;
    } catch (error) {
      for (const id of ids) this.#stale.add(id);
      this.#queryPause = Math.min(2 * this.#queryPause, RECONNECT_MS_MAX);
      this.#failed(error);
      this.#queryError = this.error;
    }
    const [next] = this.#stale;
    if (next !== undefined && !this.#stopping.signal.aborted) this.refresh(next);
    this.#changed();
  }

  async #follow(): Promise<void> {
    let pause = RECONNECT_MS_MIN;
    const signal = this.#stopping.signal;
    while (!signal.aborted) {
      try {
        const opened = (): void => {
          pause = RECONNECT_MS_MIN;
          this.connection = "live";
          // Without a last event the page does not know the events before this moment. After an
          // error, a new list replaces its message.
          if (this.#last === null || this.error !== null) void this.load();
          this.#changed();
        };
        await this.#api.events(this.#last, signal, opened, (event) => this.#hear(event));
      } catch (error) {
        if (signal.aborted) return;
        this.#failed(error);
      }
      if (signal.aborted) return;
      this.connection = "lost";
      this.#changed();
      await new Promise((done) => window.setTimeout(done, pause));
      pause = Math.min(2 * pause, RECONNECT_MS_MAX);
    }
  }

  #hear(event: Event): void {
    this.#last = event.id;
    if (event.type === "gap") {
      void this.load();
      return;
    }
    const id = event.transfer;
    if (id === undefined) return;
    const row = this.rows.get(id);
    if (event.type !== "progress") {
      this.refresh(id);
      return;
    }
    if (row === undefined || !isLive(row.state)) return;
    const files = event.files ?? row.files;
    const bytes = event.bytes ?? row.bytes;
    const rate = event.rate ?? row.rate;
    // After the first seconds of a session, its rate says little. The endpoint decides when the
    // rate is known: until then it returns no end.
    const isMeasured = row.eta !== null;
    if (!isMeasured) this.#measure(id);
    const end = isMeasured ? eta(files, bytes, rate) : null;
    // Data moves, so an earlier interruption and its error are over.
    const isMoving = bytes.sent > row.bytes.sent;
    const over = isMoving ? { interrupted_since: null, silent_seconds: null } : {};
    this.rows.set(id, { ...row, files, bytes, rate, eta: end, ...over });
    this.#changed();
  }

  #failed(error: unknown): void {
    // An answer after a logout must not end the next session.
    if (this.#stopping.signal.aborted) return;
    const failed = asCallError(error);
    if (failed.code === 401) {
      this.stop();
      this.#expired();
      return;
    }
    this.error = failed;
  }

  /** Tells the listeners of a change, at most once per frame. */
  #changed(): void {
    if (!this.#isDrawn) return;
    this.#isDrawn = false;
    window.requestAnimationFrame(() => {
      this.#isDrawn = true;
      for (const listener of this.#listeners) listener();
    });
  }
}
