// The site: roots, storage targets, tiers, promises, owners, and sessions.

import type { JSX } from "preact";
import { useCallback, useMemo } from "preact/hooks";
import type { Api } from "./api";
import { bytes, count } from "./format";
import { usePoll } from "./hooks";
import { Owners, Promises, Sessions } from "./load";
import type { Names } from "./names";
import { Bar, Cut, Failed, Name, Section, Table, TargetName } from "./parts";
import { useLoad } from "./rates";
import type { Store } from "./store";
import * as strings from "./strings";
import { Tiers } from "./tiers";
import { useTransfers } from "./transfers";
import { SEVERITY, type Root, type Space, type Target } from "./types";

const { text } = strings;

const TARGETS_SECONDS = 2;
const SPACE_SECONDS = 30;
/** Maximum number of rows of a table. The endpoint may have thousands of targets. */
const ROWS_MAX = 100;
/** Each root costs one call, which occupies a slot for storage calls. */
const ROOTS_MAX = 32;

interface RootsProps {
  api: Api;
  roots: Root[];
  expired: () => void;
}

interface Props extends RootsProps {
  store: Store;
  names: Names;
}

function rights({ read, write, stage }: Root): string {
  const words = text.site.roots.rights;
  const held = [read && words.read, write && words.write, stage && words.stage].filter(Boolean);
  return held.join(", ") || text.site.roots.noRights;
}

function Roots({ api, roots, expired }: RootsProps): JSX.Element {
  const read = useCallback(async () => {
    const found = new Map<string, Space | null>();
    // One after the other: a hanging root must not occupy all slots of the caller.
    for (const root of roots.slice(0, ROOTS_MAX).filter((each) => each.read)) {
      found.set(root.name, await api.space(`/${root.name}`).catch(() => null));
    }
    return found;
  }, [api, roots]);
  const { value } = usePoll(read, SPACE_SECONDS, expired);
  const rows = roots.slice(0, ROWS_MAX).map((root) => {
    const space = value?.get(root.name);
    const used = space ? space.total - space.free : 0;
    const label = space
      ? text.site.roots.used(bytes(used), bytes(space.total))
      : text.site.roots.unknown;
    return {
      key: root.name,
      cells: [
        <Name of={root.name} />,
        rights(root),
        space && space.total > 0 ? <Bar part={used / space.total} label={label} /> : label,
        space ? bytes(space.available) : "–",
      ],
    };
  });
  return (
    <Section title={text.site.roots.heading}>
      <Table
        columns={text.site.roots.columns}
        rows={rows}
        label={text.site.roots.heading}
        numbers={[3]}
      />
      <Cut shown={rows.length} all={roots.length} />
    </Section>
  );
}

/** The worst targets first, so that a cut list still shows the cause of a slow transfer. */
function worse(a: Target, b: Target): number {
  const severity = SEVERITY[a.state] - SEVERITY[b.state];
  return severity || (b.service_seconds ?? 0) - (a.service_seconds ?? 0);
}

const millis = (seconds: number): string => (1000 * seconds).toFixed(seconds < 0.01 ? 1 : 0);

function Targets({ api, expired }: Pick<Props, "api" | "expired">): JSX.Element {
  const read = useCallback(() => api.targets(), [api]);
  const { value, error } = usePoll(read, TARGETS_SECONDS, expired);
  const all = [...(value ?? [])].sort(worse);
  const slowest = Math.max(...all.map((each) => each.service_seconds ?? 0), 1e-9);
  const words = text.site.targets;
  const rows = all.slice(0, ROWS_MAX).map((each) => ({
    key: `${each.end} ${each.name}`,
    cells: [
      <TargetName of={each.name} />,
      words.end[each.end],
      <span class={`state target ${each.state}`}>{strings.target[each.state]}</span>,
      count(each.sessions),
      count(each.under_way),
      each.service_seconds === null ? (
        "–"
      ) : (
        <span class="measured">
          <Bar
            part={each.service_seconds / slowest}
            label={words.label(millis(each.service_seconds))}
            kind={each.state}
          />
          {words.service(millis(each.service_seconds))}
        </span>
      ),
    ],
  }));
  return (
    <Section title={words.heading}>
      <Failed error={error} />
      {value && rows.length === 0 && <p>{words.none}</p>}
      {rows.length > 0 && (
        <Table columns={words.columns} rows={rows} label={words.heading} numbers={[3, 4]} />
      )}
      <Cut shown={rows.length} all={all.length} />
    </Section>
  );
}

export function Site(props: Props): JSX.Element {
  const { api, store, names, roots, expired } = props;
  const { value, error } = useLoad(api, expired);
  // Only the queue of this endpoint knows the routes of transfers.
  const ids = useMemo(() => {
    const own = value?.sessions.filter((each) => each.is_own) ?? [];
    return [...own, ...(value?.promises ?? [])].map(({ transfer }) => transfer);
  }, [value]);
  const transfers = useTransfers(api, store, ids);
  const known = { transfers, names };
  return (
    <main id="content" class="show">
      <h1>{text.site.heading}</h1>
      <Failed error={error} />
      {!value && !error && <p>{text.site.loading}</p>}
      <div class="columns wide">
        <Roots api={api} roots={roots} expired={expired} />
        <Targets api={api} expired={expired} />
        {value && (
          <>
            <Promises promises={value.promises} hidden={value.hidden.promises} known={known} />
            <Owners sessions={value.sessions} />
            <Sessions sessions={value.sessions} hidden={value.hidden.sessions} known={known} />
          </>
        )}
        <Tiers api={api} expired={expired} />
      </div>
    </main>
  );
}
