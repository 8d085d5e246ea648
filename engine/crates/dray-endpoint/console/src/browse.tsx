// One pane that browses the roots of the endpoint.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import { absolute, brief, bytes, escaped, visible } from "./format";
import { Alert, Name } from "./parts";
import { text } from "./strings";
import type { Entry, Far, Root } from "./types";

const words = text.copy;

/** Maximum number of entries that a pane shows. */
const ENTRIES_MAX = 5000;

const parent = (path: string): string => {
  const above = path.slice(0, path.lastIndexOf("/"));
  return above === "" ? path : above;
};

/** Removes slashes at the end, which only a folder's contents have. */
const trimmed = (path: string): string => path.replace(/(.)\/+$/, "$1");

interface Listing {
  entries: Entry[];
  cursor: string | null;
  isLoading: boolean;
  error: CallError | null;
  more: () => void;
}

interface Folder {
  api: Api;
  /** The endpoint of the folder; null for the endpoint of the page. */
  far: Far | null;
  path: string;
  turn: number;
}

function useListing({ api, far, path, turn }: Folder, expired: () => void): Listing {
  const [found, setFound] = useState<Omit<Listing, "more">>({
    entries: [],
    cursor: null,
    isLoading: true,
    error: null,
  });
  // The number of the newest call: an answer to an older call must not replace the listing.
  const newest = useRef(0);
  const read = async (before: Entry[], cursor: string | null): Promise<void> => {
    newest.current += 1;
    const call = newest.current;
    setFound({ entries: before, cursor, isLoading: true, error: null });
    try {
      const [entries, next] = await api.entries(path, cursor, far);
      if (call !== newest.current) return;
      const all = [...before, ...entries];
      setFound({ entries: all, cursor: next, isLoading: false, error: null });
    } catch (failed) {
      if (call !== newest.current) return;
      const error = asCallError(failed);
      if (error.code === 401) expired();
      else setFound({ entries: before, cursor, isLoading: false, error });
    }
  };
  useEffect(() => {
    void read([], null);
    return () => {
      newest.current += 1;
    };
  }, [api, far, path, turn]);
  return { ...found, more: () => void read(found.entries, found.cursor) };
}

function kind(entry: Entry): string {
  if (entry.type === "directory") return words.folder;
  if (entry.type === "symlink") return words.link;
  return entry.type === "file" ? bytes(entry.size) : words.special;
}

/** The choice of a pane: several entries at the source, one folder at the destination. */
export interface Choice {
  isSingle: boolean;
  has: (entry: Entry) => boolean;
  toggle: (entry: Entry) => void;
}

interface RowProps {
  entry: Entry;
  open: (path: string) => void;
  choice: Choice;
}

function Row({ entry, open, choice }: RowProps): JSX.Element {
  const isDirectory = entry.type === "directory";
  // A file of the destination cannot be chosen.
  const canChoose = !choice.isSingle || isDirectory;
  const isChosen = canChoose && choice.has(entry);
  return (
    <tr
      class={isChosen ? "chosen-row" : ""}
      draggable={!choice.isSingle}
      onClick={(event) => {
        // The field and the button of the row act by themselves.
        if (!canChoose || (event.target as Element).closest("input, button")) return;
        event.currentTarget.querySelector("input")?.focus({ preventScroll: true });
        choice.toggle(entry);
      }}
      onDblClick={() => isDirectory && open(entry.path)}
      onDragStart={(event) => {
        event.dataTransfer?.setData("text/plain", entry.path);
        if (!choice.has(entry)) choice.toggle(entry);
      }}
      onDrop={(event) => {
        // A drop on a folder of the destination opens it; the pane accepts every drop.
        if (choice.isSingle && isDirectory) {
          event.preventDefault();
          open(entry.path);
        }
      }}
    >
      <th scope="row">
        {canChoose && (
          <input
            type="checkbox"
            aria-label={words.choose(visible(entry.name), isDirectory, choice.isSingle)}
            checked={isChosen}
            onChange={() => choice.toggle(entry)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || !isDirectory) return;
              event.preventDefault();
              open(entry.path);
            }}
          />
        )}{" "}
        <Name of={isDirectory ? `${entry.name}/` : entry.name} />
      </th>
      <td class="number">{kind(entry)}</td>
      <td class="when">
        <time dateTime={entry.modified_at} title={absolute(entry.modified_at)}>
          {brief(entry.modified_at)}
        </time>
      </td>
      <td>
        {isDirectory && (
          <button
            class="folder"
            aria-label={words.openFolder(visible(entry.name))}
            onClick={() => open(entry.path)}
          >
            {words.open}
          </button>
        )}
      </td>
    </tr>
  );
}

