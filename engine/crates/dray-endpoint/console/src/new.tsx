// A new transfer: two panes to choose sources and a destination, the endpoint's decision about the
// promise, and the start.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Api } from "./api";
import { NewFolder, Pane, type Choice } from "./browse";
import { useCalls } from "./check";
import { countFiles, isFolder, NOTHING, type Counted } from "./count";
import { DeadlineField } from "./deadline";
import { absolute, bytes, count, local, rate } from "./format";
import type { Names } from "./names";
import { Alert, Name, Offer, Section, link } from "./parts";
import { EndpointChoice, type Peers } from "./peers";
import { text } from "./strings";
import type { Admission, Draft, Entry, Far, Peer, Root, Transfer } from "./types";

const words = text.copy;

const SOURCES_MAX = 256;

/** Time that an accepted counter-offer adds to the earliest possible deadline. */
const SLACK_MS = 30_000;
const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

interface Settings {
  deadline: string;
  rate: string;
  expected: string;
  isBestEffort: boolean;
}

const NO_SETTINGS: Settings = { deadline: "", rate: "", expected: "", isBestEffort: false };

/** The chosen entries, the folder for the copies, and the endpoints of both. */
interface Route {
  sources: Entry[];
  fromFar: Far | null;
  folder: string;
  toFar: Far | null;
  /** True while a pane waits for the connection to its endpoint. */
  isClosed: boolean;
}

const bare = (path: string): string => path.replace(/\/$/, "");

/** Returns the URL of a path, which names the other endpoint if the path is not at this one. */
const urlOf = (far: Far | null, path: string): string =>
  far ? `dray://${far.peer.address}${path}` : path;

function draft(route: Route, settings: Settings, counted: Counted): Draft {
  const { sources, fromFar, folder, toFar } = route;
  const hasFolders = sources.some(isFolder);
  const made: Draft = {
    sources: sources.map(({ path }) => ({ url: urlOf(fromFar, bare(path)) })),
    destination: { url: urlOf(toFar, `${folder}/`) },
    selection: { recursive: hasFolders },
  };
  const due = new Date(settings.deadline);
  if (!Number.isNaN(due.getTime())) made.deadline = due.toISOString();
  const highest = Math.round(Number(settings.rate) * MIB);
  if (highest > 0) made.rate_max = highest;
  const entered = Math.round(Number(settings.expected) * GIB);
  const expected = counted.isComplete ? counted.bytes : entered;
  if (expected > 0) made.bytes_expected = expected;
  if (settings.isBestEffort) made.admission = "best_effort";
  return made;
}

/** Adds the ticket of the other endpoint to a request, if a side is at another endpoint. */
async function withTicket(api: Api, id: string, wanted: Draft, route: Route): Promise<Draft> {
  const { sources, fromFar, folder, toFar } = route;
  if (fromFar) {
    const paths = sources.map(({ path }) => bare(path));
    const ticket = await api.ticket(fromFar, id, "read", paths);
    const [first, ...others] = wanted.sources;
    return { ...wanted, sources: first ? [{ ...first, ...ticket }, ...others] : [] };
  }
  if (!toFar) return wanted;
  const ticket = await api.ticket(toFar, id, "write", [folder]);
  return { ...wanted, destination: { ...wanted.destination, ...ticket } };
}

interface FormProps {
  settings: Settings;
  counted: Counted;
  set: (part: Partial<Settings>) => void;
}

function Form({ settings, counted, set }: FormProps): JSX.Element {
  return (
    <div class="change">
      <DeadlineField
        id="new-deadline"
        value={settings.deadline}
        set={(deadline) => set({ deadline })}
      />
      <label>
        {words.rateMax}
        <input
          type="number"
          min={0.001}
          step="any"
          placeholder={text.act.rateHint}
          value={settings.rate}
          onInput={(event) => set({ rate: event.currentTarget.value })}
        />
      </label>
      {!counted.isComplete && !counted.isRunning && (
        <label>
          {words.expected}
          <input
            type="number"
            min={0.001}
            step="any"
            placeholder={words.expectedHint}
            value={settings.expected}
            onInput={(event) => set({ expected: event.currentTarget.value })}
          />
        </label>
      )}
      {settings.deadline !== "" && (
        <label class="check">
          <input
            type="checkbox"
            checked={settings.isBestEffort}
            onChange={(event) => set({ isBestEffort: event.currentTarget.checked })}
          />
          {words.bestEffort}
        </label>
      )}
    </div>
  );
}

interface DecisionProps {
  of: Admission;
  hasDeadline: boolean;
  accept: (deadline: string) => void;
}

