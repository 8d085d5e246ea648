// The calls that change a transfer, and the counter-offer of a refused deadline.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asCallError, type Api, type CallError } from "./api";
import { DeadlineField } from "./deadline";
import { absolute, local } from "./format";
import { titleOf, type Names } from "./names";
import { Alert, Name } from "./parts";
import { text } from "./strings";
import { isLive, type Patch, type Transfer } from "./types";

const MIB = 1024 * 1024;

interface Props {
  api: Api;
  transfer: Transfer;
  names: Names;
  put: (transfer: Transfer) => void;
  expired: () => void;
}

type Run = (call: () => Promise<Transfer>) => Promise<void>;

interface CancelProps {
  /** The route of the transfer. */
  title: string;
  confirm: (purge: boolean) => void;
}

function Cancel({ title, confirm }: CancelProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isPurging, setPurging] = useState(false);
  return (
    <>
      <button class="danger" onClick={() => dialog.current?.showModal()}>
        {text.act.cancel}
      </button>
      <dialog ref={dialog} aria-labelledby="cancel-question">
        <h2 id="cancel-question"><Name of={text.act.cancelQuestion(title)} /></h2>
        <p>{text.act.cancelKeeps}</p>
        <label class="check">
          <input
            type="checkbox"
            checked={isPurging}
            onChange={(event) => setPurging(event.currentTarget.checked)}
          />
          {text.act.purge}
        </label>
        <div class="buttons">
          <button onClick={() => dialog.current?.close()}>{text.act.cancelBack}</button>
          <button
            class="danger"
            id="cancel-confirm"
            onClick={() => {
              dialog.current?.close();
              confirm(isPurging);
            }}
          >
            {text.act.cancelConfirm}
          </button>
        </div>
      </dialog>
    </>
  );
}

/** Returns only the fields that the form has changed. */
function changes(form: HTMLFormElement, transfer: Transfer): Patch {
  const value = (name: string): string =>
    (form.elements.namedItem(name) as HTMLInputElement).value.trim();
  const { priority, rate_max, deadline } = transfer.request;
  const patch: Patch = {};
  const wanted = Number(value("priority"));
  if (value("priority") !== "" && wanted !== priority) patch.priority = wanted;
  const highest = value("rate") === "" ? null : Math.round(Number(value("rate")) * MIB);
  if (highest !== (rate_max ?? null)) patch.rate_max = highest;
  const due = value("deadline");
  if (due !== local(deadline)) patch.deadline = due === "" ? null : new Date(due).toISOString();
  return patch;
}

interface ChangeProps {
  transfer: Transfer;
  patch: (patch: Patch) => void;
}

function Change({ transfer, patch }: ChangeProps): JSX.Element {
  const { priority, rate_max, deadline } = transfer.request;
  const [due, setDue] = useState(local(deadline));
  // The field shows the new deadline when the request changes.
  useEffect(() => setDue(local(deadline)), [deadline]);
  return (
    // The key makes a new form when the request changes, so that the fields show its new values.
    <form
      key={`${priority} ${rate_max} ${deadline}`}
      class="change"
      onSubmit={(event) => {
        event.preventDefault();
        patch(changes(event.currentTarget, transfer));
      }}
    >
      <label>
        {text.act.priority}
        <input
          name="priority"
          type="number"
          min={0}
          max={9}
          step={1}
          defaultValue={String(priority ?? "")}
        />
      </label>
      <label>
        {text.act.rateMax}
        <input
          name="rate"
          type="number"
          min={0.001}
          step="any"
          placeholder={text.act.rateHint}
          defaultValue={rate_max ? String(rate_max / MIB) : ""}
        />
      </label>
      <DeadlineField id="change-deadline" value={due} set={setDue} />
      <button type="submit">{text.act.change}</button>
    </form>
  );
}

interface OfferedProps {
  error: CallError;
  accept: (deadline: string) => void;
}

function Offered({ error, accept }: OfferedProps): JSX.Element | null {
  const finish = error.parts.admission?.earliest_finish;
  if (!finish) return null;
  return (
    <button id="accept-offer" onClick={() => accept(finish)}>
      {text.act.accept} ({absolute(finish)})
    </button>
  );
}

export function Actions({ api, transfer, names, put, expired }: Props): JSX.Element {
  const [error, setError] = useState<CallError | null>(null);
  const [said, setSaid] = useState("");
  const [isBusy, setBusy] = useState(false);
  const { id, state } = transfer;

  const run: Run = async (call) => {
    setBusy(true);
    setError(null);
    setSaid("");
    try {
      put(await call());
      setSaid(text.act.changed);
    } catch (failed) {
      const refused = asCallError(failed);
      if (refused.code === 401) expired();
      else setError(refused);
    }
    setBusy(false);
  };
  const patch = (patched: Patch): void => {
    if (Object.keys(patched).length === 0) setSaid(text.act.nothing);
    else void run(() => api.patch(id, patched));
  };
  const isEnded = !isLive(state);
  return (
    <fieldset class="actions" disabled={isBusy}>
      <legend>{text.act.heading}</legend>
      <div class="buttons">
        {!isEnded && state !== "paused" && (
          <button id="pause" onClick={() => void run(() => api.act(id, "pause"))}>
            {text.act.pause}
          </button>
        )}
        {state === "paused" && (
          <button id="resume" onClick={() => void run(() => api.act(id, "resume"))}>
            {text.act.resume}
          </button>
        )}
        {isEnded && (
          <button id="retry" onClick={() => void run(() => api.act(id, "retry"))}>
            {state === "done" ? text.act.again : text.act.retry}
          </button>
        )}
        {!isEnded && (
          <Cancel
            title={titleOf(transfer, names)}
            confirm={(purge) => void run(() => api.cancel(id, purge))}
          />
        )}
      </div>
      {!isEnded && <Change transfer={transfer} patch={patch} />}
      <p role="status" class="hint">
        {said}
      </p>
      <Alert error={error} />
      {error && (
        <Offered error={error} accept={(deadline) => patch({ deadline })} />
      )}
    </fieldset>
  );
}
