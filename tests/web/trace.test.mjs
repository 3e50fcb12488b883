// A record of gang trace, opened with Perfetto as a person opens it, and queried by its trace
// processor.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { browser, newPage, TEST_TIMEOUT_MS, Place, skipped, until } from "./programs.mjs";

const { GANG_BUILT, GANG_PERFETTO, GANG_PICTURES } = process.env;
const DOCS = new URL("../../docs/trace.md", import.meta.url);
const TYPES = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };

const NAMES = [`"other"`, "solver"];

const MERGED = "merged-trace.json";

let place, path, recorded, chrome, server, address;

const PHASES = ["late", "lower", "raise", "switch"];

/** That each job has a slot on record, and a switch each of its phases. */
function hasAll({ traceEvents }) {
  const has = (category, name) => traceEvents.some((event) => event.ph === "X" && event.cat === category && event.name === name);
  return NAMES.every((name) => has("slot", name)) && PHASES.every((name) => has("switch", name));
}

/** Perfetto's files, and the trace beside them: it opens what is of its own origin. */
async function serve(request, response) {
  const asked = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
  const isTrace = ["/gang-trace.json", `/${MERGED}`].includes(asked);
  const file = join(isTrace ? place.directory : GANG_PERFETTO, asked === "/" ? "index.html" : asked);
  try {
    const bytes = await readFile(file);
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" });
    response.end(bytes);
  } catch {
    response.writeHead(404).end();
  }
}

/** A trace in Perfetto, which has no fault to find with it, and what asks Perfetto about it. */
async function open(name) {
  const page = await newPage(chrome, { viewport: { width: 1280, height: 800 } });
  await page.goto(`${address}/#!/?url=${address}/${name}`);
  await page.waitForFunction(() => globalThis.app?.trace?.engine !== undefined);
  const query = (sql) =>
    page.evaluate(async (text) => {
      const result = await globalThis.app.trace.engine.query(text);
      const rows = [];
      for (const row = result.iter({}); row.valid(); row.next()) {
        const value = (column) => (typeof row.get(column) === "bigint" ? Number(row.get(column)) : row.get(column));
        rows.push(Object.fromEntries(result.columns().map((column) => [column, value(column)])));
      }
      return rows;
    }, sql);
  assert.deepEqual(await query("select name, value from stats where severity = 'error' and value > 0"), []);
  return { page, query };
}

before(async () => {
  mkdirSync(GANG_PICTURES, { recursive: true });
  place = new Place();
  path = join(place.directory, "gang-trace.json");
  await place.startGangd("--slice", "20ms");
  for (const name of NAMES) await place.spin(name);
  await until("both take turns", async () => {
    const { jobs } = await place.call("ListJobs", {});
    return jobs.length === 2 && jobs.every((job) => job.slots > 0);
  });
  const env = { ...process.env, GANG_SOCKET: place.socket };
  // Half a second is enough, unless the machine is slow.
  for (let seconds = 0.5; seconds < 60; seconds *= 2) {
    const args = ["trace", "--seconds", String(seconds), "--out", path];
    recorded = spawnSync(join(GANG_BUILT, "gang"), args, { env, encoding: "utf8", timeout: TEST_TIMEOUT_MS });
    if (recorded.status !== 0 || hasAll(JSON.parse(readFileSync(path, "utf8")))) break;
  }
  server = createServer(serve).listen(0, "127.0.0.1");
  await until("the files are served", () => server.listening);
  address = `http://127.0.0.1:${server.address().port}`;
  chrome = await browser(chromium);
});

after(async () => {
  await chrome?.close();
  server?.close();
  await place?.end();
});