/** A reason of the endpoint, in words for users of this page. */
function reasonOf(reason: string): string {
  if (reason.includes("bytes_expected")) return words.sizeNeeded;
  return reason.includes("set `rate`") ? words.rateNeeded : reason;
}

/** The endpoint's decision, before anything is started. */
function Decision({ of, hasDeadline, accept }: DecisionProps): JSX.Element {
  const answer = of.transfers[0] ?? {};
  const offer = answer.earliest_finish;
  if (of.decision === "refuse") {
    return (
      <div class="error" role="alert">
        <p class="message">{words.refused}</p>
        <Offer of={{ ...answer, reasons: (answer.reasons ?? []).map(reasonOf) }} />
        {offer && (
          <button id="accept-offer" onClick={() => accept(offer)}>
            {text.act.accept} ({absolute(offer)})
          </button>
        )}
      </div>
    );
  }
  if (answer.promised) {
    const finish = answer.finish ? absolute(answer.finish) : text.show.unknown;
    return (
      <p class="good" role="status">
        {words.promised(rate(answer.rate), finish)}
      </p>
    );
  }
  return (
    <div role="status">
      <p>{hasDeadline ? words.unpromised : words.accepted}</p>
      {hasDeadline && (answer.reasons ?? []).map((each) => (
        <p key={each}>
          <Name of={reasonOf(each)} />
        </p>
      ))}
    </div>
  );
}

interface ChosenProps {
  route: Route;
  here: string;
  counted: Counted;
}

function Chosen({ route, here, counted }: ChosenProps): JSX.Element {
  const { sources, folder, fromFar, toFar, isClosed } = route;
  const size = words.counted(count(counted.files), bytes(counted.bytes), counted);
  return (
    <>
      <p role="status">
        {words.chosen(sources.length)}
        {sources.length === 1 && " ("}
        {sources.length === 1 && <Name of={sources[0]?.path ?? ""} />}
        {sources.length === 1 && ")"}
        {sources.length > 0 && `: ${size}`}.{" "}
        {!isClosed && <Name of={words.into(toFar?.peer.name ?? here, `${folder}/`)} />}
        {!isClosed && sources.length === 1 && <Name of={words.as(sources[0]?.name ?? "")} />}
      </p>
      {fromFar && toFar && <p class="bad">{words.bothFar(here)}</p>}
      {sources.length > 1 && (
        <ul class="chosen" aria-label={words.source} tabIndex={0}>
          {sources.slice(0, SOURCES_MAX).map(({ path }) => (
            <li key={path}>
              <Name of={path} />
            </li>
          ))}
        </ul>
      )}
      {sources.length > SOURCES_MAX && <p class="bad">{words.most(SOURCES_MAX)}</p>}
    </>
  );
}

/** Counts the files of the chosen entries again after each change of the choice. */
function useCount(api: Api, { fromFar, sources }: Route): Counted {
  const key = sources.map(({ path }) => path).join("\n");
  const [counted, setCounted] = useState<[string, Counted]>(["", NOTHING]);
  useEffect(() => {
    const stopping = new AbortController();
    void countFiles(api, fromFar, sources, stopping.signal, (found) => setCounted([key, found]));
    return () => stopping.abort();
  }, [api, fromFar, key]);
  const running = { ...NOTHING, isComplete: sources.length === 0, isRunning: sources.length > 0 };
  return counted[0] === key ? counted[1] : running;
}

interface OrderProps {
  api: Api;
  here: string;
  route: Route;
  clear: () => void;
  started: (transfer: Transfer) => void;
  expired: () => void;
}

function Order({ api, here, route, clear, started, expired }: OrderProps): JSX.Element {
  const { sources, fromFar, toFar, isClosed } = route;
  const [settings, setSettings] = useState(NO_SETTINGS);
  const counted = useCount(api, route);
  const isBothFar = fromFar !== null && toFar !== null;
  const isChosen = sources.length > 0 && sources.length <= SOURCES_MAX;
  const isFit = isChosen && !isBothFar && !isClosed && !counted.isRunning;
  const wanted = isFit ? draft(route, settings, counted) : null;
  const { checked, error, isBusy, start } = useCalls(api, wanted, expired);
  const accept = (deadline: string): void => {
    // The next whole minute after some slack: the user needs time to read and to start.
    const minutes = Math.ceil((Date.parse(deadline) + SLACK_MS) / 60_000);
    const whole = new Date(60_000 * minutes).toISOString();
    setSettings({ ...settings, deadline: local(whole) });
  };
  const begin = (id: string, draft: Draft): void => {
    void start(async () => {
      started(await api.submit(id, await withTicket(api, id, draft, route)));
    });
  };
  const hint = isClosed
    ? words.connectFirst
    : !isChosen
      ? words.chooseFirst
      : counted.isRunning
        ? words.counting
        : wanted !== null && !checked && !error
          ? words.checking
          : "";
  return (
    <Section title={words.settings} kind="order">
      <Chosen route={route} here={here} counted={counted} />
      <Form
        settings={settings}
        counted={counted}
        set={(part) => setSettings((before) => ({ ...before, ...part }))}
      />
      <Alert error={error} />
      {checked && (
        <Decision of={checked.decision} hasDeadline={settings.deadline !== ""} accept={accept} />
      )}
      <div class="buttons start">
        <button
          id="start"
          class="primary"
          disabled={isBusy || checked?.decision.decision !== "accept"}
          onClick={() => checked && wanted && begin(checked.id, wanted)}
        >
          {words.start}
        </button>
        <button disabled={sources.length === 0} onClick={clear}>
          {words.clear}
        </button>
        <span class="hint" role="status">
          {hint}
        </span>
      </div>
    </Section>
  );
}

