// Builds the files of the web console.
//
//   node build.mjs           writes built/
//   node build.mjs --check   fails if a build of the sources differs from built/
//
// The build uses the exact versions in package-lock.json and depends on nothing else, so two builds
// of the same sources are equal. built/digests.txt lists the digests of the sources and of the
// built files; a unit test of dray-endpoint compares the list with the files, without Node.js.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const top = dirname(fileURLToPath(import.meta.url));
const libraries = ["preact", "uplot"];

const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");

/** Lists the sources of the console: all files except the built files and installed libraries. */
function sources(folder) {
  return readdirSync(join(top, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = folder === "" ? entry.name : `${folder}/${entry.name}`;
    if (path === "built" || path === "node_modules") return [];
    return entry.isDirectory() ? sources(path) : [path];
  });
}

/** Returns the licences of the libraries in the bundle, which their licences require. */
function licences() {
  const parts = libraries.map((name) => {
    const folder = join(top, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const text = readFileSync(join(folder, "LICENSE"), "utf8").trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return `The web console contains these libraries.\n\n${parts.join("\n\n")}`;
}

async function made() {
  const bundled = await build({
    absWorkingDir: top,
    entryPoints: { app: "src/app.tsx" },
    bundle: true,
    write: false,
    outdir: "built",
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    logLevel: "warning",
  });
  const files = new Map([
    ["index.html", readFileSync(join(top, "src/index.html"), "utf8")],
    ["icon.svg", readFileSync(join(top, "src/icon.svg"), "utf8")],
    ["licences.txt", licences()],
  ]);
  for (const file of bundled.outputFiles) files.set(file.path.split(/[\\/]/).pop(), file.text);
  const listed = sources("").map((path) => [path, readFileSync(join(top, path))]);
  for (const [name, text] of files) listed.push([`built/${name}`, text]);
  listed.sort(([a], [b]) => (a < b ? -1 : 1));
  const lines = listed.map(([path, bytes]) => `${digest(bytes)}  ${path}\n`);
  files.set("digests.txt", lines.join(""));
  return files;
}

const files = await made();
if (process.argv.includes("--check")) {
  const changed = [...files].filter(([name, text]) => {
    return readFileSync(join(top, "built", name), "utf8") !== text;
  });
  for (const [name] of changed) console.error(`built/${name} is not the result of a build`);
  if (changed.length > 0) {
    console.error("run `make console` and commit the result");
    process.exit(1);
  }
} else {
  mkdirSync(join(top, "built"), { recursive: true });
  for (const [name, text] of files) writeFileSync(join(top, "built", name), text);
}
