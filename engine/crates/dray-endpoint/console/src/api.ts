// Calls of the control API. A token exists only in this object, in the memory of the page. The id of
// a session is in a cookie that scripts cannot read.

import { text } from "./strings";
import type {
  Admission,
  Draft,
  Endpoint,
  Entry,
  ErrorParts,
  Event,
  Far,
  LiveFiles,
  Load,
  LoginState,
  PathError,
  Patch,
  Peer,
  Place,
  Space,
  Target,
  Tier,
  Transfer,
  TransferLog,
} from "./types";

/** A refused call, or an endpoint that does not answer. */
export class CallError extends Error {
  readonly code: number;
  readonly parts: ErrorParts;

  constructor(code: number, parts: ErrorParts) {
    super(parts.message);
    this.code = code;
    this.parts = parts;
  }
}

function plain(code: number, cause: string, remedy: string): CallError {
  const parts = { kind: "other", status: "temporary", end: "here", operation: "", file: null };
  return new CallError(code, { ...parts, cause, remedy, message: cause });
}

async function refusal(response: Response): Promise<CallError> {
  try {
    const body = (await response.json()) as { error: ErrorParts };
    return new CallError(response.status, body.error);
  } catch {
    return plain(response.status, `HTTP ${response.status}`, text.failed.unreachableRemedy);
  }
}

export const asCallError = (error: unknown): CallError =>
  error instanceof CallError
    ? error
    : plain(0, text.failed.unreachable, text.failed.unreachableRemedy);

interface Page {
  transfers: Transfer[];
  next: string | null;
}

export interface ListFilter {
  state: string;
  class: string;
}

const PAGE = 1000;
const RETRY_MS = 300;
const ENTRIES_PAGE = 500;

const one = (id: string): string => `/v1/transfers/${encodeURIComponent(id)}`;

/** True if the user has done something since the last call with a session. */
let isActive = true;

for (const kind of ["keydown", "pointerdown", "wheel"]) {
  const noted = (): void => {
    isActive = true;
  };
  window.addEventListener(kind, noted, { capture: true, passive: true });
}

/** Returns the header of a call with a session. Pages of other sites cannot set this header. */
function sessionHeader(): string {
  const value = isActive ? "active" : "idle";
  isActive = false;
  return value;
}

const SESSION = "/ui/session";

/** Asks which logins exist, and whether this browser has a session. */
export async function loginState(): Promise<LoginState> {
  // This call never extends a session.
  const headers = { "Dray-Console": "idle" };
  const options: RequestInit = { headers, credentials: "same-origin", cache: "no-store" };
  const response = await fetch(SESSION, options);
  if (!response.ok) throw await refusal(response);
  return (await response.json()) as LoginState;
}

export class Api {
  readonly #token: string | null;

  /** With the token `null`, the calls use the session of the browser. */
  constructor(token: string | null) {
    this.#token = token;
  }

  /** True if the login has a token, and not a session. */
  get hasToken(): boolean {
    return this.#token !== null;
  }

