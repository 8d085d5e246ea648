// Promises on a time line, the shares of the owners, and the running sessions.

import type { JSX } from "preact";
import { absolute, bytes, count, rate, relative } from "./format";
import { useNow } from "./hooks";
import { Bar, Cut, Name, Section, Span, Table, When, link } from "./parts";
import * as strings from "./strings";
import type { Promised, Session } from "./types";

const { text } = strings;

const ROWS_MAX = 50;

/** A session with its rate since the last answer; null before the second answer. */
export interface Rated extends Session {
  rate: number | null;
}

interface LineProps {
  of: Promised;
  now: number;
  last: number;
}

function Line({ of, now, last }: LineProps): JSX.Element {
  const words = text.site.promises;
  if (!of.deadline) return <>{words.rateOnly(rate(of.rate_min))}</>;
  const part = (when: string): number => (Date.parse(when) - now) / (last - now);
  const due = relative(of.deadline, now);
  const start = relative(of.latest_start, now);
  const label = of.miss ? words.late(of.miss.cause, due) : words.label(start, due);
  const kind = of.miss ? "bad" : (of.planned ?? 0) > 0 ? "" : "idle";
  return <Span start={part(of.latest_start)} end={part(of.deadline)} label={label} kind={kind} />;
}

function Hidden({ note, of }: { note: (of: number) => string; of: number }): JSX.Element | null {
  return of > 0 ? <p class="hint">{note(of)}</p> : null;
}

export function Promises(props: { promises: Promised[]; hidden: number }): JSX.Element {
  const words = text.site.promises;
  const now = useNow(1);
  const shown = props.promises.slice(0, ROWS_MAX);
  const ends = shown.map(({ deadline }) => (deadline ? Date.parse(deadline) : now));
  // A minute at least, so that the time lines are not divided by nothing.
  const last = Math.max(now + 60_000, ...ends);
  const rows = shown.map((each) => ({
    key: each.transfer,
    cells: [
      <a href={link(each.transfer)}>{each.transfer}</a>,
      <Name of={each.owner} />,
      <Line of={each} now={now} last={last} />,
      each.deadline ? (
        <span class={each.miss ? "bad" : ""}>
          <When at={each.deadline} now={now} />
          {each.miss && <> ({text.list.miss})</>}
        </span>
      ) : (
        text.show.noDeadline
      ),
      rate(each.planned),
    ],
  }));
  return (
    <Section title={words.heading}>
      {rows.length === 0 && <p>{words.none}</p>}
      {rows.length > 0 && (
        <>
          <Table columns={words.columns} rows={rows} label={words.heading} numbers={[4]} />
          <p class="hint">{words.axis(absolute(new Date(last).toISOString()))}</p>
        </>
      )}
      <Cut shown={rows.length} all={props.promises.length} />
      <Hidden note={words.hidden} of={props.hidden} />
    </Section>
  );
}

interface Sum {
  sessions: number;
  rate: number;
  granted: number | null;
}

function byOwner(sessions: Rated[]): [string, Sum][] {
  const sums = new Map<string, Sum>();
  for (const session of sessions) {
    const sum = sums.get(session.owner) ?? { sessions: 0, rate: 0, granted: 0 };
    sum.sessions += 1;
    sum.rate += session.rate ?? 0;
    // One session without a limit makes the owner unlimited.
    const isLimited = sum.granted !== null && session.granted !== null;
    sum.granted = isLimited ? (sum.granted ?? 0) + (session.granted ?? 0) : null;
    sums.set(session.owner, sum);
  }
  return [...sums].sort(([, a], [, b]) => b.rate - a.rate);
}

export function Owners({ sessions }: { sessions: Rated[] }): JSX.Element {
  const words = text.site.owners;
  const sums = byOwner(sessions);
  const all = sums.reduce((sum, [, each]) => sum + each.rate, 0);
  const rows = sums.slice(0, ROWS_MAX).map(([owner, sum]) => {
    const part = all > 0 ? sum.rate / all : 0;
    return {
      key: owner,
      cells: [
        <Name of={owner} />,
        count(sum.sessions),
        <Bar part={part} label={words.label(`${Math.round(100 * part)} %`)} />,
        rate(sum.rate),
        sum.granted === null ? text.show.unlimited : rate(sum.granted),
      ],
    };
  });
  return (
    <Section title={words.heading}>
      {rows.length === 0 ? (
        <p>{words.none}</p>
      ) : (
        <Table columns={words.columns} rows={rows} label={words.heading} numbers={[1, 3, 4]} />
      )}
      <Cut shown={rows.length} all={sums.length} />
    </Section>
  );
}

function OtherEnd({ of }: { of: Session }): JSX.Element {
  return (
    <>
      {strings.direction[of.direction]} {of.peer && <Name of={of.peer} />}
    </>
  );
}

export function Sessions(props: { sessions: Rated[]; hidden: number }): JSX.Element {
  const words = text.site.sessions;
  const rows = props.sessions.slice(0, ROWS_MAX).map((each, at) => ({
    key: `${at} ${each.transfer}`,
    cells: [
      // The queue of this endpoint has no transfer that another end drives.
      each.is_own ? <a href={link(each.transfer)}>{each.transfer}</a> : <Name of={each.transfer} />,
      <Name of={each.owner} />,
      <OtherEnd of={each} />,
      each.is_own ? words.here : words.there,
      text.show.of(bytes(each.moved), bytes(each.listed)),
      each.held ? words.held : each.granted === null ? text.show.unlimited : rate(each.granted),
    ],
  }));
  return (
    <Section title={words.heading}>
      {rows.length === 0 ? (
        <p>{text.site.owners.none}</p>
      ) : (
        <Table columns={words.columns} rows={rows} label={words.heading} numbers={[5]} />
      )}
      <Cut shown={rows.length} all={props.sessions.length} />
      <Hidden note={words.hidden} of={props.hidden} />
    </Section>
  );
}
