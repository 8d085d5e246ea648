// The form for the token.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Api, asCallError, type CallError } from "./api";
import { Alert } from "./parts";
import { text } from "./strings";
import type { Endpoint } from "./types";

interface Props {
  isExpired: boolean;
  done: (api: Api, endpoint: Endpoint) => void;
}

export function Login({ isExpired, done }: Props): JSX.Element {
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
      field.focus();
    }
  }

  return (
    <main class="login">
      <h1>{text.login.heading}</h1>
      {isExpired && <p role="alert">{text.login.expired}</p>}
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
          autofocus
        />
        <p id="token-hint" class="hint">
          {text.login.hint}
        </p>
        <button type="submit" disabled={isBusy}>
          {isBusy ? text.login.busy : text.login.submit}
        </button>
      </form>
      <Alert error={error} />
    </main>
  );
}
