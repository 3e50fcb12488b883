// Bundles the page into three files, in the directory that is named. The same sources give the same
// bytes: what is in dist can be compared with what comes out here.
import { copyFile, mkdir } from "node:fs/promises";
import { build } from "esbuild";

const out = process.argv[2] ?? "dist";
const shared = { bundle: true, minify: true, legalComments: "inline", logLevel: "warning" };
await mkdir(out, { recursive: true });
await build({ ...shared, entryPoints: ["src/main.ts"], outfile: `${out}/page.js`, target: "es2022", format: "esm" });
await build({ ...shared, entryPoints: ["src/page.css"], outfile: `${out}/page.css`, target: "es2022" });
await copyFile("index.html", `${out}/index.html`);
await copyFile("icon.svg", `${out}/icon.svg`);
