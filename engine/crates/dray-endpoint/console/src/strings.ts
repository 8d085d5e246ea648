// All texts of the console. To translate the console, translate this file.

import type {
  Direction,
  FileState,
  Pattern,
  Reason,
  Stage,
  State,
  TargetState,
  VersionState,
} from "./types";

export const state: Record<State, string> = {
  queued: "queued",
  active: "active",
  waiting: "waiting to retry",
  paused: "paused",
  done: "done",
  incomplete: "incomplete",
  failed: "failed",
  cancelled: "cancelled",
};

export const filter = {
  all: "All states",
  live: "Live",
  terminal: "Ended",
};

/** The step that takes most of a transfer's time, and a remedy (docs/how-to/scripts.md). */
export const bottleneck: Record<Stage, { cause: string; remedy: string }> = {
  list: {
    cause: "The transfer waits for the listing of the source folder.",
    remedy: "Use source storage that lists folders faster, or larger files.",
  },
  decide: {
    cause: "The destination looks up existing files and opens partial files.",
    remedy: "Use destination storage with faster lookups.",
  },
  rate: {
    cause: "A rate limit holds the transfer back.",
    remedy: "Raise the rate limit of the transfer, or ask the administrator for a larger share.",
  },
  read: {
    cause: "The transfer waits for reads of the source's storage.",
    remedy: "Use faster storage, or spread the files over more storage targets.",
  },
  network: {
    cause: "The network accepts no more data.",
    remedy: "Use more streams, another route, or larger socket buffers.",
  },
  credit: {
    cause: "The transfer waits for free buffers at the destination.",
    remedy: "Give both ends more memory for buffers.",
  },
  retry: {
    cause: "The transfer waits before it sends objects again.",
    remedy: "Read the notices: they name the cause of the retry.",
  },
  verdict: {
    cause: "All data is sent, and the destination finishes the files.",
    remedy: "Use larger files, or a network path with a shorter round trip.",
  },
  arrival: {
    cause: "The destination waits for data.",
    remedy: "Check the source and the network.",
  },
  write: {
    cause: "The transfer waits for writes of the destination's storage.",
    remedy: "Use faster storage, or more storage targets.",
  },
  sync: {
    cause: "The transfer waits until the destination has made data durable.",
    remedy: "Use faster destination storage.",
  },
  publish: {
    cause: "The destination gives files their final names, or reads files back.",
    remedy: "Use destination storage that renames faster.",
  },
};

export const reason: Record<Reason, string> = {
  not_before: "The start time of the transfer is in the future.",
  planned: "The transfer gets the rate that its promise needs.",
  spare: "The transfer gets more than its promise needs, from unused rate.",
  short: "The transfer gets less than its promise needs, because a resource provides less now.",
  ceiling: "The transfer gets the highest rate that it may use.",
  suspended: "No rate is planned for the transfer now, and no unused rate is left.",
};

export const fileState: Record<FileState, string> = {
  waiting: "waiting",
  moving: "moving",
  verifying: "being verified",
  publishing: "getting its final name",
};

export const target: Record<TargetState, string> = {
  fair: "fair",
  congested: "congested",
  stuck: "stuck",
};

export const direction: Record<Direction, string> = {
  out: "to",
  in: "from",
  within: "within this endpoint",
};

export const pattern: Record<Pattern, string> = {
  when_idle: "The tier demotes versions only while no application writes.",
  from_threshold: "The tier also demotes while applications write, after the first threshold.",
  from_start: "The tier demotes from the first byte of a period.",
};

export const version: Record<VersionState, string> = {
  written: "only on the fast root",
  demoting: "being demoted",
  demoted: "on both roots",
  deleting: "being deleted from the fast root",
  slow: "only on the slow root",
};

