// Text for users. Names come from tasks and endpoints, so every function that shows a name makes
// invisible characters visible, and `element` sets text only, never HTML.

// Control characters, and the format characters that change the order or the width of a text.
const INVISIBLE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff]/g;
// A pair of surrogates is one visible character, so only single surrogates are replaced.
const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g;

function escaped(text) {
  return text.replace(INVISIBLE, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

export function visible(text) {
  let found = "";
  let at = 0;
  for (const pair of text.matchAll(PAIR)) {
    const code = pair[0].codePointAt(0);
    // Tags (U+E0000 to U+E007F) are invisible too.
    const shown = code >= 0xe0000 && code <= 0xe0fff ? `\\u{${code.toString(16)}}` : pair[0];
    found += escaped(text.slice(at, pair.index)) + shown;
    at = pair.index + 2;
  }
  return found + escaped(text.slice(at));
}

// Creates an element. `children` are elements or texts.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  for (const child of children) {
    if (child === null || child === undefined || child === "") continue;
    made.append(child instanceof Node ? child : document.createTextNode(visible(String(child))));
  }
  return made;
}

// A name between other words. Without <bdi>, a name in Arabic would reorder the words after it.
export function named(text) {
  return element("bdi", { class: "name" }, text);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(count) {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function span(seconds) {
  const whole = Math.round(Math.abs(seconds));
  const sign = seconds < 0 && whole > 0 ? "-" : "";
  const [days, hours] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600)];
  const [minutes, rest] = [Math.floor((whole % 3600) / 60), whole % 60];
  if (days > 0) return `${sign}${days} d ${hours} h`;
  if (hours > 0) return `${sign}${hours} h ${minutes} min`;
  if (minutes > 0) return `${sign}${minutes} min ${rest} s`;
  return `${sign}${rest} s`;
}

// A time in the zone of the browser. The title has the time in UTC.
export function clock(iso) {
  const time = new Date(iso);
  if (!iso || Number.isNaN(time.getTime())) return iso ? named(iso) : document.createTextNode("");
  return element("time", { datetime: time.toISOString(), title: time.toISOString() }, shortTime(time));
}

export function shortTime(time) {
  const isToday = time.toDateString() === new Date().toDateString();
  const day = isToday ? {} : { year: "numeric", month: "short", day: "numeric" };
  return time.toLocaleString("en-GB", {
    ...day, hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
}