  async #fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.#token === null) headers.set("Dray-Console", sessionHeader());
    else headers.set("Authorization", `Bearer ${this.#token}`);
    // With a token, the browser must present neither a cookie nor its user's certificate.
    const credentials = this.#token === null ? "same-origin" : "omit";
    const options: RequestInit = { ...init, headers, credentials, cache: "no-store" };
    const response = await fetch(path, options);
    if (!response.ok) throw await refusal(response);
    return response;
  }

  async #get<T>(path: string): Promise<T> {
    const read = async (): Promise<T> => (await (await this.#fetch(path)).json()) as T;
    try {
      return await read();
    } catch (error) {
      // A refusal is an answer. Any other failure may be a change of the reader's network, which
      // makes a browser abort its calls.
      if (error instanceof CallError) throw error;
      await new Promise((done) => window.setTimeout(done, RETRY_MS));
      return read();
    }
  }

  async #send<T>(method: string, path: string, body: unknown): Promise<T> {
    const headers = { "Content-Type": "application/json" };
    const response = await this.#fetch(path, { method, headers, body: JSON.stringify(body) });
    return (await response.json()) as T;
  }

  /** Ends the session. Without a session, the page only forgets the token. */
  async logout(): Promise<void> {
    if (this.#token === null) await this.#fetch(SESSION, { method: "DELETE" });
  }

  endpoint(): Promise<Endpoint> {
    return this.#get("/v1/endpoint");
  }

  load(): Promise<Load> {
    return this.#get("/v1/endpoint/load");
  }

  /** Returns the storage targets of all running sessions, or of a transfer's sessions. */
  async targets(transfer?: string): Promise<Target[]> {
    const query = transfer === undefined ? "" : `?${new URLSearchParams({ transfer })}`;
    return (await this.#get<{ targets: Target[] }>(`/v1/targets${query}`)).targets;
  }

  async tierNames(): Promise<string[]> {
    const answer = await this.#get<{ tiers: { name: string }[] }>("/v1/tiers");
    return answer.tiers.map(({ name }) => name);
  }

  tier(name: string): Promise<Tier> {
    return this.#get(`/v1/tiers/${encodeURIComponent(name)}`);
  }

  space(path: string): Promise<Space> {
    return this.#get(`/v1/storage/space?${new URLSearchParams({ path })}`);
  }

  async entries(
    path: string,
    cursor: string | null,
    far: Far | null,
  ): Promise<[Entry[], string | null]> {
    const query = new URLSearchParams({ path, limit: String(ENTRIES_PAGE) });
    if (cursor !== null) query.set("cursor", cursor);
    type Entries = { entries: Entry[]; next: string | null };
    const body = { path, limit: ENTRIES_PAGE, cursor };
    const page = far
      ? await this.#atPeer<Entries>(far.peer, "list", far.token, body)
      : await this.#get<Entries>(`/v1/storage/list?${query}`);
    return [page.entries, page.next];
  }

  /** Makes a call to a peer through this endpoint: the page itself connects to no other host. */
  #atPeer<T>(peer: Peer, what: string, token: string, body: object): Promise<T> {
    return this.#send("POST", `/v1/peers/${encodeURIComponent(peer.name)}/${what}`, {
      token,
      ...body,
    });
  }

  async peers(): Promise<Peer[]> {
    return (await this.#get<{ peers: Peer[] }>("/v1/peers")).peers;
  }

  /** Opens a peer with a token for it; null for the token of the login. */
  async open(peer: Peer, given: string | null): Promise<Far> {
    const token = given ?? this.#token ?? "";
    const { roots } = await this.#atPeer<Endpoint>(peer, "endpoint", token, {});
    return { peer, token, roots };
  }

  /** Returns the ticket of a peer for one transfer, as a part of a request. */
  async ticket(
    far: Far,
    transfer: string,
    direction: "read" | "write",
    paths: string[],
  ): Promise<Omit<Place, "url">> {
    const wanted = { transfer, direction, paths };
    const found = await this.#atPeer<Required<Place>>(far.peer, "ticket", far.token, wanted);
    return { ticket: found.ticket, key: found.key, address: found.address };
  }

  mkdir(path: string, far: Far | null): Promise<Entry> {
    if (far) return this.#atPeer(far.peer, "mkdir", far.token, { path, parents: true });
    return this.#send("POST", "/v1/storage/mkdir", { path, parents: true });
  }

  /** Asks for the decision about a promise. Changes nothing. */
  admission(draft: Draft): Promise<Admission> {
    return this.#send("POST", "/v1/admission", { transfers: [draft] });
  }

  /** Starts a transfer. With the same id, a repeated call starts nothing twice. */
  submit(id: string, draft: Draft): Promise<Transfer> {
    return this.#send("POST", "/v1/transfers", { id, ...draft });
  }

  list(filter: ListFilter, cursor: string | null): Promise<Page> {
    const query = new URLSearchParams({ limit: String(PAGE) });
    if (filter.state) query.set("state", filter.state);
    if (filter.class) query.set("class", filter.class);
    if (cursor !== null) query.set("cursor", cursor);
    return this.#get(`/v1/transfers?${query}`);
  }

  /** Returns the transfers with these ids; `null` for an id that does not exist. */
  async query(ids: string[]): Promise<Map<string, Transfer | null>> {
    const body = await this.#send<{ transfers: Record<string, Transfer | null> }>(
      "POST",
      "/v1/transfers/query",
      { ids: ids.slice(0, PAGE) },
    );
    return new Map(Object.entries(body.transfers));
  }

  show(id: string): Promise<Transfer> {
    return this.#get(one(id));
  }

  liveFiles(id: string): Promise<LiveFiles> {
    return this.#get(`${one(id)}/live`);
  }

  /** Returns a page of the object log of a transfer. */
  log(id: string, cursor: string | null): Promise<TransferLog> {
    const query = new URLSearchParams({ limit: "100" });
    if (cursor !== null) query.set("cursor", cursor);
    return this.#get(`${one(id)}/log?${query}`);
  }

  /** Returns the signed receipt of a transfer, with its list of files. */
  async receipt(id: string): Promise<Blob> {
    return (await this.#fetch(`${one(id)}/receipt`)).blob();
  }

  async failures(id: string, cursor: string | null): Promise<[PathError[], string | null]> {
    const query = new URLSearchParams({ state: "failed", limit: "100" });
    if (cursor !== null) query.set("cursor", cursor);
    interface Answer {
      files: { path: string; error: ErrorParts | null }[];
      next: string | null;
    }
    const page = await this.#get<Answer>(`${one(id)}/files?${query}`);
    const failed = page.files.flatMap(({ path, error }) => (error ? [{ path, error }] : []));
    return [failed, page.next];
  }

  act(id: string, action: "pause" | "resume" | "retry"): Promise<Transfer> {
    return this.#send("POST", `${one(id)}/${action}`, {});
  }

  cancel(id: string, purge: boolean): Promise<Transfer> {
    return this.#send("POST", `${one(id)}/cancel`, { purge });
  }

  patch(id: string, patch: Patch): Promise<Transfer> {
    return this.#send("PATCH", one(id), patch);
  }

  /**
   * Reads the stream of events until it ends. `EventSource` cannot be used, because it sends no
   * `Authorization` header, and a token must not be in a URL.
   */
  async events(
    after: number | null,
    signal: AbortSignal,
    opened: () => void,
    each: (event: Event) => void,
  ): Promise<void> {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (after !== null) headers["Last-Event-ID"] = String(after);
    const response = await this.#fetch("/v1/events", { headers, signal });
    if (!response.body) return;
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        // The endpoint sends the whole event in one `data` line; the other fields repeat its parts.
        if (line.startsWith("data:")) each(JSON.parse(line.slice(5)) as Event);
      }
    }
  }
}
