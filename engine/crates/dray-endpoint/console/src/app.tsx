// The page: login, header, and the view that the part of the address after `#` names.

import { render, type JSX } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Api, asCallError, type CallError, loginState } from "./api";
import "./app.css";
import { useHash, useStore } from "./hooks";
import { List } from "./list";
import { Login, type LoginReason } from "./login";
import { New } from "./new";
import { Name } from "./parts";
import { usePeers } from "./peers";
import { Site } from "./site";
import { Store } from "./store";
import { text } from "./strings";
import { Show } from "./transfer";
import type { Endpoint, LoginState, Transfer } from "./types";

interface Session {
  api: Api;
  endpoint: Endpoint;
  store: Store;
  /** Name of the user of a login; null with a token. */
  user: string | null;
}

const NO_LOGINS: LoginState = { logins: [], user: null, has_ended: false };

/** The pages of the navigation, with their addresses. */
const PAGES = [
  ["#/", text.nav.transfers],
  ["#/new", text.nav.new],
  ["#/site", text.nav.site],
] as const;

function shown(hash: string): string | null {
  const found = /^#\/transfers\/([^/]+)$/.exec(hash);
  if (!found) return null;
  try {
    return decodeURIComponent(found[1] ?? "");
  } catch {
    return null;
  }
}

function focusContent(): void {
  const content = document.getElementById("content");
  content?.setAttribute("tabindex", "-1");
  content?.focus();
}

interface HeaderProps {
  session: Session;
  hash: string;
  logout: () => void;
}

function Navigation({ hash }: { hash: string }): JSX.Element {
  // Every other address shows the list or a transfer.
  const at = PAGES.find(([address]) => address === hash)?.[0] ?? "#/";
  return (
    <nav aria-label={text.nav.label}>
      {PAGES.map(([address, name]) => (
        <a key={address} href={address} aria-current={address === at ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}

function Header({ session, hash, logout }: HeaderProps): JSX.Element {
  const { endpoint, store, user } = session;
  useStore(store, 250);
  const { owner, administrator } = endpoint.you;
  const caller = text.caller(owner, administrator);
  return (
    <header>
      <a class="skip" href="#content" onClick={(event) => {
        // The address names the view, so the link must not change it.
        event.preventDefault();
        focusContent();
      }}>
        {text.skip}
      </a>
      <a class="title" href="#/">
        {text.title} <Name of={endpoint.name} />
      </a>
      <Navigation hash={hash} />
      <span class={`connection ${store.connection}`} role="status">
        {text.connection[store.connection]}
      </span>
      <span class="caller">
        <Name of={user === null ? caller : text.user(user, caller)} />
      </span>
      <button id="logout" onClick={logout}>
        {text.logout}
      </button>
    </header>
  );
}

interface ViewProps {
  api: Api;
  endpoint: Endpoint;
  store: Store;
  hash: string;
  expired: () => void;
}

function View({ api, endpoint, store, hash, expired }: ViewProps): JSX.Element {
  const id = shown(hash);
  // The tokens for peers stay in memory while the user is logged in, and not only for one page.
  const peers = usePeers(api);
  const names = { here: endpoint.name, peers: peers.known };
  const last = useRef(hash);
  // A reader of the screen must learn of the new page, as after the load of a document.
  useEffect(() => {
    if (last.current !== hash) focusContent();
    last.current = hash;
  }, [hash]);
  if (id !== null) {
    return (
      <Show
        key={id}
        api={api}
        store={store}
        names={names}
        tries={endpoint.retry.tries}
        id={id}
        expired={expired}
      />
    );
  }
  if (hash === "#/site") {
    return (
      <Site api={api} store={store} names={names} roots={endpoint.roots} expired={expired} />
    );
  }
  if (hash === "#/new") {
    const put = (transfer: Transfer): void => store.put(transfer);
    return (
      <New
        api={api}
        peers={peers}
        names={names}
        roots={endpoint.roots}
        put={put}
        expired={expired}
      />
    );
  }
  const canCopy = peers.known.length > 0 || endpoint.roots.some((root) => root.write);
  return (
    <List api={api} store={store} names={names} canCopy={canCopy} expired={expired} />
  );
}

function App(): JSX.Element | null {
  const [session, setSession] = useState<Session | null>(null);
  const [state, setState] = useState<LoginState | null>(null);
  const [reason, setReason] = useState<LoginReason>("none");
  const [failed, setFailed] = useState<CallError | null>(null);
  const hash = useHash();

  const leave = useCallback((why: LoginReason) => {
    setReason(why);
    setSession((present) => {
      present?.store.stop();
      return null;
    });
  }, []);
  const enter = useCallback(
    (api: Api, endpoint: Endpoint, user: string | null) => {
      const store = new Store(api, () => leave(user === null ? "expired" : "ended"));
      store.start();
      setReason("none");
      setFailed(null);
      setSession({ api, endpoint, store, user });
    },
    [leave],
  );
  useEffect(() => {
    const begin = async (): Promise<void> => {
      try {
        const found = await loginState();
        if (found.user !== null) {
          const api = new Api(null);
          enter(api, await api.endpoint(), found.user.name);
        } else if (found.has_ended) setReason("ended");
        setState(found);
      } catch (error) {
        setFailed(asCallError(error));
        setState(NO_LOGINS);
      }
    };
    void begin();
  }, [enter]);

  const logout = async (): Promise<void> => {
    try {
      await session?.api.logout();
      leave(session?.user == null ? "none" : "loggedOut");
    } catch (error) {
      // The session may still exist at the endpoint, so the page must not claim a logout.
      const refused = asCallError(error);
      setFailed(refused.code === 401 ? null : refused);
      leave(refused.code === 401 ? "ended" : "none");
    }
  };
  // The function stays the same during a session, because `usePoll` demands that.
  const expired = useCallback(
    () => leave(session?.user == null ? "expired" : "ended"),
    [leave, session],
  );
  if (state === null) return null;
  if (session === null) {
    const done = (api: Api, endpoint: Endpoint): void => enter(api, endpoint, null);
    const { logins } = state;
    return <Login reason={reason} logins={logins} hash={hash} failed={failed} done={done} />;
  }
  const { api, endpoint, store } = session;
  return (
    <>
      <Header session={session} hash={hash} logout={() => void logout()} />
      <View api={api} endpoint={endpoint} store={store} hash={hash} expired={expired} />
    </>
  );
}

const root = document.getElementById("app");
if (root) {
  root.replaceChildren();
  render(<App />, root);
}
