// Runs a provider of logins on localhost.
//
//   node server.mjs SETTINGS.json
//
// The file names a certificate, its key, the clients and the accounts. The program prints the URL of
// the provider, and ends when its standard input is closed.

import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const library = join(settings.modules, "oidc-provider/lib/index.js");
const { Provider } = await import(pathToFileURL(library).href);

const file = (path) => readFileSync(path, "utf8");
let answer = (_, response) => response.end();
const server = createServer(
  { cert: file(settings.certificate), key: file(settings.key) },
  (request, response) => answer(request, response),
);
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const url = `https://localhost:${server.address().port}`;

const provider = new Provider(url, {
  clients: settings.clients,
  claims: { openid: ["sub"], profile: ["name"], groups: ["groups"] },
  scopes: ["openid", "profile", "groups"],
  // The claims of scopes are in the ID token for one client, and only in userinfo for the other, as
  // the standard demands.
  conformIdTokenClaims: settings.claims_in_userinfo,
  cookies: { keys: ["tests"] },
  pkce: { required: () => true },
  features: { devInteractions: { enabled: true } },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...settings.accounts[id] }),
  }),
});
const respond = provider.callback();
answer = (request, response) => {
  // The pages of the library name a font of another host. A test must not use the network.
  response.setHeader("Content-Security-Policy", "default-src 'self' 'unsafe-inline'");
  return respond(request, response);
};

process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
console.log(url);
