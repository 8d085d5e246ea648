// The part of a transfer's page about its movement: an interruption, the bottleneck, or the result.

import type { JSX } from "preact";
import { absolute, bytes, duration, rate } from "./format";
import { endsOf, otherEnd, type Names } from "./names";
import { Fact, Name, Section } from "./parts";
import * as strings from "./strings";
import { isInterrupted, isLive, type Transfer } from "./types";

const words = strings.text.show;

/** Kinds of errors that mean that the other endpoint cannot be reached. */
const UNREACHABLE: ReadonlySet<string> = new Set(["unreachable", "timed_out"]);

/** Returns a remedy for users; null if the remedy of the error is already one. */
export function remedyOf(of: Transfer, names: Names): string | null {
  const other = otherEnd(of, names);
  const isUnreachable = of.error !== null && UNREACHABLE.has(of.error.kind);
  return isUnreachable && other !== null ? words.unreachableRemedy(other) : null;
}

interface Props {
  of: Transfer;
  now: number;
  names: Names;
  /** Number of tries without new data after which the endpoint gives up. */
  tries: number;
}

function nextTry(of: Transfer, now: number): string {
  if (of.state === "active") return words.tryingNow;
  const left = of.next_try_at === null ? 0 : Date.parse(of.next_try_at) - now;
  return left > 0 ? words.nextTryIn(duration(left / 1000)) : words.tryingSoon;
}

function Interrupted({ of, now, names, tries }: Props): JSX.Element {
  const since = of.interrupted_since ?? "";
  const ago = duration(Math.max(0, (now - Date.parse(since)) / 1000));
  const other = otherEnd(of, names);
  // Without an error, the endpoint tries again now and has no answer yet.
  const isUnreachable = other !== null && (of.error === null || UNREACHABLE.has(of.error.kind));
  return (
    <Section title={words.interrupted}>
      <div class="error">
        <p class="message">
          <Name
            of={
              isUnreachable
                ? words.unreachableSince(other, absolute(since), ago)
                : words.interruptedSince(absolute(since), ago)
            }
          />
        </p>
        <p>{words.keptBytes(bytes(of.bytes.durable))}</p>
        <p>{nextTry(of, now)}</p>
        <p class="hint">{words.giveUp(of.request.retry?.tries ?? tries)}</p>
        {of.error && (
          <dl>
            <Fact name={words.cause}>
              <Name of={of.error.cause || of.error.message} />
            </Fact>
          </dl>
        )}
      </div>
    </Section>
  );
}

/** Whose limit holds the transfer back, and the person who can change the limit. */
function rateLimit(of: Transfer, names: Names): { cause: string; remedy: string } {
  const limit = of.rate_limit;
  const other = otherEnd(of, names);
  if (limit) {
    const [cause, remedy] = strings.limit[limit.kind];
    const most = rate(limit.rate);
    const name = limit.name ?? other ?? words.unknown;
    return { cause: cause(most, name, names.here), remedy: remedy(names.here) };
  }
  return other === null
    ? strings.otherLimit.within
    : { cause: strings.otherLimit.cause(other), remedy: strings.otherLimit.remedy(other) };
}

function Bottleneck({ of, names }: Pick<Props, "of" | "names">): JSX.Element {
  const stage = of.bottleneck;
  const { source, sink } = endsOf(of, names);
  const found =
    stage === null
      ? null
      : stage === "rate"
        ? rateLimit(of, names)
        : strings.bottleneck[stage](source, sink);
  const isSilent = of.silent_seconds !== null;
  return (
    <Section title={words.bottleneck}>
      {of.held && <p>{words.held}</p>}
      {of.silent_seconds !== null && <p>{words.silent(duration(of.silent_seconds))}</p>}
      {!isSilent && !of.held && !found && <p>{words.balanced}</p>}
      {/* The counters of a silent transfer describe the time before. */}
      {!isSilent && found && (
        <>
          <p>
            <Name of={found.cause} />
          </p>
          <p>
            {words.remedy}: <Name of={found.remedy} />
          </p>
        </>
      )}
    </Section>
  );
}

/** The mean rate and the time of a transfer that has ended. */
function Result({ of }: { of: Transfer }): JSX.Element {
  const took =
    of.started_at && of.ended_at ? Date.parse(of.ended_at) - Date.parse(of.started_at) : null;
  return (
    <Section title={words.result}>
      <dl>
        <Fact name={words.meanRate}>{rate(of.rate.mean)}</Fact>
        <Fact name={words.took}>{took === null ? "–" : duration(took / 1000)}</Fact>
      </dl>
    </Section>
  );
}

export function Movement(props: Props): JSX.Element | null {
  const { of } = props;
  if (!isLive(of.state)) return <Result of={of} />;
  if (isInterrupted(of)) return <Interrupted {...props} />;
  return of.state === "active" ? <Bottleneck {...props} /> : null;
}
