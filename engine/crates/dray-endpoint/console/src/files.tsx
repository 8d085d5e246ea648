// The files of a transfer that are under way, and a tree of its folders.

import type { JSX } from "preact";
import { useCallback, useRef, useState } from "preact/hooks";
import type { Api } from "./api";
import { bytes, count } from "./format";
import { usePoll } from "./hooks";
import { Cut, Failed, Name, Section, Table } from "./parts";
import * as strings from "./strings";
import type { FolderSums, LiveFile } from "./types";

const words = strings.text.files;

const POLL_SECONDS = 2;
/** Maximum number of rows of the tree. */
const ROWS_MAX = 500;

const percent = (done: number, all: number): number =>
  all === 0 ? 0 : Math.min(100, Math.floor((100 * done) / all));

function Part({ done, all }: { done: number; all: number }): JSX.Element {
  const label = strings.text.show.of(bytes(done), bytes(all));
  return (
    <span class="progress">
      <progress value={all === 0 ? 0 : Math.min(done, all)} max={all || 1} aria-label={label} />
      <span>{`${percent(done, all)} %`}</span>
    </span>
  );
}

function Files({ files, more }: { files: LiveFile[]; more: number }): JSX.Element {
  if (files.length === 0) return <p>{words.none}</p>;
  const rows = files.map((file) => ({
    key: file.path,
    cells: [
      <Name of={file.path} />,
      strings.fileState[file.state],
      <Part done={file.bytes_done} all={file.size} />,
      bytes(file.size),
    ],
  }));
  return (
    <>
      <Table columns={words.columns} rows={rows} label={words.heading} numbers={[3]} />
      {more > 0 && <p class="hint">{words.more(more, count(more))}</p>}
    </>
  );
}

interface Folder {
  sums: FolderSums;
  name: string;
  level: number;
  parent: Folder | null;
  folders: Folder[];
}

/** Returns the root of the tree. The endpoint sends each folder after its parent. */
function treeOf(folders: FolderSums[]): Folder | null {
  const known = new Map<string, Folder>();
  for (const sums of folders) {
    const slash = sums.path.lastIndexOf("/");
    const parent = sums.path === "" ? null : (known.get(sums.path.slice(0, Math.max(0, slash))) ?? null);
    const name = sums.path === "" ? words.root : `${sums.path.slice(slash + 1)}/`;
    const folder = { sums, name, level: (parent?.level ?? 0) + 1, parent, folders: [] };
    parent?.folders.push(folder);
    known.set(sums.path, folder);
  }
  return known.get("") ?? null;
}

/** Returns the folders that the tree shows, from top to bottom. */
function shownOf(folder: Folder, open: ReadonlySet<string>): Folder[] {
  const below = open.has(folder.sums.path) ? folder.folders : [];
  return [folder, ...below.flatMap((each) => shownOf(each, open))];
}

interface RowProps {
  folder: Folder;
  isOpen: boolean;
  isCurrent: boolean;
  toggle: () => void;
  focused: () => void;
}

function Row({ folder, isOpen, isCurrent, toggle, focused }: RowProps): JSX.Element {
  const { sums } = folder;
  const isLeaf = folder.folders.length === 0;
  return (
    <li
      role="treeitem"
      aria-level={folder.level}
      aria-expanded={isLeaf ? undefined : isOpen}
      aria-selected={isCurrent}
      tabIndex={isCurrent ? 0 : -1}
      data-path={sums.path}
      style={{ paddingLeft: `${1.2 * (folder.level - 1)}rem` }}
      onClick={toggle}
      onFocus={focused}
    >
      <span class="twist" aria-hidden="true">
        {isLeaf ? "" : isOpen ? "\u25be" : "\u25b8"}
      </span>
      <Name of={folder.name} /> <Part done={sums.bytes_done} all={sums.bytes} />{" "}
      <span class="hint">
        {words.sums(count(sums.files_done), count(sums.files), bytes(sums.bytes))}
        {sums.folders_more > 0 && `, ${words.foldersMore(sums.folders_more, count(sums.folders_more))}`}
      </span>
      {sums.failed > 0 && (
        <span class="bad"> {words.failed(count(sums.failed), bytes(sums.bytes_failed))}</span>
      )}
    </li>
  );
}

/** A tree with the keys of the ARIA pattern: arrows, Home, End, Enter and the space bar. */
function Tree({ folders }: { folders: FolderSums[] }): JSX.Element | null {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set([""]));
  const [current, setCurrent] = useState("");
  const list = useRef<HTMLUListElement>(null);
  const root = treeOf(folders);
  if (!root) return null;
  const all = shownOf(root, open);
  const shown = all.slice(0, ROWS_MAX);
  const at = Math.max(0, shown.findIndex(({ sums }) => sums.path === current));
  const toggle = (path: string, isOpen = !open.has(path)): void => {
    const after = new Set(open);
    if (isOpen) after.add(path);
    else after.delete(path);
    setOpen(after);
  };
  const go = (folder: Folder | undefined | null): void => {
    if (!folder) return;
    setCurrent(folder.sums.path);
    const rows = list.current?.querySelectorAll<HTMLElement>("[role=treeitem]") ?? [];
    [...rows].find((row) => row.dataset.path === folder.sums.path)?.focus();
  };
  const pressed = (event: KeyboardEvent): void => {
    const here = shown[at];
    if (!here) return;
    const { path } = here.sums;
    const isOpen = open.has(path);
    const keys: Record<string, () => void> = {
      ArrowDown: () => go(shown[at + 1]),
      ArrowUp: () => go(shown[at - 1]),
      ArrowRight: () => (isOpen ? go(here.folders[0]) : toggle(path, true)),
      ArrowLeft: () =>
        isOpen && here.folders.length > 0 ? toggle(path, false) : go(here.parent),
      Home: () => go(shown[0]),
      End: () => go(shown.at(-1)),
      Enter: () => toggle(path),
      " ": () => toggle(path),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  return (
    <>
      <ul ref={list} class="tree" role="tree" aria-label={words.tree} onKeyDown={pressed}>
        {shown.map((folder, index) => (
          <Row
            key={folder.sums.path}
            folder={folder}
            isOpen={open.has(folder.sums.path)}
            isCurrent={index === at}
            toggle={() => toggle(folder.sums.path)}
            focused={() => setCurrent(folder.sums.path)}
          />
        ))}
      </ul>
      <Cut shown={shown.length} all={all.length} />
    </>
  );
}

interface Props {
  api: Api;
  id: string;
  /** Number of sessions of the transfer. */
  tries: number;
  expired: () => void;
}

export function FilesUnderWay({ api, id, tries, expired }: Props): JSX.Element {
  const read = useCallback(() => api.liveFiles(id), [api, id]);
  const { value, error } = usePoll(read, POLL_SECONDS, expired);
  return (
    <>
      <Section title={words.heading}>
        <Failed error={error} />
        {value && !value.is_reported && <p>{words.unreported}</p>}
        {value?.is_reported && <Files files={value.files} more={value.files_more} />}
      </Section>
      {value?.is_reported && (
        <Section title={tries > 1 ? words.treeOfSession : words.tree}>
          {tries > 1 && <p class="hint">{words.sessionHint}</p>}
          <Tree folders={value.folders} />
        </Section>
      )}
    </>
  );
}
