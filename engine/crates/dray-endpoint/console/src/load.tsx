// Promises on a time line, the shares of the owners, and the running sessions.

import type { JSX } from "preact";
import { absolute, bytes, count, rate, relative } from "./format";
import { useNow } from "./hooks";
import { nameOf, titleOf, type Names } from "./names";
import { Bar, Cut, Measured, Name, Section, Span, Table, When, link } from "./parts";
import type { Rated } from "./rates";
import * as strings from "./strings";
import type { Promised, Transfer } from "./types";

const { text } = strings;

const ROWS_MAX = 50;

/** The transfers and the endpoints that the page can name. */
interface Known {
  transfers: ReadonlyMap<string, Transfer>;
  names: Names;
}

/** The route of a transfer, with a link to its page; the id if the page knows no more. */
function Route({ id, known }: { id: string; known: Known }): JSX.Element {
  const transfer = known.transfers.get(id);
  if (!transfer) return <a href={link(id)}>{id}</a>;
  return (
    <>
      <a href={link(id)}>
        <Name of={titleOf(transfer, known.names)} />
      </a>
      <small class="hint id">{id}</small>
    </>
  );
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

interface PromisesProps {
  promises: Promised[];
  hidden: number;
  known: Known;
}

export function Promises(props: PromisesProps): JSX.Element {
  const words = text.site.promises;
  const now = useNow(1);
  const shown = props.promises.slice(0, ROWS_MAX);
  const ends = shown.map(({ deadline }) => (deadline ? Date.parse(deadline) : now));
  // A minute at least, so that the time lines are not divided by nothing.
  const last = Math.max(now + 60_000, ...ends);
  const rows = shown.map((each) => ({
    key: each.transfer,
    cells: [
      <Route id={each.transfer} known={props.known} />,
      <Name of={each.owner} />,
      <Line of={each} now={now} last={last} />,
      each.deadline ? (
        <span class={each.miss ? "bad" : ""}>
          <When at={each.deadline} now={now} />
          {each.miss && <> ({strings.verdict.missing})</>}
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
  /** Null until the rate of a session is known. */
  rate: number | null;
  granted: number | null;
}

function byOwner(sessions: Rated[]): [string, Sum][] {
  const sums = new Map<string, Sum>();
  for (const session of sessions) {
    const sum = sums.get(session.owner) ?? { sessions: 0, rate: null, granted: 0 };
    sum.sessions += 1;
    if (session.rate !== null) sum.rate = (sum.rate ?? 0) + session.rate;
    // One session without a limit makes the owner unlimited.
    const isLimited = sum.granted !== null && session.granted !== null;
    sum.granted = isLimited ? (sum.granted ?? 0) + (session.granted ?? 0) : null;
    sums.set(session.owner, sum);
  }
  return [...sums].sort(([, a], [, b]) => (b.rate ?? 0) - (a.rate ?? 0));
}

export function Owners({ sessions }: { sessions: Rated[] }): JSX.Element {
  const words = text.site.owners;
  const sums = byOwner(sessions);
  const all = sums.reduce((sum, [, each]) => sum + (each.rate ?? 0), 0);
  const rows = sums.slice(0, ROWS_MAX).map(([owner, sum]) => {
    const part = all > 0 ? (sum.rate ?? 0) / all : 0;
    return {
      key: owner,
      cells: [
        <Name of={owner} />,
        count(sum.sessions),
        <Bar part={part} label={words.label(`${Math.round(100 * part)} %`)} />,
        <Measured rate={sum.rate} />,
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

interface SessionsProps {
  sessions: Rated[];
  hidden: number;
  known: Known;
}

/** The route of a session, as far as this endpoint knows it. */
function Way({ of, known }: { of: Rated; known: Known }): JSX.Element {
  if (of.is_own) return <Route id={of.transfer} known={known} />;
  // The queue of this endpoint has no transfer that another endpoint drives.
  const other = nameOf(of.peer ?? "", known.names);
  const roots = of.roots.map((root) => `/${root}`).join(", ");
  return (
    <>
      <Name of={text.site.sessions.route[of.direction](other, known.names.here, roots)} />
      <small class="hint id">{of.transfer}</small>
    </>
  );
}

export function Sessions(props: SessionsProps): JSX.Element {
  const words = text.site.sessions;
  const { here } = props.known.names;
  const rows = props.sessions.slice(0, ROWS_MAX).map((each, at) => ({
    key: `${at} ${each.transfer}`,
    cells: [
      <Way of={each} known={props.known} />,
      <Name of={each.owner} />,
      <Name of={each.is_own ? here : nameOf(each.peer ?? "", props.known.names)} />,
      text.show.of(bytes(each.moved), bytes(each.listed)),
      <Measured rate={each.rate} />,
      each.held ? words.held : each.granted === null ? text.show.unlimited : rate(each.granted),
    ],
  }));
  return (
    <Section title={words.heading}>
      {rows.length === 0 ? (
        <p>{words.none}</p>
      ) : (
        <Table columns={words.columns} rows={rows} label={words.heading} numbers={[4, 5]} />
      )}
      <Cut shown={rows.length} all={props.sessions.length} />
      <Hidden note={words.hidden} of={props.hidden} />
    </Section>
  );
}
