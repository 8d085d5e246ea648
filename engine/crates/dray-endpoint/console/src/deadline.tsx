// The field of a deadline, with buttons for frequent deadlines.

import type { JSX } from "preact";
import { local } from "./format";
import { text } from "./strings";

const words = text.deadline;
const MINUTE_MS = 60_000;

/** Returns the local time of 08:00 tomorrow, which is not always 24 hours after 08:00 today. */
function tomorrow(): Date {
  const at = new Date();
  at.setDate(at.getDate() + 1);
  at.setHours(8, 0, 0, 0);
  return at;
}

const CHOICES: readonly [string, () => Date][] = [
  [words.minutes, () => new Date(Date.now() + 5 * MINUTE_MS)],
  [words.hour, () => new Date(Date.now() + 60 * MINUTE_MS)],
  [words.tomorrow, tomorrow],
];

interface Props {
  id: string;
  value: string;
  set: (value: string) => void;
}

export function DeadlineField({ id, value, set }: Props): JSX.Element {
  return (
    <div class="deadline">
      <label for={id}>{words.label}</label>
      <div class="buttons">
        <input
          id={id}
          name="deadline"
          type="datetime-local"
          step={1}
          value={value}
          onInput={(event) => set(event.currentTarget.value)}
        />
        {CHOICES.map(([name, at]) => (
          <button key={name} type="button" onClick={() => set(local(at().toISOString()))}>
            {name}
          </button>
        ))}
        {value !== "" && (
          <button type="button" onClick={() => set("")}>
            {words.none}
          </button>
        )}
      </div>
    </div>
  );
}
