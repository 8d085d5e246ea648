// The sessions that other endpoints drive: this endpoint's queue has no transfer for them.

import type { JSX } from "preact";
import type { Api } from "./api";
import { bytes, count, visible } from "./format";
import { nameOf, type Names } from "./names";
import { Measured, Name, Section, Table } from "./parts";
import { useLoad, type Rated } from "./rates";
import { text } from "./strings";

const words = text.incoming;

/** Maximum number of rows; the page of the site shows more. */
const ROWS_MAX = 20;

function rootsOf({ roots, direction }: Rated): string {
  const names = roots.map((root) => `/${root}`).join(", ");
  return direction === "in" ? words.into(names) : words.from(names);
}

interface Props {
  api: Api;
  names: Names;
  expired: () => void;
}

/** Shows nothing while no other endpoint drives a session here. */
export function Incoming({ api, names, expired }: Props): JSX.Element | null {
  const { value } = useLoad(api, expired);
  const all = (value?.sessions ?? []).filter((each) => !each.is_own);
  if (all.length === 0) return null;
  const rows = all.slice(0, ROWS_MAX).map((each, at) => ({
    key: `${at} ${each.transfer}`,
    cells: [
      <span class="state active">
        {each.direction === "in" ? words.incoming : words.outgoing}
      </span>,
      <Name of={nameOf(each.peer ?? "", names)} />,
      <>
        <Name of={rootsOf(each)} />
        <small class="hint id">{visible(each.transfer)}</small>
      </>,
      text.show.of(count(each.files_done), count(each.files_listed)),
      text.show.of(bytes(each.moved), bytes(each.listed)),
      <Measured rate={each.rate} />,
      <Name of={each.owner} />,
    ],
  }));
  return (
    <Section title={words.heading} kind="incoming">
      <Table columns={words.columns} rows={rows} label={words.heading} numbers={[5]} />
      <p class="hint">
        {words.hint}
        {all.length > rows.length && ` ${text.site.cut(rows.length, all.length)}`}
      </p>
    </Section>
  );
}
