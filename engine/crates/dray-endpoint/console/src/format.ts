// Numbers, times and hostile names as text.

import { text } from "./strings";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count: number): string {
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export const rate = (perSecond: number | null | undefined): string =>
  perSecond === null || perSecond === undefined ? "–" : `${bytes(perSecond)}/s`;

export const count = (value: number): string => value.toLocaleString();

/** A duration without a place where a line may break. */
export function duration(seconds: number): string {
  const whole = Math.round(seconds);
  const parts =
    whole < 60
      ? [whole, "s"]
      : whole < 3600
        ? [Math.floor(whole / 60), "min", whole % 60, "s"]
        : whole < 86400
          ? [Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min"]
          : [Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h"];
  return parts.join("\u00a0");
}

/** A time relative to now, because clocks of the reader and of the endpoint show other zones. */
export function relative(when: string, now: number = Date.now()): string {
  const seconds = (Date.parse(when) - now) / 1000;
  if (Math.abs(seconds) < 1) return text.time.now;
  return seconds > 0 ? text.time.ahead(duration(seconds)) : text.time.ago(duration(-seconds));
}

export function absolute(when: string): string {
  const date = new Date(when);
  return Number.isNaN(date.getTime())
    ? when
    : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** The same without seconds, for lists. */
export function brief(when: string): string {
  const date = new Date(when);
  return Number.isNaN(date.getTime())
    ? when
    : date.toLocaleString(undefined, { dateStyle: "short", timeStyle: "short" });
}

const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });

/** The time of day of a number of seconds since 1970, for axes. */
export const clock = (seconds: number): string => CLOCK.format(1000 * seconds);

/** The value of a `datetime-local` field, in the reader's time zone. */
export function local(when: string | null | undefined): string {
  if (!when) return "";
  const date = new Date(when);
  const shifted = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 19);
}

// Control characters, and characters that change the direction of the text or have no width. With
// them a name could look like another name.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** Returns the text with every invisible character written as `\u{HEX}`. */
export const visible = (name: string): string =>
  name.replace(HIDDEN, (each) => `\\u{${(each.codePointAt(0) ?? 0).toString(16)}}`);

// Characters with a meaning in paths, and characters that a path never contains literally
// (docs/reference/urls.md).
const ESCAPED =
  /[%?#\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Returns a typed name in the form of API paths. */
export const escaped = (name: string): string =>
  name.replace(ESCAPED, (each) =>
    [...new TextEncoder().encode(each)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`)
      .join(""),
  );
