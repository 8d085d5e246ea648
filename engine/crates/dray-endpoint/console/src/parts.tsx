// Small parts that several pages use.

import type { ComponentChildren, JSX } from "preact";
import type { CallError } from "./api";
import { absolute, bytes, rate, relative, visible } from "./format";
import * as strings from "./strings";
import type { ErrorParts, State, Transfer } from "./types";

const { text } = strings;

/** A name that somebody else has chosen: isolated, and with its invisible characters shown. */
export function Name({ of }: { of: string }): JSX.Element {
  return <bdi class="name">{visible(of)}</bdi>;
}

export function StateMark({ of }: { of: State }): JSX.Element {
  return <span class={`state ${of}`}>{strings.state[of]}</span>;
}

export function When({ at, now }: { at: string; now: number }): JSX.Element {
  return (
    <time dateTime={at} title={absolute(at)}>
      {relative(at, now)}
    </time>
  );
}

/** The part of the bytes that is durable, from 0 to 1; null if the total is unknown. */
export function fraction(transfer: Transfer): number | null {
  const { listed, durable } = transfer.bytes;
  if (transfer.state === "done") return 1;
  if (listed === 0) return null;
  return Math.min(1, durable / listed);
}

export function Progress({ of }: { of: Transfer }): JSX.Element {
  const part = fraction(of);
  const label = text.show.of(bytes(of.bytes.durable), bytes(of.bytes.listed));
  return (
    <span class="progress">
      {/* Without a value, the element would be animated for ever. */}
      <progress value={part ?? 0} max={1} aria-label={label} />
      <span>{part === null ? "–" : `${Math.floor(100 * part)} %`}</span>
    </span>
  );
}

/** An error in parts: what failed, why, and what to do. */
export function ErrorText({ of }: { of: ErrorParts }): JSX.Element {
  return (
    <div class="error">
      <p class="message">
        <bdi>{visible(of.message)}</bdi>
      </p>
      <dl>
        <dt>{text.show.cause}</dt>
        <dd>
          <bdi>{visible(of.cause || "–")}</bdi>
        </dd>
        <dt>{text.show.remedy}</dt>
        <dd>
          <bdi>{visible(of.remedy || "–")}</bdi>
        </dd>
      </dl>
      {of.admission && <Offer of={of} />}
    </div>
  );
}

function Offer({ of }: { of: ErrorParts }): JSX.Element | null {
  const offer = of.admission;
  if (!offer) return null;
  return (
    <div class="offer">
      {offer.earliest_finish && <p>{text.act.offer(absolute(offer.earliest_finish))}</p>}
      {offer.rate_needed && (
        <p>{text.act.needs(rate(offer.rate_needed), rate(offer.rate_available))}</p>
      )}
      {(offer.reasons ?? []).map((each) => (
        <p key={each}>
          <bdi>{visible(each)}</bdi>
        </p>
      ))}
    </div>
  );
}

export function Alert({ error }: { error: CallError | null }): JSX.Element | null {
  return error && <div role="alert">{<ErrorText of={error.parts} />}</div>;
}

export function Section(props: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section>
      <h2>{props.title}</h2>
      {props.children}
    </section>
  );
}
