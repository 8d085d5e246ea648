// The list of transfers. It draws only the rows in view, so its cost does not depend on the number
// of transfers.

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Api } from "./api";
import { rate, visible } from "./format";
import { useNarrow, useNow, useStore } from "./hooks";
import { Incoming } from "./incoming";
import { labelOf, routeOf, type Names } from "./names";
import { Alert, Mark, Name, Progress, When, link } from "./parts";
import type { Store } from "./store";
import * as strings from "./strings";
import { isInterrupted, isLive, type State, type Transfer } from "./types";
import { verdictOf } from "./verdict";

const { text } = strings;

/** Heights of a row in pixels; app.css sets the same heights. */
const ROW_HEIGHT = 56;
const ROW_HEIGHT_NARROW = 128;
/** Rows that are drawn above and below the rows in view. */
const MARGIN = 8;
const DRAW_PAUSE_MS = 250;
const STATES = Object.keys(strings.state) as State[];
const CLASSES = ["realtime", "deadline", "background"];

/** The searched words of each request. An update of the counters keeps the request. */
const words = new WeakMap<Transfer["request"], string>();

function searched(transfer: Transfer): string {
  const { request } = transfer;
  const known = words.get(request);
  if (known !== undefined) return known;
  const { sources, destination, labels, activity } = request;
  const urls = [...sources.map((source) => source.url), destination.url];
  const marks = Object.entries(labels ?? {}).map(([key, value]) => `${key}:${value}`);
  const all = [transfer.id, transfer.owner, activity ?? "", ...urls, ...marks].join("\n");
  words.set(request, all.toLowerCase());
  return all.toLowerCase();
}

/** Returns the rows to show in their order, and the number of rows without the search. */
function chosen(store: Store, search: string): [Transfer[], number] {
  const wanted = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found: Transfer[] = [];
  let loaded = 0;
  for (const transfer of store.rows.values()) {
    if (!store.has(transfer)) continue;
    loaded += 1;
    if (wanted.length > 0) {
      const all = searched(transfer);
      if (!wanted.every((word) => all.includes(word))) continue;
    }
    found.push(transfer);
  }
  found.sort((a, b) =>
    a.submitted_at === b.submitted_at
      ? a.id < b.id ? 1 : -1
      : a.submitted_at < b.submitted_at ? 1 : -1,
  );
  return [found, loaded];
}

interface TimeProps {
  of: Transfer;
  now: number;
}

function Finish({ of, now }: TimeProps): JSX.Element {
  const at = of.ended_at ?? (isInterrupted(of) ? null : of.eta);
  if (at) return <When at={at} now={now} />;
  const isMeasuring = of.state === "active" && !isInterrupted(of) && !of.held;
  return <>{isMeasuring ? text.list.measuring : "–"}</>;
}

function Deadline({ of, now }: TimeProps): JSX.Element {
  const { deadline } = of.request;
  const verdict = verdictOf(of, now);
  if (!deadline) return <>–</>;
  if (verdict === null || verdict === "open") return <When at={deadline} now={now} />;
  if (verdict === "kept") return <>{strings.verdict.kept}</>;
  return (
    <>
      {isLive(of.state) && (
        <>
          <When at={deadline} now={now} />{" "}
        </>
      )}
      <strong class="bad">{strings.verdict[verdict]}</strong>
    </>
  );
}

interface RowProps {
  transfer: Transfer;
  names: Names;
  index: number;
  top: number;
  now: number;
}

function Row({ transfer, names, index, top, now }: RowProps): JSX.Element {
  const { sources, destination } = transfer.request;
  const { from, to } = routeOf(transfer, names);
  const first = text.list.sources(sources[0]?.url ?? "", sources.length - 1);
  const label = labelOf(transfer);
  return (
    <div class="row" role="row" aria-rowindex={index + 2} style={{ top: `${top}px` }}>
      <span role="cell">
        <Mark of={transfer} />
      </span>
      <span role="cell" class="route">
        <a href={link(transfer.id)} title={visible(`${first} → ${destination.url}`)}>
          <Name of={from} />
          <span aria-label={text.show.to}> → </span>
          <Name of={to} />
        </a>
        <small class="hint">
          {label !== "" && (
            <>
              <Name of={label} />
              {" · "}
            </>
          )}
          <bdi class="id">{transfer.id}</bdi>
        </small>
      </span>
      <span role="cell">
        <Progress of={transfer} />
      </span>
      <span role="cell" class="number">
        {rate(isLive(transfer.state) ? transfer.rate.now : transfer.rate.mean || null)}
      </span>
      <span role="cell" class="time" data-name={text.list.columns.finish}>
        <Finish of={transfer} now={now} />
      </span>
      <span role="cell" class="time" data-name={text.list.columns.deadline}>
        <Deadline of={transfer} now={now} />
      </span>
      <span role="cell">
        <Name of={transfer.owner} />
      </span>
    </div>
  );
}

