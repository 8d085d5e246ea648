// All texts of the console. To translate the console, translate this file.

import type {
  Direction,
  FileState,
  LogVerdict,
  Pattern,
  RateLimit,
  Reason,
  Stage,
  State,
  TargetState,
  VersionState,
} from "./types";
import type { Verdict } from "./verdict";

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
  live: "Not ended",
  terminal: "Ended",
};

interface Cause {
  cause: string;
  remedy: string;
}

/**
 * The step that takes most of a transfer's time, and a remedy (docs/how-to/scripts.md). The
 * functions get the names of the endpoints of the source and of the destination.
 */
export const bottleneck: Record<
  Exclude<Stage, "rate">,
  (source: string, sink: string) => Cause
> = {
  list: (source) => ({
    cause: `The transfer waits while ${source} lists the source folder.`,
    remedy: "Use source storage that lists folders faster, or larger files.",
  }),
  decide: (_, sink) => ({
    cause: `${sink} looks up existing files and opens partial files at the destination.`,
    remedy: "Use destination storage with faster lookups.",
  }),
  read: (source) => ({
    cause: `The transfer waits until the storage of the source, at ${source}, has read data.`,
    remedy: "Use faster storage, or spread the files over more storage targets.",
  }),
  network: (source, sink) => ({
    cause: `The network between ${source} and ${sink} accepts no more data.`,
    remedy: "Use more streams, another route, or larger socket buffers.",
  }),
  credit: (_, sink) => ({
    cause: `The transfer waits for free memory at the destination, ${sink}.`,
    remedy: "Ask the administrators of both endpoints for more memory for buffers.",
  }),
  retry: () => ({
    cause: "The transfer waits before it sends data again.",
    remedy: "Read the notices: they name the cause.",
  }),
  verdict: (_, sink) => ({
    cause: `All data is sent, and ${sink} finishes the files.`,
    remedy: "Use larger files, or a network path with a shorter round trip.",
  }),
  arrival: (source, sink) => ({
    cause: `${sink} waits for data from ${source}.`,
    remedy: "Check the source and the network.",
  }),
  write: (_, sink) => ({
    cause: `The transfer waits until the storage of the destination, at ${sink}, has written data.`,
    remedy: "Use faster storage, or more storage targets.",
  }),
  sync: (_, sink) => ({
    cause: `The transfer waits until ${sink} has made data safe on its storage.`,
    remedy: "Use faster destination storage.",
  }),
  publish: (_, sink) => ({
    cause: `${sink} gives files their final names, or reads files back.`,
    remedy: "Use destination storage that renames faster.",
  }),
};

/** Causes and remedies of each kind of rate limit. The arguments: rate, name, this endpoint. */
export const limit: Record<
  RateLimit["kind"],
  [(most: string, name: string, here: string) => string, (here: string) => string]
> = {
  request: [
    (most) => `The highest rate of this transfer is ${most}.`,
    () => 'Raise "Highest rate" under Actions, or clear the field.',
  ],
  endpoint: [
    (most, _, here) => `All transfers of the endpoint ${here} together may use ${most}.`,
    (here) => `Wait for other transfers, or ask the administrator of ${here}.`,
  ],
  root: [
    (most, name, here) => `All transfers of the root ${name} at ${here} together may use ${most}.`,
    (here) => `Use another root, or ask the administrator of ${here}.`,
  ],
  owner: [
    (most, name, here) => `All transfers of the owner ${name} at ${here} together may use ${most}.`,
    (here) => `Wait for your other transfers, or ask the administrator of ${here}.`,
  ],
  peer: [
    (most, name, here) => `All transfers between ${here} and ${name} together may use ${most}.`,
    (here) => `Wait for other transfers, or ask the administrator of ${here}.`,
  ],
  link: [
    (most, other, here) =>
      `The path between ${here} and ${other} carries at most ${most}, as measured. ` +
      `Either a rate limit of ${other} or the network is the cause.`,
    () => "Ask the administrator of the other endpoint for its limit, or use another route.",
  ],
};

/** The rate limit is not one of this endpoint. */
export const otherLimit = {
  cause: (other: string) => `A rate limit of the other endpoint, ${other}, holds the transfer back.`,
  remedy: (other: string) => `Ask the administrator of ${other} for a larger share.`,
  within: {
    cause: "The endpoint divides its rate between several transfers.",
    remedy: "Wait for other transfers, or ask the administrator for a larger share.",
  },
};

