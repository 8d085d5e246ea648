// The page: login, header, and the view that the part of the address after `#` names.

import { render, type JSX } from "preact";
import { useCallback, useState } from "preact/hooks";
import type { Api } from "./api";
import "./app.css";
import { useHash, useStore } from "./hooks";
import { List } from "./list";
import { Login } from "./login";
import { Name } from "./parts";
import { Store } from "./store";
import { text } from "./strings";
import { Show } from "./transfer";
import type { Endpoint } from "./types";

interface Session {
  api: Api;
  endpoint: Endpoint;
  store: Store;
}

function shown(hash: string): string | null {
  const found = /^#\/transfers\/([^/]+)$/.exec(hash);
  if (!found) return null;
  try {
    return decodeURIComponent(found[1] ?? "");
  } catch {
    return null;
  }
}

function Header({ session, logout }: { session: Session; logout: () => void }): JSX.Element {
  const { endpoint, store } = session;
  useStore(store, 250);
  const { owner, administrator } = endpoint.you;
  return (
    <header>
      <a class="skip" href="#content" onClick={(event) => {
        // The address names the view, so the link must not change it.
        event.preventDefault();
        const content = document.getElementById("content");
        content?.setAttribute("tabindex", "-1");
        content?.focus();
      }}>
        {text.skip}
      </a>
      <a class="title" href="#/">
        {text.title} <Name of={endpoint.name} />
      </a>
      <span class={`connection ${store.connection}`} role="status">
        {text.connection[store.connection]}
      </span>
      <span class="caller">
        <Name of={text.caller(owner, administrator)} />
      </span>
      <button id="logout" onClick={logout}>
        {text.logout}
      </button>
    </header>
  );
}

function App(): JSX.Element {
  const [session, setSession] = useState<Session | null>(null);
  const [isExpired, setExpired] = useState(false);
  const hash = useHash();
  const id = shown(hash);

  const expired = useCallback(() => {
    setExpired(true);
    setSession(null);
  }, []);
  const login = (api: Api, endpoint: Endpoint): void => {
    const store = new Store(api, expired);
    store.start();
    setExpired(false);
    setSession({ api, endpoint, store });
  };
  const logout = (): void => {
    session?.store.stop();
    setSession(null);
  };
  if (session === null) return <Login isExpired={isExpired} done={login} />;
  const { api, store } = session;
  return (
    <>
      <Header session={session} logout={logout} />
      {id === null ? (
        <List store={store} />
      ) : (
        <Show key={id} api={api} store={store} id={id} expired={() => {
          store.stop();
          expired();
        }} />
      )}
    </>
  );
}

const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
