// The parts of the control API's answers that the console shows (docs/reference/api.md).

export type State =
  | "queued"
  | "active"
  | "waiting"
  | "paused"
  | "done"
  | "incomplete"
  | "failed"
  | "cancelled";

export type Stage =
  | "list"
  | "decide"
  | "rate"
  | "read"
  | "network"
  | "credit"
  | "retry"
  | "verdict"
  | "arrival"
  | "write"
  | "sync"
  | "publish";

export type Reason = "not_before" | "planned" | "spare" | "short" | "ceiling" | "suspended";

export interface Admitted {
  promised?: boolean;
  finish?: string | null;
  latest?: string | null;
  earliest_finish?: string | null;
  rate_needed?: number | null;
  rate_available?: number | null;
  obstacle?: { kind: string; resource: string; promises: number } | null;
  reasons?: string[];
}

export interface ErrorParts {
  kind: string;
  status: string;
  end: string;
  operation: string;
  file: string | null;
  cause: string;
  remedy: string;
  message: string;
  admission?: Admitted | null;
}

export interface Place {
  url: string;
}

export interface Request {
  sources: Place[];
  destination: Place;
  deadline?: string | null;
  class?: string | null;
  priority?: number;
  rate_max?: number | null;
  rate_min?: number | null;
  activity?: string | null;
  labels?: Record<string, string>;
}

export interface Files {
  listed: number;
  done: number;
  failed: number;
  skipped: number;
  adopted: number;
  listing_done: boolean;
}

export interface Bytes {
  listed: number;
  durable: number;
  resumed: number;
  adopted: number;
  sent: number;
}

export interface Rates {
  now: number | null;
  mean: number | null;
  granted: number | null;
  planned: number | null;
  reason: Reason | null;
}

export interface PathError {
  path: string;
  error: ErrorParts;
}

export interface Miss {
  cause: string;
  deadline: string | null;
  earliest_finish: string | null;
}

export interface Transfer {
  id: string;
  attempt: number;
  tries: number;
  state: State;
  version: number;
  owner: string;
  request: Request;
  submitted_at: string;
  started_at: string | null;
  ended_at: string | null;
  next_try_at: string | null;
  files: Files;
  bytes: Bytes;
  bottleneck: Stage | null;
  rate: Rates;
  held: boolean;
  eta: string | null;
  silent_seconds: number | null;
  promised: boolean;
  eta_between: { early: string; late: string | null } | null;
  miss: Miss | null;
  purged: boolean;
  error: ErrorParts | null;
  failures: PathError[];
  notices: string[];
}

export interface Event {
  id: number;
  type: "state" | "progress" | "file_failed" | "notice" | "planned" | "gap";
  transfer?: string;
  files?: Files;
  bytes?: Bytes;
  rate?: Rates;
}

export interface Endpoint {
  name: string;
  version: string;
  you: { principal: string; owner: string; administrator: boolean };
}

export interface Patch {
  priority?: number;
  rate_max?: number | null;
  deadline?: string | null;
}

const LIVE: readonly State[] = ["queued", "active", "waiting", "paused"];

export const isLive = (state: State): boolean => LIVE.includes(state);
