// The object log of a transfer: the files that a next session continues, and those it sends again.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import { bytes, count } from "./format";
import { useNewest } from "./hooks";
import { nameOf, type Names } from "./names";
import { Alert, Fact, Name, Section, Table } from "./parts";
import * as strings from "./strings";
import type { LogFile, Transfer, TransferLog } from "./types";

const words = strings.text.log;

/** Maximum number of ranges in one row. */
const RANGES_MAX = 4;

function Ranges({ of }: { of: LogFile }): JSX.Element {
  const shown = of.trusted.slice(0, RANGES_MAX);
  const more = of.trusted.length - shown.length + of.ranges_more;
  return (
    <>
      {words.trusted(bytes(of.bytes_trusted), bytes(of.size))}
      {shown.map(({ offset, length }) => (
        <small key={offset} class="hint range">
          {words.range(count(offset), count(offset + length))}
        </small>
      ))}
      {more > 0 && <small class="hint range">{words.moreRanges(count(more))}</small>}
    </>
  );
}

function Files({ files }: { files: LogFile[] }): JSX.Element {
  const rows = files.map((file) => ({
    key: file.path,
    cells: [
      <Name of={file.path} />,
      <Ranges of={file} />,
      <span class={file.verdict === "trusted" ? "good" : "bad"}>
        {strings.logVerdict[file.verdict]}
      </span>,
      <Name of={file.why} />,
    ],
  }));
  return <Table columns={words.columns} rows={rows} label={words.heading} />;
}

interface FoundProps {
  of: TransferLog;
  names: Names;
}

function Found({ of, names }: FoundProps): JSX.Element {
  const { log, files, endpoint } = of;
  if (endpoint !== null) return <Name of={words.elsewhere(nameOf(endpoint, names))} />;
  if (log === null) return <p>{words.none}</p>;
  return (
    <>
      <dl>
        <Fact name={words.place}>
          <Name of={log.path} />
        </Fact>
        <Fact name={words.form} title={words.formTitle}>
          {words.formOf(log)}
        </Fact>
        <Fact name={words.holder}>
          <Name of={log.transfer} />
        </Fact>
        <Fact name={words.files}>{count(log.files)}</Fact>
        <Fact name={words.size}>{bytes(log.bytes)}</Fact>
      </dl>
      {log.damage && (
        <p class="bad">
          <Name of={log.damage} />
        </p>
      )}
      {files.length > 0 && <Files files={files} />}
    </>
  );
}

interface Props {
  api: Api;
  of: Transfer;
  names: Names;
}

/** Reads the log only when the user asks for it, because the endpoint examines each partial file. */
export function ObjectLog({ api, of, names }: Props): JSX.Element {
  const [found, setFound] = useState<TransferLog | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  const [isBusy, setBusy] = useState(false);
  const { id, attempt } = of;
  const begin = useNewest(`${id} ${attempt}`);
  // Another attempt has another log.
  useEffect(() => {
    setFound(null);
    setError(null);
    setBusy(false);
  }, [id, attempt]);

  async function read(cursor: string | null): Promise<void> {
    const isWanted = begin();
    setBusy(true);
    try {
      const page = await api.log(id, cursor);
      if (!isWanted()) return;
      const before = cursor === null ? [] : (found?.files ?? []);
      setFound({ ...page, files: [...before, ...page.files] });
      setError(null);
    } catch (failed) {
      if (!isWanted()) return;
      setError(asCallError(failed));
    }
    setBusy(false);
  }

  return (
    <Section title={words.heading} kind="log">
      <p class="hint">{words.hint}</p>
      {found && <Found of={found} names={names} />}
      <div class="buttons">
        <button id="read-log" disabled={isBusy} onClick={() => void read(null)}>
          {found ? words.again : words.read}
        </button>
        {found?.next != null && (
          <button disabled={isBusy} onClick={() => void read(found.next)}>
            {words.more}
          </button>
        )}
      </div>
      <Alert error={error} />
    </Section>
  );
}