/** The relation of a transfer to its deadline, in the column of deadlines. */
export const verdict: Record<Exclude<Verdict, "open">, string> = {
  kept: "kept",
  missed: "missed",
  missing: "will be missed",
  late: "missed at this rate",
};

export const logVerdict: Record<LogVerdict, string> = {
  trusted: "continues",
  not_trusted: "starts over",
  refused: "refused",
};

export const reason: Record<Reason, string> = {
  not_before: "The start time of the transfer is in the future.",
  planned: "The transfer gets the rate that its promise needs.",
  spare: "The transfer gets more than its promise needs, because other transfers leave rate unused.",
  short: "The transfer gets less than its promise needs, because less rate is available than before.",
  ceiling: "The transfer gets the highest rate that it may use.",
  suspended: "The transfer waits now, because other transfers need all of the rate.",
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

/** The route of a session that the page cannot name better. */
const route: Record<Direction, (other: string, here: string, roots: string) => string> = {
  out: (other, here, roots) => `${here}: ${roots} → ${other}`,
  in: (other, here, roots) => `${other} → ${here}: ${roots}`,
  within: (_, here, roots) => `${here}: ${roots}`,
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
  nav: { label: "Pages", transfers: "Transfers", site: "Site", new: "New transfer" },
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
    new: "New transfer",
    none: "No transfer matches the filters.",
    empty: "There are no transfers yet.",
    first: "Copy files or folders with a new transfer.",
    interrupted: "interrupted",
    measuring: "measuring",
    loading: "Loading transfers",
    count: (shown: number, loaded: number, more: boolean) =>
      more
        ? `${shown} of the newest ${loaded} transfers`
        : shown === loaded
          ? `${shown} ${shown === 1 ? "transfer" : "transfers"}`
          : `${shown} of ${loaded} transfers`,
    columns: {
      state: "State",
      route: "Transfer",
      progress: "Progress",
      rate: "Rate",
      finish: "End",
      deadline: "Deadline",
      owner: "Owner",
    },
    sources: (first: string, more: number) => (more > 0 ? `${first} and ${more} more` : first),
  },
  incoming: {
    heading: "Sessions that other endpoints started",
    columns: ["Direction", "Other endpoint", "Root", "Files", "Data", "Rate", "Owner"],
    incoming: "incoming",
    outgoing: "outgoing",
    into: (roots: string) => `into ${roots}`,
    from: (roots: string) => `from ${roots}`,
    hint:
      "The other endpoint controls these sessions. Its console shows their promises, failures " +
      "and ends.",
  },
  show: {
    back: "All transfers",
    missing: "There is no such transfer.",
    promise: "Promise",
    kept: (hasDeadline: boolean) =>
      hasDeadline
        ? "The endpoint promises that the transfer ends before its deadline."
        : "The endpoint promises the lowest rate of the transfer.",
    notPromised: (hasDeadline: boolean) =>
      hasDeadline
        ? "The endpoint does not promise that the transfer ends before its deadline."
        : "The transfer has no deadline, so the endpoint promises nothing.",
    deadline: "Deadline",
    inTime: "The transfer was done before its deadline.",
    late: "The transfer was not done before its deadline.",
    passed: "The deadline has passed.",
    cancelledBefore: "The transfer was cancelled, so its deadline no longer applies.",
    willBeLate: "At the current rate, the transfer will end after its deadline.",
    promiseUnknown:
      "The endpoint decides about the promise again when the other endpoint answers.",
    expected: "Estimated end",
    expectedTitle: "At the present rate. A promised transfer may get a higher rate later.",
    measuring: "measuring the rate",
    listing: "unknown until all files are listed",
    between: (early: string, late: string) => `${early} at the earliest, ${late} at the latest`,
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
    interrupted: "Interrupted",
    unreachableSince: (name: string, when: string, ago: string) =>
      `The other endpoint, ${name}, has been unreachable since ${when} (for ${ago}).`,
    interruptedSince: (when: string, ago: string) =>
      `The transfer has been interrupted since ${when} (for ${ago}).`,
    keptBytes: (bytes: string) =>
      `${bytes} are safe at the destination and will not be sent again.`,
    nextTryIn: (duration: string) => `The endpoint tries again automatically in ${duration}.`,
    tryingNow: "The endpoint is trying again now.",
    tryingSoon: "The endpoint tries again automatically as soon as it has a free place.",
    giveUp: (tries: number) =>
      `The transfer fails after ${tries === 1 ? "1 try" : `${tries} consecutive tries`} without ` +
      "new data. Retry then continues from the data that is safe.",
    unreachableRemedy: (other: string) =>
      `Ask the administrator of ${other} to check that this endpoint runs. Then press Retry: the ` +
      "transfer continues from the data that is safe.",
    result: "Result",
    meanRate: "Average rate",
    took: "Duration",
    to: "to",
    id: "Id",
    bytes: "Safe at the destination",
    bytesTitle:
      "Durable bytes: they are on the storage of the destination, and a crash or a power loss " +
      "does not lose them.",
    of: (part: string, whole: string) => `${part} of ${whole}`,
    sent: "Sent",
    resumed: "Not sent again",
    rate: "Rate",
    granted: "Permitted rate",
    grantedTitle: (here: string) => `The rate that ${here} lets the transfer use now.`,
    unlimited: "no limit",
    chart: "Rate while this page is open",
    chartSummary: (now: string, highest: string, gaps: number) => {
      const sum = `now ${now}, highest ${highest}`;
      if (gaps === 0) return sum;
      return `${sum}; ${gaps === 1 ? "1 gap" : `${gaps} gaps`} without a running session`;
    },
    heat: "Objects by storage target",
    heatHint: (seconds: number) =>
      `An object is a piece of a file, for example 1 MiB; a storage target is a disk or a server. Each ` +
      `cell is ${seconds} s of the time since this page was opened. Darker cells have more ` +
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
    attempt: "Attempts",
    attemptTitle: "The first start, and each press of Retry.",
    tries: "Tries in this attempt",
    triesTitle: "After an interruption, the endpoint tries again automatically.",
    receipt: "Receipt",
    receiptNumber: (sequence: number, here: string) => `number ${sequence} of ${here}`,
    receiptSave: "Save the receipt",
    labels: "Labels",
    purged: "The partial data was removed.",
  },
  files: {
    heading: "Files under way",
    none: "No file is under way now.",
    unreported: "The session has not reported its files yet.",
    columns: ["File", "State", "Progress", "Size"],
    more: (count: number, shown: string) =>
      count === 1 ? "1 more file is under way." : `${shown} more files are under way.`,
    tree: "Folders",
    treeOfSession: "Folders in this session",
    sessionHint:
      "The sums began again after the last interruption. Files that are already at the " +
      "destination count as soon as the endpoint has looked at them.",
    root: "the whole transfer",
    sums: (done: string, files: string, size: string) => `${done} of ${files} files, ${size}`,
    foldersMore: (count: number, shown: string) =>
      count === 1 ? "including 1 folder without a row" : `including ${shown} folders without a row`,
    failed: (count: string, size: string) => `${count} failed (${size})`,
  },
  log: {
    heading: "Object log",
    hint:
      "The destination logs which parts of unfinished files are safe. After an interruption, only " +
      "the other parts are sent.",
    read: "Read the log",
    again: "Read the log again",
    more: "Show more files",
    none: "The destination has no log of this transfer: no file is unfinished.",
    elsewhere: (endpoint: string) =>
      `The log is at ${endpoint}, in the folder .dray-log of the destination. The command ` +
      "`dray log explain` prints the log there.",
    place: "Log file",
    form: "Form",
    formTitle: "The mechanism and the method by which the destination writes the log.",
    formOf: (log: { form: string; is_async: boolean; has_sums: boolean }) =>
      `${log.form}, written ${log.is_async ? "by a thread of its own" : "synchronously"}, ` +
      `${log.has_sums ? "with" : "without"} checksums`,
    holder: "Last written by transfer",
    files: "Unfinished files",
    size: "Size of the log",
    columns: ["File", "Safe", "Next session", "Reason"],
    trusted: (part: string, whole: string) => `${part} of ${whole}`,
    range: (start: string, end: string) => `bytes ${start} to ${end}`,
    moreRanges: (count: string) => `and ${count} more ranges`,
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
      columns: ["Target", "End", "State", "Sessions", "Objects under way", "Time for an object"],
      end: { source: "source", sink: "destination" },
      device: (number: string) => `disk ${number}`,
      deviceTitle:
        "The host gives this number (major:minor) to the disk. The key `targets` of a root gives " +
        "the disk a name.",
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
        `due ${deadline}, the deadline will be missed; cause: ${cause}`,
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
      heading: "Running sessions",
      none: "No session is running that you may see.",
      columns: ["Transfer", "Owner", "Controlled by", "Data", "Rate", "Permitted rate"],
      route,
      held: "held: other transfers go first",
      hidden: (count: number) =>
        count === 1 ? "1 session is not shown." : `${count} sessions are not shown.`,
    },
  },
  deadline: {
    label: "Deadline",
    minutes: "+5 min",
    hour: "+1 h",
    tomorrow: "tomorrow 08:00",
    none: "none",
  },
  copy: {
    heading: "New transfer",
    hint:
      "A transfer copies files. Choose files or folders at the source, and a folder at the " +
      "destination. A click chooses, a double click or Enter opens a folder.",
    source: "Source",
    destination: "Destination",
    endpoint: "Endpoint",
    here: (name: string) => `${name} (this endpoint)`,
    peerToken: (name: string) => `Token for ${name}`,
    peerHint: (name: string, here: string) =>
      `${here} passes the token on to ${name}, and does not keep it. The page keeps the token ` +
      "until you log out or reload. Use a token with few rights and a short lifetime.",
    ownToken: "Use the token of my login",
    ownTokenHint: (name: string, here: string) =>
      `This works if ${name} accepts the token with which you logged in. ${name} then sees the ` +
      `token and could use it at ${here}, so press the button only if you trust ${name}.`,
    connect: "Connect",
    bothFar: (here: string) => `The source or the destination must be at ${here}.`,
    root: "Root",
    path: "Path",
    open: "Open",
    openFolder: (name: string) => `Open ${name}`,
    up: "Up",
    loading: "Loading the folder",
    empty: "The folder is empty.",
    more: "Show more entries",
    full: (count: number) => `The page shows the first ${count} entries. Open a subfolder.`,
    columns: ["Name", "Size", "Changed"],
    choose: (name: string, isFolder: boolean, isDestination: boolean) =>
      isDestination
        ? `Copy into the folder ${name}`
        : isFolder
          ? `Choose the folder ${name}`
          : `Choose the file ${name}`,
    folder: "folder",
    link: "link",
    special: "special file",
    newFolder: "New folder",
    create: "Create",
    chosen: (count: number) => (count === 1 ? "1 entry chosen" : `${count} entries chosen`),
    counted: (
      files: string,
      size: string,
      { isComplete, isRunning }: { isComplete: boolean; isRunning: boolean },
    ) => {
      const sum = `${files} ${files === "1" ? "file" : "files"}, ${size}`;
      if (isComplete) return sum;
      return isRunning ? `counting, ${sum} so far` : `at least ${sum}`;
    },
    clear: "Clear the choice",
    into: (endpoint: string, folder: string) => `The copies go into ${endpoint}: ${folder}`,
    most: (count: number) => `A transfer has at most ${count} sources. Choose their folder instead.`,
    settings: "Settings",
    rateMax: "Highest rate (MiB/s)",
    expected: "Size of the folders (GiB)",
    expectedHint: "for a promise",
    sizeNeeded:
      "The endpoint promises a deadline only if it knows the size. Enter the size of the folders.",
    rateNeeded:
      "The endpoint promises no deadlines, because its administrator has set no rate. You can start " +
      "the transfer; the page of the transfer shows its estimated end.",
    bestEffort: "Start now, although the deadline cannot be promised",
    chooseFirst: "Choose at least one file or folder at the source.",
    connectFirst: "Connect to the other endpoint.",
    counting: "Counting the files",
    checking: "Asking the endpoint",
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
    cancelQuestion: (route: string) => `Cancel the transfer ${route}?`,
    cancelKeeps:
      "The endpoint keeps the data that has arrived, so that a retry does not send it again.",
    purge: "Also remove the partial data",
    cancelConfirm: "Cancel the transfer",
    cancelBack: "Go back",
    priority: "Priority (0 to 9)",
    rateMax: "Highest rate (MiB/s)",
    rateHint: "empty: no limit",
    change: "Change",
    changed: "The endpoint has accepted the change.",
    nothing: "You have changed nothing.",
    offer: (when: string) => `The earliest deadline that the endpoint can promise is ${when}.`,
    needs: (needed: string, available: string) =>
      `The request needs ${needed}; the endpoint can promise ${available}.`,
    accept: "Use this deadline",
  },
  failed: {
    unreachable: "The endpoint does not answer.",
    unreachableRemedy: "Check the connection. The page tries again automatically.",
  },
  time: {
    now: "now",
    ahead: (duration: string) => `in ${duration}`,
    ago: (duration: string) => `${duration} ago`,
  },
};