function Address(props: {
  roots: Root[];
  path: string;
  go: (path: string) => void;
}): JSX.Element {
  const { roots, path, go } = props;
  const root = path.split("/")[1] ?? "";
  return (
    <form
      class="address"
      key={path}
      onSubmit={(event) => {
        event.preventDefault();
        const field = event.currentTarget.elements.namedItem("path") as HTMLInputElement;
        go(trimmed(field.value.trim()));
      }}
    >
      <label>
        {words.root}
        <select value={root} onChange={(event) => go(`/${event.currentTarget.value}`)}>
          {roots.map(({ name }) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label class="path">
        {words.path}
        <input name="path" defaultValue={path} spellcheck={false} autocomplete="off" />
      </label>
      <button type="submit">{words.open}</button>
      <button type="button" disabled={parent(path) === path} onClick={() => go(parent(path))}>
        {words.up}
      </button>
    </form>
  );
}

/** Moves the focus between the rows of a folder with the arrow keys. */
function moveFocus(event: KeyboardEvent): void {
  const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
  const row = document.activeElement?.closest("tr");
  if (step === 0 || !row) return;
  event.preventDefault();
  let next: Element | null = row;
  do {
    next = step > 0 ? next.nextElementSibling : next.previousElementSibling;
    // A file of the destination has no field.
  } while (next && !next.querySelector("input, button"));
  next?.querySelector<HTMLElement>("input, button")?.focus();
}

interface NewFolderProps {
  api: Api;
  far: Far | null;
  path: string;
  made: (path: string) => void;
}

export function NewFolder({ api, far, path, made }: NewFolderProps): JSX.Element {
  const [error, setError] = useState<CallError | null>(null);
  async function create(form: HTMLFormElement): Promise<void> {
    const field = form.elements.namedItem("name") as HTMLInputElement;
    if (field.value === "") return;
    try {
      const entry = await api.mkdir(`${path}/${escaped(field.value)}`, far);
      setError(null);
      field.value = "";
      made(trimmed(entry.path));
    } catch (failed) {
      setError(asCallError(failed));
    }
  }
  return (
    <>
      <form
        class="address"
        onSubmit={(event) => {
          event.preventDefault();
          void create(event.currentTarget);
        }}
      >
        <label class="path">
          {words.newFolder}
          <input name="name" spellcheck={false} autocomplete="off" />
        </label>
        <button type="submit">{words.create}</button>
      </form>
      <Alert error={error} />
    </>
  );
}

interface PaneProps {
  api: Api;
  far: Far | null;
  roots: Root[];
  /** The choice of the endpoint, above the folder. */
  place?: ComponentChildren;
  title: string;
  path: string;
  /** Changes when the folder must be read again. */
  turn: number;
  go: (path: string) => void;
  choice: Choice;
  /** True until the endpoint of the pane is connected. The pane then shows no folder. */
  isClosed: boolean;
  expired: () => void;
  children?: ComponentChildren;
}

function Entries(props: PaneProps): JSX.Element {
  const { api, far, title, path, turn, go, choice, expired } = props;
  const { entries, cursor, isLoading, error, more } = useListing({ api, far, path, turn }, expired);
  const isFull = entries.length >= ENTRIES_MAX;
  const open = (opened: string): void => go(trimmed(opened));
  return (
    <div
      class="scroll entries"
      role="region"
      aria-label={`${title}: ${visible(path)}`}
      tabIndex={0}
      onKeyDown={moveFocus}
    >
      <Alert error={error} />
      <p class="hint" role="status">
        {isLoading ? words.loading : entries.length === 0 && !error ? words.empty : ""}
      </p>
      {entries.length > 0 && (
        <table>
          <thead>
            <tr>
              {words.columns.map((each, at) => (
                <th key={each} scope="col" class={["", "number", "when"][at]}>
                  {each}
                </th>
              ))}
              <td />
            </tr>
          </thead>
          <tbody>
            {entries.map((entry) => (
              <Row key={entry.path} entry={entry} open={open} choice={choice} />
            ))}
          </tbody>
        </table>
      )}
      {cursor !== null && !isFull && !isLoading && <button onClick={more}>{words.more}</button>}
      {cursor !== null && isFull && <p class="hint">{words.full(entries.length)}</p>}
    </div>
  );
}

export function Pane(props: PaneProps): JSX.Element {
  const { roots, title, path, go, choice, isClosed } = props;
  return (
    <section
      class="pane"
      aria-label={title}
      onDragOver={(event) => choice.isSingle && event.preventDefault()}
      onDrop={(event) => event.preventDefault()}
    >
      <h2>{title}</h2>
      {props.place}
      {!isClosed && (
        <>
          <Address roots={roots} path={path} go={go} />
          <Entries {...props} />
          {props.children}
        </>
      )}
    </section>
  );
}