function Filters(props: {
  store: Store;
  search: string;
  setSearch: (text: string) => void;
}): JSX.Element {
  const { store, search, setSearch } = props;
  const change = (part: Partial<Store["filter"]>): void => {
    store.filter = { ...store.filter, ...part };
    void store.load();
  };
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        {text.list.states}
        <select
          id="filter-state"
          value={store.filter.state}
          onChange={(event) => change({ state: event.currentTarget.value })}
        >
          <option value="">{strings.filter.all}</option>
          <option value="live">{strings.filter.live}</option>
          <option value="terminal">{strings.filter.terminal}</option>
          {STATES.map((each) => (
            <option key={each} value={each}>
              {strings.state[each]}
            </option>
          ))}
        </select>
      </label>
      <label>
        {text.list.classes}
        <select
          value={store.filter.class}
          onChange={(event) => change({ class: event.currentTarget.value })}
        >
          <option value="">{text.list.allClasses}</option>
          {CLASSES.map((each) => (
            <option key={each} value={each}>
              {each}
            </option>
          ))}
        </select>
      </label>
      <label>
        {text.list.search}
        <input
          id="filter-search"
          type="search"
          value={search}
          placeholder={text.list.searchHint}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </label>
    </form>
  );
}

/** Moves the focus between the links of the rows with the arrow keys. */
function moveFocus(event: KeyboardEvent, height: number): void {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const box = event.currentTarget as HTMLElement;
  const links = [...box.querySelectorAll<HTMLAnchorElement>(".row a")];
  const at = links.indexOf(document.activeElement as HTMLAnchorElement);
  if (step === 0 || at < 0) return;
  event.preventDefault();
  const next = links[at + step];
  next?.focus({ preventScroll: true });
  const row = next?.closest<HTMLElement>(".row");
  if (!row) return;
  const top = row.offsetTop;
  if (top < box.scrollTop) box.scrollTop = top;
  if (top + height > box.scrollTop + box.clientHeight) {
    box.scrollTop = top + height - box.clientHeight;
  }
}

interface Props {
  api: Api;
  store: Store;
  names: Names;
  /** True if the caller may write to a root. */
  canCopy: boolean;
  expired: () => void;
}

/** The first thing to do on a page without transfers. */
function Nothing({ hasAny, canCopy }: { hasAny: boolean; canCopy: boolean }): JSX.Element {
  return (
    <div role="row" class="none">
      <span role="cell">
        {hasAny ? text.list.none : text.list.empty}{" "}
        {!hasAny && canCopy && <a href="#/new">{text.list.first}</a>}
      </span>
    </div>
  );
}

export function List({ api, store, names, canCopy, expired }: Props): JSX.Element {
  const turn = useStore(store, DRAW_PAUSE_MS);
  const now = useNow(5);
  const height = useNarrow() ? ROW_HEIGHT_NARROW : ROW_HEIGHT;
  const [search, setSearch] = useState("");
  const [view, setView] = useState({ top: 0, height: 800 });
  const box = useRef<HTMLDivElement>(null);
  const [found, loaded] = useMemo(() => chosen(store, search), [store, search, turn]);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = (): void =>
      setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);

  const start = Math.max(0, Math.floor(view.top / height) - MARGIN);
  const end = Math.min(found.length, Math.ceil((view.top + view.height) / height) + MARGIN);
  const columns = Object.values(text.list.columns);
  const { state, class: wanted } = store.filter;
  const isFiltered = search !== "" || state !== "" || wanted !== "";
  return (
    <main id="content" class="list">
      <div class="heading">
        <h1>{text.list.heading}</h1>
        {canCopy && (
          <a class="button primary" id="new" href="#/new">
            {text.list.new}
          </a>
        )}
      </div>
      <Filters store={store} search={search} setSearch={setSearch} />
      <Alert error={store.error} />
      <Incoming api={api} names={names} expired={expired} />
      <p class="hint" role="status">
        {store.isLoading && store.rows.size === 0
          ? text.list.loading
          : text.list.count(found.length, loaded, store.hasMore)}
      </p>
      <div
        role="table"
        class="table"
        aria-rowcount={found.length + 1}
        aria-label={text.list.heading}
      >
        <div class="row head" role="row" aria-rowindex={1}>
          {columns.map((each) => (
            <span key={each} role="columnheader">
              {each}
            </span>
          ))}
        </div>
        <div
          class="body"
          role="rowgroup"
          ref={box}
          onKeyDown={(event) => moveFocus(event, height)}
        >
          <div class="space" role="presentation" style={{ height: `${found.length * height}px` }}>
            {found.slice(start, end).map((transfer, at) => (
              <Row
                key={transfer.id}
                transfer={transfer}
                names={names}
                index={start + at}
                top={(start + at) * height}
                now={now}
              />
            ))}
          </div>
          {found.length === 0 && !store.isLoading && (
            <Nothing hasAny={loaded > 0 || isFiltered} canCopy={canCopy} />
          )}
        </div>
      </div>
    </main>
  );
}