export const text = {
  title: "dray",
  nav: { label: "Pages", transfers: "Transfers", site: "Site", move: "Move" },
  skip: "Skip to the content",
  login: {
    heading: "Log in",
    label: "Token",
    hint:
      "Paste a token for this endpoint. The page keeps the token in memory only: after a reload " +
      "you paste it again.",
    submit: "Log in",
    busy: "Checking the token",
    expired: "The endpoint no longer accepts the token. Log in with a new token.",
    ended: "Your session has ended. Log in again to return to this page.",
    loggedOut: "You are logged out of this endpoint. The provider may still know your login.",
    with: (provider: string) => `Log in with ${provider}`,
    orToken: "Or use a token",
  },
  logout: "Log out",
  caller: (owner: string, administrator: boolean) =>
    administrator ? `${owner} (administrator)` : owner,
  user: (name: string, caller: string) => `${name}, ${caller}`,
  connection: {
    live: "Live",
    connecting: "Connecting",
    lost: "The connection is lost. The numbers below are old. The page is reconnecting.",
  },
  list: {
    heading: "Transfers",
    search: "Search",
    searchHint: "id, owner, URL or label",
    states: "State",
    classes: "Class",
    allClasses: "All classes",
    none: "No transfer matches the filters.",
    loading: "Loading transfers",
    count: (shown: number, loaded: number, more: boolean) =>
      more
        ? `${shown} of the newest ${loaded} transfers`
        : shown === loaded
          ? `${shown} ${shown === 1 ? "transfer" : "transfers"}`
          : `${shown} of ${loaded} transfers`,
    columns: {
      state: "State",
      id: "Transfer",
      route: "From and to",
      progress: "Progress",
      rate: "Rate",
      finish: "End",
      owner: "Owner",
    },
    sources: (first: string, more: number) => (more > 0 ? `${first} and ${more} more` : first),
    miss: "will miss its deadline",
    due: (when: string) => `due ${when}`,
    ends: (when: string) => `ends ${when}`,
    ended: (when: string) => `ended ${when}`,
  },
  show: {
    back: "All transfers",
    missing: "There is no such transfer.",
    promise: "Promise",
    kept: "The endpoint has promised this transfer.",
    notPromised: "The endpoint has promised nothing for this transfer.",
    deadline: "Deadline",
    expected: "Expected end",
    between: (early: string, late: string) => `between ${early} and ${late}`,
    unknown: "unknown",
    noDeadline: "none",
    missed: "The endpoint predicts that it cannot keep the promise.",
    missedEarliest: (when: string) => `Earliest possible end: ${when}`,
    planned: (rate: string) => `Planned rate: ${rate}.`,
    bottleneck: "Bottleneck",
    balanced: "No single step takes most of the time.",
    silent: (seconds: string) => `No data has moved for ${seconds}.`,
    held: "The scheduling policy holds this transfer: other transfers go first.",
    remedy: "Remedy",
    cause: "Cause",
    progress: "Progress",
    files: "Files",
    filesDone: (done: string, listed: string, final: boolean) =>
      final ? `${done} of ${listed}` : `${done} of ${listed} found so far`,
    filesFailed: (count: string) => `${count} failed`,
    filesSkipped: (count: string) => `${count} skipped`,
    bytes: "Durable",
    of: (part: string, whole: string) => `${part} of ${whole}`,
    sent: "Sent",
    resumed: "Kept from earlier attempts",
    rate: "Rate",
    granted: "Permitted rate",
    unlimited: "no limit",
    chart: "Rate while this page is open",
    chartSummary: (now: string, highest: string) => `now ${now}, highest ${highest}`,
    heat: "Objects by storage target",
    heatHint: (seconds: number) =>
      `Each cell is ${seconds} s of the time since this page was opened. Darker cells have more ` +
      "objects under way. The colour is the state of the target.",
    heatColumns: ["Target", "End", "Objects under way", "Now"],
    heatNone: "No session of the transfer uses a storage target now.",
    heatLabel: (name: string, now: number, most: number, state: string) =>
      `${name}: ${now} objects now, ${most} at most, ${state}`,
    failures: "Failures",
    noFailures: "No file has failed.",
    firstFailures: (shown: number, failed: string) =>
      `The first ${shown} of ${failed} failed files.`,
    moreFailures: "Show more failed files",
    error: "Error",
    notices: "Notices",
    details: "Details",
    source: "Source",
    destination: "Destination",
    owner: "Owner",
    submitted: "Submitted",
    started: "Started",
    ended: "Ended",
    nextTry: "Next try",
    attempt: "Attempt",
    tries: "Tries",
    labels: "Labels",
    purged: "The partial data was removed.",
  },
  files: {
    heading: "Files under way",
    none: "No file is under way now.",
    unreported: "The session has not reported its files yet.",
    columns: ["File", "State", "Durable", "Size"],
    more: (count: number, shown: string) =>
      count === 1 ? "1 more file is under way." : `${shown} more files are under way.`,
    tree: "Folders",
    root: "the whole transfer",
    sums: (done: string, files: string, size: string) => `${done} of ${files} files, ${size}`,
    foldersMore: (count: number, shown: string) =>
      count === 1 ? "including 1 folder without a row" : `including ${shown} folders without a row`,
    failed: (count: string, size: string) => `${count} failed (${size})`,
  },
  site: {
    heading: "Site",
    old: "The numbers below are old, because the last call failed.",
    cut: (shown: number, all: number) => `The first ${shown} of ${all}.`,
    loading: "Loading",
    none: "none",
    roots: {
      heading: "Roots",
      columns: ["Root", "You may", "Space", "Free"],
      rights: { read: "read", write: "write", stage: "stage" },
      noRights: "nothing in the whole root",
      used: (part: string, whole: string) => `${part} of ${whole} used`,
      unknown: "unknown",
    },
    targets: {
      heading: "Storage targets",
      none: "No running transfer uses a storage target.",
      columns: ["Target", "End", "State", "Sessions", "Objects", "Service time"],
      end: { source: "source", sink: "destination" },
      service: (millis: string) => `${millis} ms`,
      label: (millis: string) => `${millis} ms for an object on average`,
    },
    tiers: {
      heading: (name: string) => `Tier ${name}`,
      unscanned: "The endpoint has not examined this tier yet.",
      space: "Space",
      spaceLabel: (used: string, capacity: string, watermark: string) =>
        `${used} of ${capacity} used; above ${watermark} the tier deletes fast copies`,
      period: "Written in this period (DWSF)",
      periodLabel: (written: string, start: string, full: string) =>
        `${written} written; demotions start at ${start} and are fastest from ${full}`,
      expected: "Expected in a period (DWPP)",
      expectedOf: (expected: string, most: string) => `${expected}, at most ${most}`,
      tooMuch: "Applications write more than the tier can demote. Make the fast roots larger.",
      writing: "An application writes now.",
      idle: "No application writes now.",
      demotions: "Demotion rate",
      incoming: "Still to arrive",
      waiting: "Waiting for space",
      missing: (missing: string) =>
        `${missing} should be free and cannot be freed. Unpin copies, or wait for demotions.`,
      device: (root: string) => `The root ${root} cannot be reached.`,
      versions: "Versions",
      noVersions: "This tier has no versions that you may see.",
      columns: ["Version", "Size", "State", "Last use", "Next"],
      victim: "may be deleted from the fast root",
      kept: (why: string) => `kept: ${why}`,
    },
    promises: {
      heading: "Promises",
      none: "There is no promise that you may see.",
      columns: ["Transfer", "Owner", "Time line", "Deadline", "Planned rate"],
      axis: (last: string) => `The time lines begin now and end ${last}.`,
      label: (start: string, deadline: string) => `must run from ${start}, due ${deadline}`,
      late: (cause: string, deadline: string) =>
        `will miss its deadline, due ${deadline}; cause: ${cause}`,
      rateOnly: (rate: string) => `at least ${rate}`,
      hidden: (count: number) =>
        count === 1 ? "1 promise is not shown." : `${count} promises are not shown.`,
    },
    owners: {
      heading: "Owners",
      none: "No session is running that you may see.",
      columns: ["Owner", "Sessions", "Share of the rate", "Rate", "Permitted rate"],
      label: (part: string) => `${part} of the rate of these owners`,
    },
    sessions: {
      heading: "Connected",
      columns: ["Transfer", "Owner", "Other end", "Driven by", "Moved", "Permitted rate"],
      here: "this endpoint",
      there: "the other end",
      held: "held",
      hidden: (count: number) =>
        count === 1 ? "1 session is not shown." : `${count} sessions are not shown.`,
    },
  },
  move: {
    heading: "Move",
    hint: "Choose files or folders at the source, and a folder at the destination.",
    source: "Source",
    destination: "Destination",
    endpoint: "Endpoint",
    here: "this endpoint",
    peerToken: (name: string) => `Token for ${name}`,
    peerHint:
      "This endpoint passes the token on to the other endpoint, and does not keep it. Use a token " +
      "with few rights and a short lifetime.",
    connect: "Connect",
    bothFar: "The source or the destination must be at this endpoint.",
    root: "Root",
    path: "Path",
    open: "Open",
    up: "Up",
    loading: "Loading the folder",
    empty: "The folder is empty.",
    more: "Show more entries",
    full: (count: number) => `The page shows the first ${count} entries. Open a subfolder.`,
    columns: ["Name", "Size", "Changed"],
    choose: (name: string) => `Choose ${name}`,
    folder: "folder",
    link: "link",
    special: "special file",
    newFolder: "New folder",
    create: "Create",
    chosen: (count: number) => (count === 1 ? "1 entry chosen" : `${count} entries chosen`),
    clear: "Clear the choice",
    into: (folder: string) => `The copies go into ${folder}`,
    most: (count: number) => `A transfer has at most ${count} sources. Choose their folder instead.`,
    settings: "Settings",
    deadline: "Deadline",
    rateMax: "Highest rate (MiB/s)",
    expected: "Expected size (GiB)",
    expectedHint: "for a promise about folders",
    bestEffort: "Start even if the endpoint cannot promise the deadline",
    check: "Check",
    checkHint: "The check asks the endpoint for its decision and starts nothing.",
    start: "Start the transfer",
    accepted: "The endpoint accepts the transfer. Without a deadline it promises nothing.",
    promised: (rate: string, finish: string) =>
      `The endpoint can promise the deadline. Planned rate: ${rate}. Planned end: ${finish}.`,
    unpromised: "The endpoint accepts the transfer, but promises nothing now:",
    refused: "The endpoint cannot promise the deadline.",
  },
  act: {
    heading: "Actions",
    pause: "Pause",
    resume: "Resume",
    retry: "Retry",
    cancel: "Cancel the transfer",
    cancelQuestion: (id: string) => `Cancel the transfer ${id}?`,
    cancelKeeps:
      "The endpoint keeps the data that has arrived, so that a retry does not send it again.",
    purge: "Also remove the partial data",
    cancelConfirm: "Cancel the transfer",
    cancelBack: "Go back",
    priority: "Priority (0 to 9)",
    rateMax: "Highest rate (MiB/s)",
    rateHint: "empty: no limit",
    deadline: "Deadline",
    change: "Change",
    changed: "The endpoint has accepted the change.",
    nothing: "Nothing is changed.",
    offer: (when: string) => `The earliest deadline that the endpoint can promise is ${when}.`,
    needs: (needed: string, available: string) =>
      `The request needs ${needed}; the endpoint can promise ${available}.`,
    accept: "Use this deadline",
  },
  failed: {
    unreachable: "The endpoint does not answer.",
    unreachableRemedy: "Check the connection. The page tries again by itself.",
  },
  time: {
    now: "now",
    ahead: (duration: string) => `in ${duration}`,
    ago: (duration: string) => `${duration} ago`,
  },
};
