// Two panes to choose sources and a destination, a check of the promise, and the start.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import { NewFolder, Pane } from "./browse";
import { absolute, local, rate } from "./format";
import { Alert, Name, Offer, Section, link } from "./parts";
import { EndpointChoice, usePeers } from "./peers";
import { text } from "./strings";
import type { Admission, Draft, Entry, Far, Root, Transfer } from "./types";

const words = text.move;

const SOURCES_MAX = 256;
const MIB = 1024 * 1024;
const GIB = 1024 * MIB;

interface Settings {
  deadline: string;
  rate: string;
  expected: string;
  isBestEffort: boolean;
}

const NO_SETTINGS: Settings = { deadline: "", rate: "", expected: "", isBestEffort: false };

/** Returns an id that no earlier transfer has. */
function freshId(): string {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return `ui-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const isFolder = (entry: Entry): boolean => entry.type === "directory";

/** What the two panes show: the chosen entries, the folder, and the endpoints of both. */
interface Route {
  sources: Entry[];
  fromFar: Far | null;
  folder: string;
  toFar: Far | null;
}

const bare = (path: string): string => path.replace(/\/$/, "");

/** Returns the URL of a path, which names the other endpoint if the path is not at this one. */
const urlOf = (far: Far | null, path: string): string =>
  far ? `dray://${far.peer.address}${path}` : path;

function draft({ sources, fromFar, folder, toFar }: Route, settings: Settings): Draft {
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
  const expected = hasFolders
    ? Math.round(Number(settings.expected) * GIB)
    : sources.reduce((sum, { size }) => sum + size, 0);
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
  hasFolders: boolean;
  set: (part: Partial<Settings>) => void;
}

function Form({ settings, hasFolders, set }: FormProps): JSX.Element {
  return (
    <div class="change">
      <label>
        {words.deadline}
        <input
          id="move-deadline"
          type="datetime-local"
          step={1}
          value={settings.deadline}
          onInput={(event) => set({ deadline: event.currentTarget.value })}
        />
      </label>
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
      {hasFolders && (
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

/** The endpoint's decision, before anything is started. */
function Decision({ of, hasDeadline, accept }: DecisionProps): JSX.Element {
  const answer = of.transfers[0] ?? {};
  const offer = answer.earliest_finish;
  if (of.decision === "refuse") {
    return (
      <div class="error" role="alert">
        <p class="message">{words.refused}</p>
        <Offer of={answer} />
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
    return <p role="status">{words.promised(rate(answer.rate), finish)}</p>;
  }
  return (
    <div role="status">
      <p>{hasDeadline ? words.unpromised : words.accepted}</p>
      {hasDeadline && (answer.reasons ?? []).map((each) => (
        <p key={each}>
          <Name of={each} />
        </p>
      ))}
    </div>
  );
}

interface OrderProps {
  api: Api;
  route: Route;
  clear: () => void;
  started: (transfer: Transfer) => void;
  expired: () => void;
}

/** The answer to a check, with the request that was checked. */
interface Checked {
  id: string;
  wanted: string;
  decision: Admission;
}

interface Calls {
  checked: Checked | null;
  error: CallError | null;
  isBusy: boolean;
  run: (call: () => Promise<void>) => Promise<void>;
  check: (wanted: Draft) => Promise<void>;
}

function useCalls(api: Api, expired: () => void): Calls {
  const [checked, setChecked] = useState<Checked | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const run = async (call: () => Promise<void>): Promise<void> => {
    setBusy(true);
    setError(null);
    try {
      await call();
    } catch (failed) {
      const refused = asCallError(failed);
      if (refused.code === 401) expired();
      else setError(refused);
    }
    setBusy(false);
  };
  const check = (wanted: Draft): Promise<void> =>
    run(async () => {
      const decision = await api.admission(wanted);
      setChecked({ id: freshId(), wanted: JSON.stringify(wanted), decision });
    });
  return { checked, error, isBusy, run, check };
}

function Chosen({ sources, folder, fromFar, toFar }: Route): JSX.Element {
  return (
    <>
      <p role="status">
        {words.chosen(sources.length)}. <Name of={words.into(urlOf(toFar, `${folder}/`))} />
      </p>
      {fromFar && toFar && <p class="bad">{words.bothFar}</p>}
      {sources.length > 0 && (
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

function Order({ api, route, clear, started, expired }: OrderProps): JSX.Element {
  const { sources, fromFar, toFar } = route;
  const [settings, setSettings] = useState(NO_SETTINGS);
  const { checked, error, isBusy, run, check } = useCalls(api, expired);
  const wanted = draft(route, settings);
  // A check holds only for the request that it was made for.
  const valid = checked?.wanted === JSON.stringify(wanted) ? checked : null;
  const isBothFar = fromFar !== null && toFar !== null;
  const isFit = sources.length > 0 && sources.length <= SOURCES_MAX && !isBothFar;
  const canCheck = !isBusy && isFit;
  const accept = (deadline: string): void => {
    // The field has whole seconds: round up, so that the endpoint is not asked for an earlier time.
    const whole = new Date(1000 * Math.ceil(Date.parse(deadline) / 1000)).toISOString();
    const agreed = { ...settings, deadline: local(whole) };
    setSettings(agreed);
    void check(draft(route, agreed));
  };
  const start = (id: string): void => {
    void run(async () => {
      started(await api.submit(id, await withTicket(api, id, wanted, route)));
    });
  };
  return (
    <Section title={words.settings}>
      <Chosen {...route} />
      <Form
        settings={settings}
        hasFolders={sources.some(isFolder)}
        set={(part) => setSettings((before) => ({ ...before, ...part }))}
      />
      <div class="buttons">
        <button id="check" disabled={!canCheck} onClick={() => void check(wanted)}>
          {words.check}
        </button>
        <button disabled={sources.length === 0} onClick={clear}>
          {words.clear}
        </button>
      </div>
      {!valid && <p class="hint">{words.checkHint}</p>}
      <Alert error={error} />
      {valid && (
        <Decision of={valid.decision} hasDeadline={settings.deadline !== ""} accept={accept} />
      )}
      <div class="buttons">
        <button
          id="start"
          class="primary"
          disabled={isBusy || valid?.decision.decision !== "accept"}
          onClick={() => valid && start(valid.id)}
        >
          {words.start}
        </button>
      </div>
    </Section>
  );
}

interface Props {
  api: Api;
  roots: Root[];
  put: (transfer: Transfer) => void;
  expired: () => void;
}

export function Move({ api, roots, put, expired }: Props): JSX.Element {
  const first = `/${roots[0]?.name ?? ""}`;
  const writable = roots.find((root) => root.write && `/${root.name}` !== first);
  const [from, setFrom] = useState(first);
  const [to, setTo] = useState(writable ? `/${writable.name}` : first);
  const [chosen, setChosen] = useState<ReadonlyMap<string, Entry>>(new Map());
  const [turn, setTurn] = useState(0);
  const peers = usePeers(api);
  const [open, setOpen] = useState<ReadonlyMap<string, Far>>(new Map());
  const [fromFar, setFromFar] = useState<Far | null>(null);
  const [toFar, setToFar] = useState<Far | null>(null);
  const opened = (far: Far): void => setOpen((before) => new Map(before).set(far.peer.name, far));
  const rootOf = (far: Far | null): string => `/${(far?.roots ?? roots)[0]?.name ?? ""}`;
  const shared = { api, peers, open, opened };
  const choose = (entry: Entry): void =>
    setChosen((before) => {
      const after = new Map(before);
      if (!after.delete(entry.path)) after.set(entry.path, entry);
      return after;
    });
  const browse = (path: string): void => {
    // All sources of a transfer are in one root.
    if (path.split("/")[1] !== from.split("/")[1]) setChosen(new Map());
    setFrom(path);
  };
  const started = (transfer: Transfer): void => {
    put(transfer);
    window.location.hash = link(transfer.id);
  };
  return (
    <main id="content" class="show">
      <h1>{words.heading}</h1>
      <p class="hint">{words.hint}</p>
      <div class="columns">
        <Pane
          api={api}
          far={fromFar}
          place={
            <EndpointChoice
              {...shared}
              far={fromFar}
              choose={(far) => {
                setFromFar(far);
                setFrom(rootOf(far));
                setChosen(new Map());
              }}
            />
          }
          roots={fromFar?.roots ?? roots}
          title={words.source}
          path={from}
          turn={0}
          go={browse}
          chosen={chosen}
          choose={choose}
          expired={expired}
        />
        <Pane
          api={api}
          far={toFar}
          place={
            <EndpointChoice
              {...shared}
              far={toFar}
              choose={(far) => {
                setToFar(far);
                setTo(rootOf(far));
              }}
            />
          }
          roots={toFar?.roots ?? roots}
          title={words.destination}
          path={to}
          turn={turn}
          go={setTo}
          expired={expired}
        >
          {toFar === null && (
            <NewFolder
              api={api}
              path={to}
              made={(path) => {
                setTo(path);
                setTurn((before) => before + 1);
              }}
            />
          )}
        </Pane>
      </div>
      <Order
        api={api}
        route={{ sources: [...chosen.values()], fromFar, folder: to, toFar }}
        clear={() => setChosen(new Map())}
        started={started}
        expired={expired}
      />
    </main>
  );
}
