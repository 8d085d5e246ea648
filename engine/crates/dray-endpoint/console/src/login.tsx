// The view before a login: buttons of the configured logins, and the form for a token.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Api, asCallError, type CallError } from "./api";
import { visible } from "./format";
import { Alert } from "./parts";
import { text } from "./strings";
import type { Endpoint } from "./types";

/** The reason why the view is shown: the end of a token, of a session, or a logout. */
export type LoginReason = "none" | "expired" | "ended" | "loggedOut";

interface Props {
  reason: LoginReason;
  logins: { name: string; address: string }[];
  /** The part of the address after `#`, to which a login returns. */
  hash: string;
  /** An error of the logout or of a session. */
  failed: CallError | null;
  done: (api: Api, endpoint: Endpoint) => void;
}

function Providers({ logins, hash }: Pick<Props, "logins" | "hash">): JSX.Element {
  const query = hash === "" ? "" : `?${new URLSearchParams({ page: hash })}`;
  return (
    <>
      {logins.map(({ name, address }) => (
        <a key={address} class="provider" href={`${address}${query}`}>
          {text.login.with(visible(name))}
        </a>
      ))}
      <h2>{text.login.orToken}</h2>
    </>
  );
}

export function Login({ reason, logins, hash, failed, done }: Props): JSX.Element {
  const [error, setError] = useState<CallError | null>(null);
  const [isBusy, setBusy] = useState(false);

  async function submit(form: HTMLFormElement): Promise<void> {
    const field = form.elements.namedItem("token") as HTMLInputElement;
    const token = field.value.trim();
    if (token === "") return;
    setBusy(true);
    setError(null);
    try {
      const api = new Api(token);
      const endpoint = await api.endpoint();
      // The field must not keep a copy of the token.
      field.value = "";
      done(api, endpoint);
    } catch (failed) {
      setError(asCallError(failed));
      setBusy(false);
      // A second token must replace the refused one.
      field.value = "";
      field.focus();
    }
  }

  return (
    <main class="login">
      <h1>{text.login.heading}</h1>
      {reason !== "none" && <p role="alert">{text.login[reason]}</p>}
      {logins.length > 0 && <Providers logins={logins} hash={hash} />}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        <label for="token">{text.login.label}</label>
        <input
          id="token"
          name="token"
          type="password"
          autocomplete="off"
          spellcheck={false}
          aria-describedby="token-hint"
          required
          autofocus={logins.length === 0}
        />
        <p id="token-hint" class="hint">
          {text.login.hint}
        </p>
        <button type="submit" class="primary" disabled={isBusy}>
          {isBusy ? text.login.busy : text.login.submit}
        </button>
      </form>
      <Alert error={error ?? failed} />
    </main>
  );
}
