// The texts about the causes of a transfer's rate, with remedies. `strings.ts` exports them.

import type { RateLimit, Stage } from "./types";

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
    remedy: "Use source storage that lists folders faster, or fewer and larger files.",
  }),
  decide: (_, sink) => ({
    cause: `${sink} looks up existing files and opens partial files at the destination.`,
    remedy: "Use destination storage with faster lookups.",
  }),
  read: (source) => ({
    cause: `The transfer waits for reads from the source storage at ${source}.`,
    remedy: "Use faster storage, or spread the files over more storage targets.",
  }),
  network: (source, sink) => ({
    cause: `The network between ${source} and ${sink} carries no more data.`,
    remedy: "Use more streams, another route, or larger socket buffers.",
  }),
  credit: (_, sink) => ({
    cause: `The transfer waits for free memory at the destination, ${sink}.`,
    remedy: "Ask the administrators of both endpoints for more memory for buffers.",
  }),
  retry: () => ({
    cause: "The transfer waits before it sends data again.",
    remedy: "Read the notices under Details. They name the cause.",
  }),
  verdict: (_, sink) => ({
    cause: `The source has sent all data, and ${sink} finishes the files.`,
    remedy: "Use larger files, or a network path with a shorter round trip.",
  }),
  arrival: (source, sink) => ({
    cause: `${sink} waits for data from ${source}.`,
    remedy: "Check the source and the network.",
  }),
  write: (_, sink) => ({
    cause: `The transfer waits for writes to the destination storage at ${sink}.`,
    remedy: "Use faster storage, or more storage targets.",
  }),
  sync: (_, sink) => ({
    cause: `The transfer waits until ${sink} has made data safe on its storage.`,
    remedy: "Use faster destination storage.",
  }),
  publish: (_, sink) => ({
    cause: `${sink} gives files their final names, or reads files back to verify them.`,
    remedy: "Use destination storage that renames and reads files faster.",
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
    (here) => `Wait for other transfers, or ask the administrator of ${here} for a higher limit.`,
  ],
  root: [
    (most, name, here) => `All transfers of the root ${name} at ${here} together may use ${most}.`,
    (here) => `Use another root, or ask the administrator of ${here} for a higher limit.`,
  ],
  owner: [
    (most, name, here) => `All transfers of the owner ${name} at ${here} together may use ${most}.`,
    (here) =>
      `Wait for your other transfers, or ask the administrator of ${here} for a higher limit.`,
  ],
  peer: [
    (most, name, here) => `All transfers between ${here} and ${name} together may use ${most}.`,
    (here) => `Wait for other transfers, or ask the administrator of ${here} for a higher limit.`,
  ],
  link: [
    (most, other, here) =>
      `According to measurements, the path between ${here} and ${other} carries at most ${most}. ` +
      `The cause is a rate limit of ${other} or the network.`,
    () => "Ask the administrator of the other endpoint for its limit, or use another route.",
  ],
};

/** The rate limit is not one of this endpoint. */
export const otherLimit = {
  cause: (other: string) =>
    `A rate limit of the other endpoint, ${other}, holds the transfer back.`,
  remedy: (other: string) => `Ask the administrator of ${other} for a larger share.`,
  within: {
    cause: "The endpoint divides its rate between several transfers.",
    remedy: "Wait for other transfers, or ask the administrator for a larger share.",
  },
};