/** What a pane shows: its endpoint, and its open folder. */
interface Side {
  far: Far | null;
  asked: Peer | null;
  path: string;
}

interface Props {
  api: Api;
  peers: Peers;
  names: Names;
  roots: Root[];
  put: (transfer: Transfer) => void;
  expired: () => void;
}

export function New({ api, peers, names, roots, put, expired }: Props): JSX.Element {
  const first = `/${roots[0]?.name ?? ""}`;
  const writable = roots.find((root) => root.write && `/${root.name}` !== first);
  const [from, setFrom] = useState<Side>({ far: null, asked: null, path: first });
  const [to, setTo] = useState<Side>({
    far: null,
    asked: null,
    path: writable ? `/${writable.name}` : first,
  });
  const [chosen, setChosen] = useState<ReadonlyMap<string, Entry>>(new Map());
  /** The folder for the copies, if it is not the open one. */
  const [picked, setPicked] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const rootOf = (far: Far | null): string => `/${(far?.roots ?? roots)[0]?.name ?? ""}`;
  const clear = (): void => setChosen(new Map());
  const place = (side: Side, set: typeof setFrom, changed: () => void): JSX.Element => (
    <EndpointChoice
      api={api}
      peers={peers}
      here={names.here}
      far={side.far}
      asked={side.asked}
      ask={(asked) => {
        set((before) => ({ ...before, asked }));
        if (asked) changed();
      }}
      choose={(far) => {
        set({ far, asked: null, path: rootOf(far) });
        changed();
      }}
    />
  );
  const many: Choice = {
    isSingle: false,
    has: (entry) => chosen.has(entry.path),
    toggle: (entry) =>
      setChosen((before) => {
        const after = new Map(before);
        if (!after.delete(entry.path)) after.set(entry.path, entry);
        return after;
      }),
  };
  const single: Choice = {
    isSingle: true,
    has: (entry) => bare(entry.path) === picked,
    toggle: (entry) =>
      setPicked((before) => (before === bare(entry.path) ? null : bare(entry.path))),
  };
  const enter = (path: string): void => {
    setTo((before) => ({ ...before, path }));
    setPicked(null);
  };
  const browse = (path: string): void => {
    // All sources of a transfer are in one root.
    if (path.split("/")[1] !== from.path.split("/")[1]) clear();
    setFrom((before) => ({ ...before, path }));
  };
  const made = (path: string): void => {
    enter(path);
    setTurn((before) => before + 1);
  };
  const started = (transfer: Transfer): void => {
    put(transfer);
    window.location.hash = link(transfer.id);
  };
  const route = {
    sources: [...chosen.values()],
    fromFar: from.far,
    folder: picked ?? to.path,
    toFar: to.far,
    isClosed: from.asked !== null || to.asked !== null,
  };
  return (
    <main id="content" class="show">
      <h1>{words.heading}</h1>
      <p class="hint">{words.hint}</p>
      <div class="columns">
        <Pane
          api={api}
          far={from.far}
          place={place(from, setFrom, clear)}
          roots={from.far?.roots ?? roots}
          title={words.source}
          path={from.path}
          turn={0}
          go={browse}
          choice={many}
          isClosed={from.asked !== null}
          expired={expired}
        />
        <Pane
          api={api}
          far={to.far}
          place={place(to, setTo, () => setPicked(null))}
          roots={to.far?.roots ?? roots}
          title={words.destination}
          path={to.path}
          turn={turn}
          go={enter}
          choice={single}
          isClosed={to.asked !== null}
          expired={expired}
        >
          <NewFolder api={api} far={to.far} path={to.path} made={made} />
        </Pane>
      </div>
      <Order
        api={api}
        here={names.here}
        route={route}
        clear={clear}
        started={started}
        expired={expired}
      />
    </main>
  );
}
