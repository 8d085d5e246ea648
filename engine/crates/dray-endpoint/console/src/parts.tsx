// Small parts that several pages use.

import type { ComponentChildren, JSX } from "preact";
import type { CallError } from "./api";
import { absolute, bytes, rate, relative, visible } from "./format";
import * as strings from "./strings";
import { isInterrupted, type Admitted, type ErrorParts, type State, type Transfer } from "./types";

const { text } = strings;

/** A name that somebody else has chosen: isolated, and with its invisible characters shown. */
export function Name({ of }: { of: string }): JSX.Element {
  return <bdi class="name">{visible(of)}</bdi>;
}

/** A storage target. A disk that the configuration does not name has the number of the host. */
export function TargetName({ of }: { of: string }): JSX.Element {
  const device = /^device (\d+:\d+)$/.exec(of)?.[1];
  if (device === undefined) return <Name of={of} />;
  return <span title={text.site.targets.deviceTitle}>{text.site.targets.device(device)}</span>;
}

/** A rate that the page computes from two answers. */
export function Measured({ rate: value }: { rate: number | null }): JSX.Element {
  return <>{value === null ? text.list.measuring : rate(value)}</>;
}

export function StateMark({ of }: { of: State }): JSX.Element {
  return <span class={`state ${of}`}>{strings.state[of]}</span>;
}

/** The state of a transfer. An interrupted transfer has one mark, while its state alternates. */
export function Mark({ of }: { of: Transfer }): JSX.Element {
  return isInterrupted(of) ? (
    <span class="state waiting interrupted">{text.list.interrupted}</span>
  ) : (
    <StateMark of={of.state} />
  );
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

interface ErrorProps {
  of: ErrorParts;
  /** A remedy for users of the page, instead of the remedy of the error. */
  remedy?: string | null;
}

/** An error in parts: what failed, why, and what to do. */
export function ErrorText({ of, remedy }: ErrorProps): JSX.Element {
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
          <bdi>{visible(remedy || of.remedy || "–")}</bdi>
        </dd>
      </dl>
      {of.admission && <Offer of={of.admission} />}
    </div>
  );
}

/** The reasons of a refusal, and the promise that the endpoint offers instead. */
export function Offer({ of: offer }: { of: Admitted }): JSX.Element {
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

interface SectionProps {
  title: string;
  /** Class of the element. */
  kind?: string;
  children: ComponentChildren;
}

export function Section(props: SectionProps): JSX.Element {
  return (
    <section class={props.kind}>
      <h2>{props.title}</h2>
      {props.children}
    </section>
  );
}

interface FactProps {
  name: string;
  /** An explanation of the name, which the browser shows under the pointer. */
  title?: string;
  children: ComponentChildren;
}

export function Fact({ name, title, children }: FactProps): JSX.Element {
  return (
    <>
      <dt title={title} class={title ? "explained" : ""}>
        {name}
      </dt>
      <dd>{children}</dd>
    </>
  );
}

interface TableProps {
  /** Names of the columns; the first column names the row. */
  columns: readonly string[];
  rows: readonly { key: string; cells: readonly ComponentChildren[] }[];
  label: string;
  /** Indices of the columns with numbers. */
  numbers?: readonly number[];
}

/** A table that scrolls sideways on narrow screens. */
export function Table({ columns, rows, label, numbers = [] }: TableProps): JSX.Element {
  const kind = (at: number): string => (numbers.includes(at) ? "number" : "");
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((each, at) => (
              <th key={each} scope="col" class={kind(at)}>
                {each}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key}>
              {cells.map((cell, at) =>
                at === 0 ? (
                  <th key={at} scope="row">
                    {cell}
                  </th>
                ) : (
                  <td key={at} class={kind(at)}>
                    {cell}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface BarProps {
  /** Length from 0 to 1. */
  part: number;
  label: string;
  kind?: string;
  /** Marks on the bar, from 0 to 1. */
  marks?: readonly { at: number; title: string }[];
}

const percent = (part: number): string =>
  `${Math.max(0, Math.min(100, Number.isFinite(part) ? 100 * part : 0)).toFixed(2)}%`;

/** A bar with marks. Its label says the same in words. */
export function Bar({ part, label, kind = "", marks = [] }: BarProps): JSX.Element {
  return (
    <span class="bar" role="img" aria-label={label} title={label}>
      <span class={`fill ${kind}`} style={{ width: percent(part) }} />
      {marks.map((mark) => (
        <span key={mark.title} class="mark" style={{ left: percent(mark.at) }} />
      ))}
    </span>
  );
}

/** The part of a time line between two times. */
export function Span(props: {
  start: number;
  end: number;
  label: string;
  kind: string;
}): JSX.Element {
  const { start, end, label, kind } = props;
  const left = Math.max(0, Math.min(1, start));
  const right = Math.max(left, Math.min(1, end));
  return (
    <span class="bar" role="img" aria-label={label} title={label}>
      <span
        class={`fill ${kind}`}
        style={{ left: percent(left), width: percent(Math.max(0.005, right - left)) }}
      />
    </span>
  );
}

export const link = (id: string): string => `#/transfers/${encodeURIComponent(id)}`;

/** Says that a list is cut. Returns null if it is complete. */
export function Cut({ shown, all }: { shown: number; all: number }): JSX.Element | null {
  return all > shown ? <p class="hint">{text.site.cut(shown, all)}</p> : null;
}

/** The error of a call that is repeated, beside the last answer. */
export function Failed({ error }: { error: CallError | null }): JSX.Element | null {
  return (
    error && (
      <>
        <p class="bad">{text.site.old}</p>
        <Alert error={error} />
      </>
    )
  );
}
