// Names of endpoints, and names of transfers for people: from where to where.

import { visible } from "./format";
import { text } from "./strings";
import type { Peer, Transfer } from "./types";

/** Names of the endpoints that the page knows. */
export interface Names {
  /** Name of the endpoint of the page. */
  here: string;
  peers: Peer[];
}

const FAR = /^dray:\/\/([^/]+)(\/.*)?$/;

/** Returns the host of an address, without the brackets of an IPv6 address. */
const hostOf = (address: string): string =>
  address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");

/**
 * Returns the name of an endpoint that has this address; without a name, the address. The address
 * of an incoming session has no port, and may belong to several endpoints of a host: the name then
 * contains all of them, and the address.
 */
export function nameOf(address: string, { peers }: Names): string {
  const exact = peers.find((peer) => peer.address === address);
  if (exact) return exact.name;
  const found = peers.filter((peer) => hostOf(peer.address) === address).map(({ name }) => name);
  const [first, ...others] = found;
  if (first === undefined) return address;
  return others.length === 0 ? first : text.incoming.oneOf(found, address);
}

/** Returns the name of the other endpoint of a transfer; null if there is none. */
export function otherEnd({ request }: Transfer, names: Names): string | null {
  for (const { url } of [request.destination, ...request.sources]) {
    const address = FAR.exec(url)?.[1];
    if (address !== undefined) return nameOf(address, names);
  }
  return null;
}

/** Returns the names of the endpoints of the source and of the destination. */
export function endsOf({ request }: Transfer, names: Names): { source: string; sink: string } {
  const end = (url: string | undefined): string => {
    const address = FAR.exec(url ?? "")?.[1];
    return address === undefined ? names.here : nameOf(address, names);
  };
  return { source: end(request.sources[0]?.url), sink: end(request.destination.url) };
}

function split(url: string, names: Names): [string, string] {
  const [, address, path] = FAR.exec(url) ?? [];
  return address === undefined ? ["", url] : [`${nameOf(address, names)}: `, path ?? "/"];
}

/** Returns a short name of the sources, and the destination. */
export function routeOf({ request }: Transfer, names: Names): { from: string; to: string } {
  const [from, path] = split(request.sources[0]?.url ?? "", names);
  const last = path.replace(/\/+$/, "").split("/").pop();
  const first = `${from}${last || path}`;
  return {
    from: visible(text.list.sources(first, request.sources.length - 1)),
    to: visible(split(request.destination.url, names).join("")),
  };
}

/** Returns the route of a transfer in one line. */
export function titleOf(transfer: Transfer, names: Names): string {
  const { from, to } = routeOf(transfer, names);
  return `${from} → ${to}`;
}

/** Returns the first label as text; an empty string without labels. */
export function labelOf({ request }: Transfer): string {
  const [first] = Object.entries(request.labels ?? {});
  return first ? `${first[0]}: ${first[1]}` : "";
}
