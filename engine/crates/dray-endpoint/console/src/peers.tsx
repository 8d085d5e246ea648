// The choice of the endpoint of a pane, and the token for another endpoint.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import { Alert } from "./parts";
import { text } from "./strings";
import type { Far, Peer } from "./types";

const words = text.move;

/** Reads the peers in the configuration of the endpoint. */
export function usePeers(api: Api): Peer[] {
  const [peers, setPeers] = useState<Peer[]>([]);
  useEffect(() => {
    let isShown = true;
    // Without the list, the page still moves files within this endpoint.
    api.peers().then(
      (found) => isShown && setPeers(found),
      () => undefined,
    );
    return () => {
      isShown = false;
    };
  }, [api]);
  return peers;
}

interface Props {
  api: Api;
  peers: Peer[];
  /** The peers that are open, by name. Their tokens are in the memory of the page only. */
  open: ReadonlyMap<string, Far>;
  far: Far | null;
  opened: (far: Far) => void;
  choose: (far: Far | null) => void;
}

/** Chooses the endpoint of a pane. Asks for a token before the first call to a peer. */
export function EndpointChoice(props: Props): JSX.Element | null {
  const { api, peers, open, far, opened, choose } = props;
  const [asked, setAsked] = useState<Peer | null>(null);
  const [error, setError] = useState<CallError | null>(null);
  // The name of the peer that the user selected last. An answer about another peer is late.
  const selected = useRef("");
  if (peers.length === 0) return null;
  const select = (name: string): void => {
    const peer = peers.find((each) => each.name === name) ?? null;
    const known = peer && open.get(peer.name);
    selected.current = name;
    setError(null);
    setAsked(peer && !known ? peer : null);
    if (!peer || known) choose(known ?? null);
  };
  async function enter(peer: Peer, token: string): Promise<void> {
    try {
      const found = await api.open(peer, token);
      opened(found);
      if (selected.current !== peer.name) return;
      setError(null);
      setAsked(null);
      choose(found);
    } catch (failed) {
      if (selected.current === peer.name) setError(asCallError(failed));
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
          <option value="">{words.here}</option>
          {peers.map(({ name, address }) => (
            <option key={name} value={name}>
              {`${name} (${address})`}
            </option>
          ))}
        </select>
      </label>
      {asked && (
        <form
          class="address peer"
          onSubmit={(event) => {
            event.preventDefault();
            const field = event.currentTarget.elements.namedItem("token") as HTMLInputElement;
            void enter(asked, field.value.trim());
          }}
        >
          <label class="path">
            {words.peerToken(asked.name)}
            <input name="token" type="password" autocomplete="off" spellcheck={false} />
          </label>
          <button type="submit">{words.connect}</button>
        </form>
      )}
      {asked && <p class="hint">{words.peerHint}</p>}
      <Alert error={error} />
    </>
  );
}
