// SPDX-License-Identifier: Apache-2.0
/**
 * Builds the page into a folder: index.html, and assets with a hash of their content in the name.
 * Each file is also compressed, so that the server only sends files.
 *
 *     node build.ts [FOLDER]
 */

import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, extname, join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = import.meta.dirname;
const out = process.argv[2] ?? join(here, "dist");

const built = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/main.css"],
  bundle: true,
  minify: true,
  write: false,
  outdir: "assets",
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline",
  logLevel: "warning",
});

const assets = new Map<string, Uint8Array>(
  built.outputFiles.map((file) => [basename(file.path), file.contents]),
);
assets.set("icon.svg", await readFile(join(here, "src/icon.svg")));

await rm(out, { recursive: true, force: true });
await mkdir(join(out, "assets"), { recursive: true });
let page = await readFile(join(here, "src/index.html"), "utf8");
for (const [name, content] of assets) {
  const hashed = hashedName(name, content);
  page = page.replaceAll(`"assets/${name}"`, `"assets/${hashed}"`);
  await write(join("assets", hashed), content);
}
await write("index.html", Buffer.from(page));

function hashedName(name: string, content: Uint8Array): string {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 12);
  const ending = extname(name);
  return `${basename(name, ending)}-${hash}${ending}`;
}

async function write(name: string, content: Uint8Array): Promise<void> {
  const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  await Promise.all([
    writeFile(join(out, name), content),
    writeFile(join(out, `${name}.gz`), gzipSync(content, { level: 9 })),
    writeFile(join(out, `${name}.br`), brotliCompressSync(content, { params })),
  ]);
}
