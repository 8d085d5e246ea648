// The choice of the endpoint of a pane, and the token for another endpoint.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import { Alert } from "./parts";
import { text } from "./strings";
import type { Far, Peer } from "./types";

const words = text.copy;

/** The peers of the endpoint, and those that the user has opened. */
export interface Peers {
  known: Peer[];
  /** The open peers by name. Their tokens are in the memory of the page only. */
  open: ReadonlyMap<string, Far>;
  opened: (far: Far) => void;
}

/** Reads the peers in the configuration. Used by a part that stays for the whole session. */
export function usePeers(api: Api): Peers {
  const [known, setKnown] = useState<Peer[]>([]);
  const [open, setOpen] = useState<ReadonlyMap<string, Far>>(new Map());
  useEffect(() => {
    let isShown = true;
    // Without the list, the page still copies files within this endpoint.
    api.peers().then(
      (found) => isShown && setKnown(found),
      () => undefined,
    );
    return () => {
      isShown = false;
    };
  }, [api]);
  const opened = (far: Far): void => setOpen((before) => new Map(before).set(far.peer.name, far));
  return { known, open, opened };
}

interface FormProps {
  peer: Peer;
  here: string;
  /** True if the login has a token, which the peer may accept too. */
  hasToken: boolean;
  isBusy: boolean;
  /** Connects with a token; null for the token of the login. Resolves to false after a refusal. */
  enter: (token: string | null) => Promise<boolean>;
}

function ConnectForm({ peer, here, hasToken, isBusy, enter }: FormProps): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const connect = async (token: string | null): Promise<void> => {
    if ((await enter(token)) || !field.current) return;
    // A second token must replace the refused one.
    field.current.value = "";
    field.current.focus();
  };
  return (
    <>
      <form
        class="address peer"
        onSubmit={(event) => {
          event.preventDefault();
          void connect(field.current?.value.trim() ?? "");
        }}
      >
        <label class="path">
          {words.peerToken(peer.name)}
          <input
            ref={field}
            name="token"
            type="password"
            autocomplete="off"
            spellcheck={false}
            required
          />
        </label>
        <button type="submit" class="primary" disabled={isBusy}>
          {words.connect}
        </button>
      </form>
      <p class="hint">{words.peerHint(peer.name, here)}</p>
      {hasToken && (
        <>
          <button class="own-token" disabled={isBusy} onClick={() => void connect(null)}>
            {words.ownToken}
          </button>
          <p class="hint">{words.ownTokenHint(peer.name, here)}</p>
        </>
      )}
    </>
  );
}

interface Props {
  api: Api;
  peers: Peers;
  /** Name of the endpoint of the page. */
  here: string;
  far: Far | null;
  /** The selected peer that is not connected yet. */
  asked: Peer | null;
  ask: (peer: Peer | null) => void;
  choose: (far: Far | null) => void;
}

/** Chooses the endpoint of a pane. Asks for a token before the first call to a peer. */
export function EndpointChoice(props: Props): JSX.Element | null {
  const { api, peers, here, far, asked, ask, choose } = props;
  const [error, setError] = useState<CallError | null>(null);
  const [isBusy, setBusy] = useState(false);
  // The name of the peer that the user selected last. An answer about another peer is late.
  const selected = useRef("");
  if (peers.known.length === 0) return null;
  const select = (name: string): void => {
    const peer = peers.known.find((each) => each.name === name) ?? null;
    const known = peer && peers.open.get(peer.name);
    selected.current = name;
    setError(null);
    ask(peer && !known ? peer : null);
    if (!peer || known) choose(known ?? null);
  };
  async function enter(peer: Peer, token: string | null): Promise<boolean> {
    setBusy(true);
    try {
      const found = await api.open(peer, token);
      peers.opened(found);
      if (selected.current !== peer.name) return true;
      setError(null);
      ask(null);
      choose(found);
      return true;
    } catch (failed) {
      if (selected.current === peer.name) setError(asCallError(failed));
      return false;
    } finally {
      setBusy(false);
    }
  }
  return (
    <>
      <label class="endpoint">
        {words.endpoint}
        <select
          name="endpoint"
          value={asked?.name ?? far?.peer.name ?? ""}
          onChange={(event) => select(event.currentTarget.value)}
        >
          <option value="">{words.here(here)}</option>
          {peers.known.map(({ name, address }) => (
            <option key={name} value={name}>
              {`${name} (${address})`}
            </option>
          ))}
        </select>
      </label>
      {asked && (
        <ConnectForm
          key={asked.name}
          peer={asked}
          here={here}
          hasToken={api.hasToken}
          isBusy={isBusy}
          enter={(token) => enter(asked, token)}
        />
      )}
      <Alert error={error} />
    </>
  );
}