test("Perfetto finds in a trace what is in it", async (t) => {
  if (recorded.stderr.includes("cannot record what runs")) {
    return skipped(t, "trace.test.mjs", recorded.stderr.trim());
  }
  assert.equal(recorded.status, 0, recorded.stderr);
  const { traceEvents } = JSON.parse(readFileSync(path, "utf8"));
  const { page, query } = await open("gang-trace.json");
  const complete = traceEvents.filter((event) => event.ph === "X");
  const found = await query("select category, count(*) as n from slice group by category order by category");
  const categories = [...new Set(complete.map((event) => event.cat))].sort();
  const count = (category) => complete.filter((event) => event.cat === category).length;
  assert.deepEqual(found, categories.map((category) => ({ category, n: count(category) })));
  const tracks = traceEvents.filter((event) => event.name === "process_name").map((event) => event.args.name);
  const names = (await query("select name from process where name is not null")).map(({ name }) => name);
  assert.deepEqual(names.sort(), tracks.sort());
  const slots = await query("select distinct name from slice where category = 'slot' order by name");
  assert.deepEqual(slots.map(({ name }) => name), NAMES);

  // The one that the documentation shows.
  const [, sql] = readFileSync(DOCS, "utf8").match(/in Perfetto's SQL[^\n]*\n\n((?: {4}[^\n]*\n)+)/i);
  const phases = await query(sql);
  assert.deepEqual(phases.map(({ name }) => name).sort(), PHASES);
  for (const { name, n, mean_us, max_us } of phases) {
    const durations = complete.filter((event) => event.cat === "switch" && event.name === name).map((event) => event.dur);
    assert.equal(n, durations.length);
    const mean = durations.reduce((sum, us) => sum + us, 0) / n;
    assert.ok(Math.abs(mean_us - mean) < 0.01 && Math.abs(max_us - Math.max(...durations)) < 0.01, name);
  }
  // As it is drawn.
  for (const track of tracks) await page.getByText(track).first().waitFor();
  await page.evaluate(() => globalThis.waitForPerfettoIdle());
  await page.screenshot({ path: join(GANG_PICTURES, "perfetto.png") });
});

test("Perfetto shows each host of a merged trace, and how far the two may differ", async (t) => {
  if (recorded.stderr.includes("cannot record what runs")) {
    return skipped(t, "trace.test.mjs", recorded.stderr.trim());
  }
  // The same record, as if it were of another host with a clock of its own.
  const trace = JSON.parse(readFileSync(path, "utf8"));
  const { host } = trace.metadata;
  const other = join(place.directory, "other.json");
  writeFileSync(other, JSON.stringify({ ...trace, metadata: { ...trace.metadata, host: "other host", boot_id: "other" } }));
  const out = join(place.directory, MERGED);
  const merged = spawnSync(join(GANG_BUILT, "gang"), ["trace", "merge", path, other, "--out", out], { encoding: "utf8", timeout: TEST_TIMEOUT_MS });
  assert.equal(merged.status, 0, merged.stderr);
  const [{ bound_ns }] = JSON.parse(readFileSync(out, "utf8")).metadata.between;
  assert.ok(bound_ns > 0);

  const { page, query } = await open(MERGED);
  const names = (await query("select name from process where name is not null")).map(({ name }) => name);
  const groups = trace.traceEvents.filter((event) => event.name === "process_name").map((event) => event.args.name);
  const clocks = names.filter((name) => name.startsWith("clocks: "));
  assert.equal(clocks.length, 1);
  const ofHosts = [host, "other host"].flatMap((name) => groups.map((group) => `${name}: ${group}`));
  assert.deepEqual(names.sort(), [...clocks, ...ofHosts].sort());
  const counters = await query("select name, value from counter join counter_track on counter.track_id = counter_track.id");
  const counter = { name: `${host} and other host µs`, value: bound_ns / 1e3 };
  assert.deepEqual(counters, [counter, counter]);
  const slots = await query("select name, count(*) as n from slice where category = 'slot' group by name order by name");
  const count = (name) => 2 * trace.traceEvents.filter((event) => event.cat === "slot" && event.name === name).length;
  assert.deepEqual(slots, NAMES.map((name) => ({ name, n: count(name) })));
  for (const track of [...clocks, ...ofHosts]) await page.getByText(track).first().waitFor();
  await page.evaluate(() => globalThis.waitForPerfettoIdle());
  await page.screenshot({ path: join(GANG_PICTURES, "perfetto-hosts.png") });
});
