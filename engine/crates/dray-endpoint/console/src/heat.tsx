// A heat map of a transfer: the objects under way on each storage target, over time.

import type { JSX } from "preact";
import { useCallback, useRef } from "preact/hooks";
import type { Api } from "./api";
import { count, visible } from "./format";
import { usePoll } from "./hooks";
import { Cut, Failed, Section, Table, TargetName } from "./parts";
import * as strings from "./strings";
import { SEVERITY, type Target, type TargetState } from "./types";

const { text } = strings;

const POLL_SECONDS = 2;
/** Number of columns: two minutes. */
const COLUMNS = 60;
const ROWS_MAX = 40;
/** Number of targets whose history the page keeps. */
const TARGETS_MAX = 4096;

interface Cell {
  objects: number;
  state: TargetState;
}

interface Row {
  target: Target;
  /** The newest cell is the last one. An empty cell: no session has used the target. */
  cells: (Cell | null)[];
}

const most = (row: Row): number => Math.max(0, ...row.cells.map((cell) => cell?.objects ?? 0));

/** Returns the history with one more column. Drops targets that are no longer in any column. */
function extended(before: ReadonlyMap<string, Row>, targets: Target[]): Map<string, Row> {
  const after = new Map<string, Row>();
  for (const target of targets.slice(0, TARGETS_MAX)) {
    const key = `${target.end} ${target.name}`;
    const cell = { objects: target.under_way, state: target.state };
    const cells = [...(before.get(key)?.cells ?? []), cell].slice(-COLUMNS);
    after.set(key, { target, cells });
  }
  for (const [key, row] of before) {
    if (after.has(key) || after.size >= TARGETS_MAX) continue;
    const cells = [...row.cells, null].slice(-COLUMNS);
    if (cells.some((cell) => cell !== null)) {
      after.set(key, { target: { ...row.target, under_way: 0 }, cells });
    }
  }
  return after;
}

function Strip({ of, highest }: { of: Row; highest: number }): JSX.Element {
  const { name, under_way, state } = of.target;
  const label = text.show.heatLabel(visible(name), under_way, most(of), strings.target[state]);
  const first = COLUMNS - of.cells.length;
  return (
    <svg
      class="heat"
      viewBox={`0 0 ${COLUMNS} 1`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      {of.cells.map(
        (cell, at) =>
          cell && (
            <rect
              key={at}
              x={first + at}
              y={0}
              width={0.9}
              height={1}
              class={cell.state}
              fill-opacity={0.12 + (0.88 * cell.objects) / Math.max(1, highest)}
            />
          ),
      )}
    </svg>
  );
}

interface Props {
  api: Api;
  id: string;
  expired: () => void;
}

export function Heat({ api, id, expired }: Props): JSX.Element {
  const history = useRef<Map<string, Row>>(new Map());
  const read = useCallback(async () => {
    history.current = extended(history.current, await api.targets(id));
    return history.current;
  }, [api, id]);
  const { value, error } = usePoll(read, POLL_SECONDS, expired);
  const all = [...(value?.values() ?? [])].sort(
    (a, b) => SEVERITY[a.target.state] - SEVERITY[b.target.state] || most(b) - most(a),
  );
  const highest = Math.max(1, ...all.map(most));
  const rows = all.slice(0, ROWS_MAX).map((row) => ({
    key: `${row.target.end} ${row.target.name}`,
    cells: [
      <TargetName of={row.target.name} />,
      text.site.targets.end[row.target.end],
      <Strip of={row} highest={highest} />,
      count(row.target.under_way),
    ],
  }));
  return (
    <Section title={text.show.heat}>
      <Failed error={error} />
      {value && rows.length === 0 && <p>{text.show.heatNone}</p>}
      {rows.length > 0 && (
        <>
          <Table
            columns={text.show.heatColumns}
            rows={rows}
            label={text.show.heat}
            numbers={[3]}
          />
          <p class="hint">{text.show.heatHint(POLL_SECONDS)}</p>
        </>
      )}
      <Cut shown={rows.length} all={all.length} />
    </Section>
  );
}
