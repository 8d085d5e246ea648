// One transfer: its promise, its bottleneck, its failures, and the actions.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Actions } from "./actions";
import { asCallError, type Api, type CallError } from "./api";
import { RateChart } from "./chart";
import { FilesUnderWay } from "./files";
import { absolute, bytes, count, rate, relative } from "./format";
import { Heat } from "./heat";
import { ObjectLog } from "./log";
import { useNewest, useNow, useStore } from "./hooks";
import { labelOf, routeOf, type Names } from "./names";
import { Alert, ErrorText, Fact, Mark, Name, Progress, Section, When } from "./parts";
import { Movement, remedyOf } from "./progress";
import type { Store } from "./store";
import * as strings from "./strings";
import { isInterrupted, isLive, type PathError, type Transfer } from "./types";
import { verdictOf } from "./verdict";

const { text } = strings;

/** Interval at which the page reads the expected end again; no event contains it. */
const REREAD_SECONDS = 5;

/** Number of times that the page looks for the receipt of an ended transfer. */
const RECEIPT_LOOKS = 6;

function Expected({ of, now }: { of: Transfer; now: number }): JSX.Element {
  const between = of.eta_between;
  if (between?.late && between.late !== between.early) {
    return <>{text.show.between(relative(between.early, now), relative(between.late, now))}</>;
  }
  if (of.eta) return <When at={of.eta} now={now} />;
  if (of.state !== "active" || of.held || of.silent_seconds !== null) {
    return <>{text.show.unknown}</>;
  }
  return <>{of.files.listing_done ? text.show.measuring : text.show.listing}</>;
}

function Promised({ of, now }: { of: Transfer; now: number }): JSX.Element | null {
  const { deadline } = of.request;
  const isBroken = isInterrupted(of);
  const hasEnded = !isLive(of.state);
  if (hasEnded && !deadline) return null;
  const verdict = verdictOf(of, now);
  return (
    <Section title={text.show.promise}>
      {hasEnded ? (
        <p>
          {of.state === "cancelled"
            ? text.show.cancelledBefore
            : verdict === "kept"
              ? text.show.inTime
              : text.show.late}
        </p>
      ) : (
        <p>
          {isBroken && of.promised
            ? text.show.promiseUnknown
            : (of.promised ? text.show.kept : text.show.notPromised)(deadline != null)}
        </p>
      )}
      {!hasEnded && (verdict === "late" || verdict === "missed") && (
        <p class="bad" role="alert">
          {verdict === "late" ? text.show.willBeLate : text.show.passed}
        </p>
      )}
      {of.miss && (
        <div class="error" role="alert">
          <p class="message">{text.show.missed}</p>
          <p>
            <Name of={of.miss.cause} />
          </p>
          {of.miss.earliest_finish && (
            <p>{text.show.missedEarliest(absolute(of.miss.earliest_finish))}</p>
          )}
        </div>
      )}
      <dl>
        <Fact name={text.show.deadline}>
          {deadline ? (
            <>
              {absolute(deadline)} (<When at={deadline} now={now} />)
            </>
          ) : (
            text.show.noDeadline
          )}
        </Fact>
        {isLive(of.state) && !isBroken && (
          <Fact name={text.show.expected} title={text.show.expectedTitle}>
            <Expected of={of} now={now} />
          </Fact>
        )}
      </dl>
      {!isBroken && of.rate.planned !== null && (
        <p>{text.show.planned(rate(of.rate.planned))}</p>
      )}
      {!isBroken && of.rate.reason && <p>{strings.reason[of.rate.reason]}</p>}
    </Section>
  );
}

function Counters({ of, here }: { of: Transfer; here: string }): JSX.Element {
  const { files } = of;
  return (
    <Section title={text.show.progress} kind="counters">
      <Progress of={of} />
      <dl>
        <Fact name={text.show.bytes} title={text.show.bytesTitle}>
          {text.show.of(bytes(of.bytes.durable), bytes(of.bytes.listed))}
        </Fact>
        <Fact name={text.show.files}>
          {text.show.filesDone(count(files.done), count(files.listed), files.listing_done)}
          {files.failed > 0 && <>, {text.show.filesFailed(count(files.failed))}</>}
          {files.skipped > 0 && <>, {text.show.filesSkipped(count(files.skipped))}</>}
        </Fact>
        <Fact name={text.show.sent}>{bytes(of.bytes.sent)}</Fact>
        {of.bytes.resumed > 0 && (
          <Fact name={text.show.resumed} title={text.show.resumedTitle}>
            {bytes(of.bytes.resumed)}
          </Fact>
        )}
        {isLive(of.state) && <Fact name={text.show.rate}>{rate(of.rate.now)}</Fact>}
        {of.state === "active" && (
          <Fact name={text.show.granted} title={text.show.grantedTitle(here)}>
            {of.rate.granted === null ? text.show.unlimited : rate(of.rate.granted)}
          </Fact>
        )}
      </dl>
      {isLive(of.state) && <RateChart transfer={of} />}
    </Section>
  );
}

