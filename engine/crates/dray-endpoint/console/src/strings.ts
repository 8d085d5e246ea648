// All texts of the console. To translate the console, translate this file and `causes.ts`.

import type {
  Direction,
  FileState,
  LogVerdict,
  Pattern,
  Reason,
  State,
  TargetState,
  VersionState,
} from "./types";
import type { Verdict } from "./verdict";

export * from "./causes";

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

/** The relation of a transfer to its deadline, in the column of deadlines. */
export const verdict: Record<Exclude<Verdict, "open">, string> = {
  kept: "kept",
  missed: "missed",
  missing: "will be missed",
  late: "will be missed at this rate",
};

export const logVerdict: Record<LogVerdict, string> = {
  trusted: "continues",
  not_trusted: "starts over",
  refused: "fails",
};

export const reason: Record<Reason, string> = {
  not_before: "The start time of the transfer is in the future.",
  planned: "The transfer gets the rate that its promise needs.",
  spare: "The transfer gets more than its promise needs, because other transfers need less.",
  short: "The transfer gets less than its promise needs, because the available rate has decreased.",
  ceiling: "The transfer gets the highest rate that it may use.",
  suspended: "The transfer waits, because other transfers need the whole rate now.",
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
    heading: "Log in to dray",
    label: "Token",
    hint:
      "Paste a token for this endpoint. An administrator of the endpoint can make a token for you." +
      " The page keeps the token in memory only, so you paste it again after a reload.",
    submit: "Log in",
    busy: "Checking the token",
    expired: "The endpoint no longer accepts the token. Log in with a new token.",
    ended: "Your session has ended. Log in again to return to this page.",
    loggedOut:
      "You are logged out of this endpoint. Your session at the login provider may still be open.",
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
    lost: "The connection is lost. The numbers below are old. The page connects again by itself.",
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
    heading: "Transfers that other endpoints control",
    columns: ["Direction", "Other endpoint", "Root", "Files", "Data", "Rate", "Owner"],
    incoming: "incoming",
    outgoing: "outgoing",
    into: (roots: string) => `into ${roots}`,
    from: (roots: string) => `from ${roots}`,
    hint:
      "The other endpoint has started these transfers. Use its console to see their promises and " +
      "failures, and to change them.",
    /** Several known endpoints have the address. */
    oneOf: (names: string[], address: string) => `${names.join(" or ")} (${address})`,
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
    willBeLate: "At this rate, the transfer will miss its deadline.",
    promiseUnknown:
      "The endpoint promised the deadline before the interruption. When the transfer continues, " +
      "the endpoint checks whether it can still keep the promise.",
    expected: "Estimated end",
    expectedTitle:
      "The end at the present rate. A promised transfer may get a higher rate later.",
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
      "new data. The button Retry then continues from the data that is safe.",
    unreachableRemedy: (other: string) =>
      `Ask the administrator of the endpoint ${other} to check that ${other} runs. Then press ` +
      "Retry: the transfer continues from the data that is safe.",
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
    resumed: "Kept from earlier tries",
    resumedTitle:
      "These bytes were already safe at the destination, so the transfer does not send them again.",
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
      "An object is a piece of a file, for example 1 MiB. A storage target is a disk or a server." +
      ` Each cell shows ${seconds} s; the newest cell is at the right. A darker cell has more ` +
      "objects under way. The colour shows the state of the target.",
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
    attemptTitle:
      "The transfer begins with attempt 1. Each press of Retry begins the next attempt.",
    tries: "Tries in this attempt",
    triesTitle: "After an interruption, the endpoint begins the next try automatically.",
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
      count === 1 ? "includes 1 folder without a row" : `includes ${shown} folders without a row`,
    failed: (count: string, size: string) => `${count} failed (${size})`,
  },
  log: {
    heading: "Object log",
    hint:
      "The destination logs which parts of unfinished files are safe. After an interruption, the " +
      "transfer sends only the other parts.",
    read: "Read the log",
    again: "Read the log again",
    more: "Show more files",
    none:
      "The destination has no log of this transfer: the transfer has not begun, or no file is " +
      "unfinished.",
    elsewhere: (endpoint: string) =>
      `The log is at ${endpoint}, in the folder .dray-log of the destination. The command ` +
      "`dray log explain` prints the log there.",
    place: "Log file",
    form: "Form",
    formTitle: "The mechanism and the method by which the destination writes the log.",
    formOf: (log: { form: string; is_async: boolean; has_sums: boolean }) =>
      `${log.form}, written ${log.is_async ? "by a separate thread" : "synchronously"}, ` +
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
    cut: (shown: number, all: number) => `Only the first ${shown} of ${all} are shown.`,
    loading: "Loading",
    none: "none",
    roots: {
      heading: "Roots",
      columns: ["Root", "You may", "Space", "Free"],
      rights: { read: "read", write: "write", stage: "stage" },
      noRights: "no right in the whole root",
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
      label: (start: string, deadline: string) =>
        `latest start: ${start}; deadline: ${deadline}`,
      late: (cause: string, deadline: string) =>
        `deadline: ${deadline}; the deadline will be missed; cause: ${cause}`,
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
    none: "no deadline",
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
    as: (name: string) => ` (as ${name})`,
    most: (count: number) =>
      `A transfer can have at most ${count} chosen entries. Choose their folder instead.`,
    settings: "Settings",
    rateMax: "Highest rate (MiB/s)",
    expected: "Size of the folders (GiB)",
    expectedHint: "for a promise",
    sizeNeeded:
      "The endpoint promises a deadline only if it knows the size. Enter the size of the folders.",
    rateNeeded:
      "This endpoint cannot promise deadlines, because its administrator has not configured its " +
      "rate. You can still start the transfer. The page of the transfer shows its estimated end.",
    bestEffort: "Start even if the endpoint cannot promise the deadline",
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
    /** The same for a transfer that is done. */
    again: "Run again",
    cancel: "Cancel the transfer",
    cancelQuestion: (route: string) => `Cancel the transfer ${route}?`,
    cancelKeeps:
      "The endpoint keeps the data that has arrived, so that a retry does not send it again.",
    purge: "Also remove the partial data",
    cancelConfirm: "Cancel the transfer",
    cancelBack: "Go back",
    priority: "Priority (0 is the lowest, 9 the highest)",
    rateMax: "Highest rate (MiB/s)",
    rateHint: "empty: no limit",
    change: "Change",
    changed: "The endpoint has accepted the change.",
    nothing: "No field has changed.",
    offer: (when: string) => `The earliest deadline that the endpoint can promise is ${when}.`,
    needs: (needed: string, available: string) =>
      `The request needs ${needed}; the endpoint can promise ${available}.`,
    accept: "Use this deadline",
  },
  failed: {
    unreachable: "The endpoint of this page does not answer.",
    unreachableRemedy: "Check your network connection. The page tries again automatically.",
  },
  time: {
    now: "now",
    ahead: (duration: string) => `in ${duration}`,
    ago: (duration: string) => `${duration} ago`,
  },
};
