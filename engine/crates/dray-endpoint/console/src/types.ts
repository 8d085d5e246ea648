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
  rate?: number | null;
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
  ticket?: string;
  key?: string;
  address?: string;
}

/** Another endpoint in the configuration of this endpoint. */
export interface Peer {
  name: string;
  address: string;
}

/** A peer that the user has opened with a token for it. */
export interface Far {
  peer: Peer;
  token: string;
  roots: Root[];
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
  retry?: { tries: number } | null;
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

/** The limit of this endpoint that determines the permitted rate of a transfer. */
export interface RateLimit {
  kind: "request" | "endpoint" | "root" | "owner" | "peer" | "link";
  name: string | null;
  rate: number;
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
  rate_limit: RateLimit | null;
  silent_seconds: number | null;
  interrupted_since: string | null;
  promised: boolean;
  eta_between: { early: string; late: string | null } | null;
  miss: Miss | null;
  purged: boolean;
  error: ErrorParts | null;
  failures: PathError[];
  notices: string[];
  receipt: { id: string; sequence: number } | null;
}

export interface Event {
  id: number;
  type: "state" | "progress" | "file_failed" | "notice" | "planned" | "gap";
  transfer?: string;
  files?: Files;
  bytes?: Bytes;
  rate?: Rates;
}

export interface Root {
  name: string;
  read: boolean;
  write: boolean;
  stage: boolean;
}

export interface Endpoint {
  name: string;
  version: string;
  roots: Root[];
  retry: { tries: number };
  you: { principal: string; owner: string; administrator: boolean };
}

export interface Space {
  total: number;
  free: number;
  available: number;
}

export type TargetState = "fair" | "congested" | "stuck";

/** Order of targets in lists: the worst first. */
export const SEVERITY: Record<TargetState, number> = { stuck: 0, congested: 1, fair: 2 };

export interface Target {
  end: "source" | "sink";
  name: string;
  sessions: number;
  under_way: number;
  service_seconds: number | null;
  state: TargetState;
}

export type FileState = "waiting" | "moving" | "verifying" | "publishing";

export interface LiveFile {
  path: string;
  size: number;
  bytes_done: number;
  state: FileState;
}

export interface FolderSums {
  path: string;
  files: number;
  bytes: number;
  files_done: number;
  bytes_done: number;
  failed: number;
  bytes_failed: number;
  folders_more: number;
}

export interface LiveFiles {
  is_reported: boolean;
  files: LiveFile[];
  files_more: number;
  folders: FolderSums[];
}

export type LogVerdict = "trusted" | "not_trusted" | "refused";

/** An unfinished file in the object log of a transfer. */
export interface LogFile {
  path: string;
  size: number;
  bytes_logged: number;
  bytes_trusted: number;
  verdict: LogVerdict;
  why: string;
  trusted: { offset: number; length: number }[];
  ranges_more: number;
}

export interface TransferLog {
  /** Address of the endpoint that has the log; null for this endpoint. */
  endpoint: string | null;
  log: {
    path: string;
    form: string;
    mechanism: string;
    method: string;
    is_async: boolean;
    has_sums: boolean;
    transfer: string;
    files: number;
    bytes: number;
    damage: string | null;
  } | null;
  files: LogFile[];
  next: string | null;
}

export type Direction = "out" | "in" | "within";

export interface Session {
  transfer: string;
  owner: string;
  peer: string | null;
  direction: Direction;
  is_own: boolean;
  roots: string[];
  granted: number | null;
  held: boolean;
  moved: number;
  listed: number;
  files_done: number;
  files_listed: number;
}

export interface Promised {
  transfer: string;
  owner: string;
  bytes: number | null;
  deadline: string | null;
  rate_min: number | null;
  latest_start: string;
  resources: string[];
  planned: number | null;
  reason: Reason | null;
  miss: Miss | null;
}

export interface Load {
  sessions: Session[];
  promises: Promised[];
  hidden: { sessions: number; promises: number };
}

export type Pattern = "when_idle" | "from_threshold" | "from_start";
export type VersionState = "written" | "demoting" | "demoted" | "deleting" | "slow";

export interface Version {
  application: string;
  version: number;
  state: VersionState;
  bytes: number;
  written_at: string;
  used_at: string;
  pinned_until: string | null;
  kept: string | null;
  error: string | null;
}

export interface Tier {
  name: string;
  fast: string[];
  slow: string;
  capacity: number;
  watermark: number;
  rounds: number;
  used: number;
  incoming: number;
  waiting: number;
  missing: number;
  dwsf: number;
  dwpp: number;
  dwpp_max: number | null;
  pattern: Pattern | null;
  start: number;
  full: number;
  is_writing: boolean;
  demotion_rate: number;
  devices: { root: string; used: number; free: number; error: string | null }[];
  error: string | null;
  versions: Version[];
}

export interface Entry {
  path: string;
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  size: number;
  modified_at: string;
}

/** A request for a new transfer. */
export interface Draft {
  sources: Place[];
  destination: Place;
  selection: { recursive: boolean };
  deadline?: string;
  rate_max?: number;
  bytes_expected?: number;
  admission?: "best_effort";
}

export interface Admission {
  decision: "accept" | "refuse";
  transfers: Admitted[];
}

export interface Patch {
  priority?: number;
  rate_max?: number | null;
  deadline?: string | null;
}

const LIVE: readonly State[] = ["queued", "active", "waiting", "paused"];

export const isLive = (state: State): boolean => LIVE.includes(state);

/** True if a session broke off, and the endpoint tries again automatically. */
export const isInterrupted = ({ state, interrupted_since }: Transfer): boolean =>
  interrupted_since !== null && state !== "paused" && isLive(state);

/** The logins of the endpoint, and the session of this browser (`GET /ui/session`). */
export interface LoginState {
  logins: { name: string; address: string }[];
  user: { name: string } | null;
  has_ended: boolean;
}