interface FailuresProps {
  api: Api;
  of: Transfer;
  names: Names;
}

function Failures({ api, of, names }: FailuresProps): JSX.Element {
  const [read, setRead] = useState<PathError[] | null>(null);
  const [cursor, setCursor] = useState<string | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  const begin = useNewest(`${of.id} ${of.attempt}`);
  // A new attempt has other failures.
  useEffect(() => {
    setRead(null);
    setCursor(null);
    setError(null);
  }, [of.attempt]);
  const failures = read ?? of.failures;
  // The page shows the cause of an interruption above.
  const whole = isInterrupted(of) ? null : of.error;
  const hasMore = cursor !== null || of.files.failed > failures.length;

  async function more(): Promise<void> {
    const isWanted = begin();
    try {
      // Without a cursor, read all failures again: there are new ones.
      const [found, next] = await api.failures(of.id, cursor);
      if (!isWanted()) return;
      setRead([...(cursor === null ? [] : (read ?? [])), ...found]);
      setCursor(next);
      setError(null);
    } catch (failed) {
      if (isWanted()) setError(asCallError(failed));
    }
  }

  return (
    <Section title={text.show.failures}>
      {whole && <ErrorText of={whole} remedy={remedyOf(of, names)} />}
      {failures.length === 0 && !whole && <p>{text.show.noFailures}</p>}
      {hasMore && (
        <p class="hint">{text.show.firstFailures(failures.length, count(of.files.failed))}</p>
      )}
      <ul class="failures">
        {failures.map((each, at) => (
          <li key={at}>
            <h3>
              <Name of={each.path} />
            </h3>
            <ErrorText of={each.error} />
          </li>
        ))}
      </ul>
      {hasMore && <button onClick={() => void more()}>{text.show.moreFailures}</button>}
      <Alert error={error} />
    </Section>
  );
}

interface DetailsProps {
  of: Transfer;
  api: Api;
  /** Name of the endpoint of the page. */
  here: string;
}

/** The id of the signed receipt, and a button that saves the receipt as a file. */
function Receipt({ of, api, here }: DetailsProps): JSX.Element | null {
  const [error, setError] = useState<CallError | null>(null);
  const { receipt } = of;
  if (!receipt) return null;
  const save = async (): Promise<void> => {
    try {
      // A link cannot carry the token of the page.
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await api.receipt(of.id));
      link.download = `${of.id}.receipt`;
      link.click();
      URL.revokeObjectURL(link.href);
      setError(null);
    } catch (failed) {
      setError(asCallError(failed));
    }
  };
  return (
    <Fact name={text.show.receipt}>
      <Name of={receipt.id} /> ({text.show.receiptNumber(receipt.sequence, here)}){" "}
      <button id="save-receipt" onClick={() => void save()}>
        {text.show.receiptSave}
      </button>
      <Alert error={error} />
    </Fact>
  );
}

function Details({ of, api, here }: DetailsProps): JSX.Element {
  const labels = Object.entries(of.request.labels ?? {});
  const times: [string, string | null][] = [
    [text.show.submitted, of.submitted_at],
    [text.show.started, of.started_at],
    [text.show.ended, of.ended_at],
    [text.show.nextTry, of.next_try_at],
  ];
  return (
    <Section title={text.show.details}>
      <dl>
        <Fact name={text.show.source}>
          {of.request.sources.map((source) => (
            <div key={source.url}>
              <Name of={source.url} />
            </div>
          ))}
        </Fact>
        <Fact name={text.show.destination}>
          <Name of={of.request.destination.url} />
        </Fact>
        <Fact name={text.show.owner}>
          <Name of={of.owner} />
        </Fact>
        {times.map(([name, at]) => at && <Fact key={name} name={name}>{absolute(at)}</Fact>)}
        <Fact name={text.show.id}>
          <Name of={of.id} />
        </Fact>
        <Fact name={text.show.attempt} title={text.show.attemptTitle}>
          {of.attempt}
        </Fact>
        <Fact name={text.show.tries} title={text.show.triesTitle}>
          {of.tries}
        </Fact>
        <Receipt of={of} api={api} here={here} />
        {labels.length > 0 && (
          <Fact name={text.show.labels}>
            {labels.map(([key, value]) => (
              <div key={key}>
                <Name of={`${key}: ${value}`} />
              </div>
            ))}
          </Fact>
        )}
      </dl>
      {of.purged && <p>{text.show.purged}</p>}
      {of.notices.length > 0 && (
        <>
          <h3>{text.show.notices}</h3>
          <ul>
            {of.notices.map((each, at) => (
              <li key={at}>
                <Name of={each} />
              </li>
            ))}
          </ul>
        </>
      )}
    </Section>
  );
}

/** The route of the transfer as its name, its state, and its label. */
function Title({ of, names }: { of: Transfer; names: Names }): JSX.Element {
  const { from, to } = routeOf(of, names);
  const label = labelOf(of);
  return (
    <>
      <Name of={from} /> <span aria-label={text.show.to}>→</span> <Name of={to} />{" "}
      <Mark of={of} />
      {label !== "" && (
        <small class="label">
          <Name of={label} />
        </small>
      )}
    </>
  );
}

interface Props {
  api: Api;
  store: Store;
  names: Names;
  /** Number of tries without new data after which the endpoint gives up. */
  tries: number;
  id: string;
  expired: () => void;
}

export function Show({ api, store, names, tries, id, expired }: Props): JSX.Element {
  useStore(store, 250);
  const now = useNow(1);
  const [read, setRead] = useState<Transfer | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  const row = store.rows.get(id);

  // An event has made the store read the transfer again; only the answer for a single transfer
  // contains the interval of its end.
  useEffect(() => {
    let isShown = true;
    // The endpoint writes the receipt a moment after the end, and publishes no event about it.
    let looks = RECEIPT_LOOKS;
    const reread = async (): Promise<void> => {
      try {
        const found = await api.show(id);
        if (!isShown) return;
        setRead(found);
        setError(null);
        store.put(found);
        if (found.receipt) looks = 0;
      } catch (failed) {
        const refused = asCallError(failed);
        if (refused.code === 401) expired();
        else if (isShown) setError(refused);
      }
    };
    void reread();
    const timer = window.setInterval(() => {
      const present = store.rows.get(id);
      if (!present) return;
      if (isLive(present.state)) void reread();
      else if (looks > 0) {
        looks -= 1;
        void reread();
      }
    }, 1000 * REREAD_SECONDS);
    return () => {
      isShown = false;
      window.clearInterval(timer);
    };
  }, [api, store, id, row?.version]);

  const found = row ?? read;
  const transfer = found && {
    ...found,
    eta_between: read?.eta_between ?? null,
    receipt: read?.attempt === found.attempt ? read.receipt : null,
  };
  return (
    <main id="content" class="show">
      <p>
        <a href="#/">{text.show.back}</a>
      </p>
      <h1>
        {transfer ? <Title of={transfer} names={names} /> : <Name of={id} />}
      </h1>
      {error?.code === 404 ? <p>{text.show.missing}</p> : <Alert error={error} />}
      {transfer && (
        <div class="columns">
          <Promised of={transfer} now={now} />
          <Movement of={transfer} now={now} names={names} tries={tries} />
          <Counters of={transfer} here={names.here} />
          <Actions
            api={api}
            transfer={transfer}
            names={names}
            put={(each) => store.put(each)}
            expired={expired}
          />
          {transfer.state === "active" && (
            <FilesUnderWay api={api} id={id} tries={transfer.tries} expired={expired} />
          )}
          {transfer.state === "active" && <Heat api={api} id={id} expired={expired} />}
          <Failures api={api} of={transfer} names={names} />
          <ObjectLog api={api} of={transfer} names={names} />
          <Details of={transfer} api={api} here={names.here} />
        </div>
      )}
    </main>
  );
}
