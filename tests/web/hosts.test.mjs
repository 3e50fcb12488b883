// The page of all hosts in a browser, with the daemon of a cluster of 64 hosts of 64 CPUs that only
// answers; and the rule by which the page knows the row that is on.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { fake, FIRST_SPANNING, FRAME } from "./fake.mjs";
import { browser, frames, newPage, Place, until } from "./programs.mjs";
import { recordTexts } from "./texts.mjs";

const PICTURES = process.env.GANG_PICTURES;
const WEB = fileURLToPath(new URL("../../crates/view/web/", import.meta.url));
const { build } = createRequire(join(WEB, "package.json"))("esbuild");
const HOSTS = 64;
const CPUS = 64;

let place, daemon, chrome, address;

before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  place = new Place();
  daemon = await fake(place.socket, { cpus: CPUS, jobs: 4, hosts: HOSTS });
  ({ address } = await place.startWeb());
  chrome = await browser(chromium);
});

after(async () => {
  await chrome?.close();
  daemon?.close();
  await place?.end();
});

/** The page of all hosts, which fails the test where its console is used. */
async function open(options = {}) {
  const page = await newPage(chrome, options);
  await page.addInitScript(recordTexts);
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (said) => said.type() === "error" && page.complaints.push(said.text()));
  await page.goto(address);
  await page.getByRole("link", { name: "All hosts" }).click();
  await page.locator(".hostmatrix canvas[data-painted]").waitFor();
  return page;
}

async function close(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

const canvasOf = (page) => page.locator(".hostmatrix canvas");
const noted = async (page, name) => Number(await canvasOf(page).getAttribute(`data-${name}`));
const pointed = (page) => page.locator(".hostmatrix .pointed").textContent();

/** Points at a part of the picture, from 0 to 1 in both directions. */
async function point(page, x, y) {
  const box = await canvasOf(page).boundingBox();
  await page.mouse.move(box.x + x * box.width, box.y + y * box.height);
  await frames(page);
}

test("rows are on in the order of the schedule", async () => {
  const built = await build({ entryPoints: ["src/frame.ts"], absWorkingDir: WEB, bundle: true, write: false, format: "esm" });
  const { rowAt, rowOf } = await import(`data:text/javascript,${encodeURIComponent(built.outputFiles[0].text)}`);
  // The same as in the tests of crates/schedule/src/matrix/frame.rs.
  const order = (frame) => Array.from({ length: frame }, (_, place) => rowOf(frame, place));
  assert.deepEqual(order(8), [0, 4, 2, 6, 1, 5, 3, 7]);
  assert.deepEqual(order(5), [0, 4, 2, 1, 3]);
  assert.deepEqual([rowOf(2 ** 32 - 1, 0), rowOf(2 ** 32 - 1, 2 ** 31)], [0, 1]);
  // Slices of 250 s, of which an hour has 14.4.
  const rows = [12, 13, 14, 15, 16, 17].map((slice) => rowAt(slice * 250e6 + 1, 250e9, 4));
  assert.deepEqual(rows, [0, 2, 1, 0, 2, 1], "the fourth row is cut off");
  // 2026-01-01, an hour that begins with a frame.
  assert.equal(rowAt(1_767_225_600e6, 20e6, 64), 0);
  assert.equal(rowAt(1_767_225_600e6 + 20_000, 20e6, 64), 32);
});

test("the row moves, and the entries are painted once", async () => {
  const page = await open();
  const first = await noted(page, "row");
  const painted = await noted(page, "painted");
  await until("another row", async () => (await noted(page, "row")) !== first);
  const row = await noted(page, "row");
  assert.ok(row >= 0 && row < FRAME, String(row));
  assert.equal(await noted(page, "painted"), painted);
  assert.deepEqual([await noted(page, "columns"), await noted(page, "rows")], [HOSTS * CPUS, FRAME]);
  await until("the words", async () => /63 of 64 hosts are alive\. Row \d+ of 64 is on: job \d+, span-/.test(await canvasOf(page).getAttribute("aria-label") ?? ""));
  await close(page);
});

test("a point says job, host, CPU and row", async () => {
  const page = await open();
  await point(page, 0.9995, 0.99);
  // A pixel has several CPUs.
  const last = new RegExp(`^Host node64 \\(alive\\), CPU (5|6)\\d, row 63: job ${FIRST_SPANNING + 31}, span-31$`);
  await until("the last host", async () => last.test(await pointed(page)));
  // The second host begins after a 64th of the columns, beside the numbers of the rows.
  const box = await canvasOf(page).boundingBox();
  await point(page, 1 - (1 - 32 / box.width) * (62.5 / 64), 0.5);
  await until("the host that is away", async () => /^Host node2 \(away\), CPU \d+, row \d+: job \d+, span-\d+$/.test(await pointed(page)));
  await close(page);
});

test("it zooms to single CPUs, and moves both ways", async () => {
  const page = await open();
  const canvas = canvasOf(page);
  await canvas.focus();
  const look = async (where) => {
    await frames(page);
    assert.deepEqual(await canvas.evaluate((it) => globalThis.collisions(it)), [], where);
  };
  await look("whole");
  for (let zoom = 0; zoom < 20; zoom++) {
    await page.keyboard.press("+");
    await look(`zoomed ${zoom} times`);
  }
  await until("few CPUs are shown", async () => (await noted(page, "columns")) === 8);
  assert.equal(await noted(page, "rows"), 8);
  await point(page, 0.5, 0.5);
  const [at, rowOf] = [await pointed(page), (text) => Number(/row (\d+)/.exec(text)[1])];
  for (let step = 0; step < 8; step++) await page.keyboard.press("ArrowDown");
  await until("it is a page further down", async () => rowOf(await pointed(page)) === rowOf(at) + 8);
  await page.keyboard.press("ArrowRight");
  await until("it is a CPU further", async () => !(await pointed(page)).startsWith(at.split(", row")[0]));
  await page.keyboard.press("0");
  await until("all is shown", async () => (await noted(page, "columns")) === HOSTS * CPUS);
  await page.keyboard.press("Space");
  await frames(page);
  const held = await noted(page, "row");
  await frames(page);
  await page.waitForTimeout(100);
  assert.equal(await noted(page, "row"), held);
  await close(page);
});

test("jobs of other hosts have a page with the reason", async () => {
  const page = await open();
  const jobs = page.getByRole("region", { name: "List of jobs that span hosts" });
  assert.equal(await jobs.locator("tbody tr").count(), 32);
  await page.getByRole("region", { name: "List of hosts" }).getByText("away").waitFor();
  await jobs.getByRole("link", { name: "span-31", exact: true }).click();
  await page.getByRole("heading", { name: `Job ${FIRST_SPANNING + 31}: span-31` }).waitFor();
  await page.getByText(/has 16 of 64 rows of the matrix/).waitFor();
  assert.ok(await page.getByRole("button", { name: "Kill …" }).isDisabled());
  await page.getByRole("link", { name: "This host" }).click();
  await page.getByRole("columnheader", { name: "Hosts" }).waitFor();
  await page.locator(`tr[data-job="${FIRST_SPANNING}"]`).getByText("node1:64,").waitFor();
  await close(page);
});

test("it can be used by who does not see it, at any size", async () => {
  for (const [width, height] of [[390, 844], [1280, 800]]) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open({ viewport: { width, height }, colorScheme });
      await frames(page);
      await page.screenshot({ path: join(PICTURES, `hosts-${width}x${height}-${colorScheme}.png`) });
      await page.evaluate(axe.source);
      const found = await page.evaluate(() => globalThis.axe.run());
      const reports = found.violations.map((v) => `${width}, ${colorScheme}: ${v.id}: ${v.nodes[0].html}`);
      assert.deepEqual(reports, []);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `no scrolling sideways at ${width}`);
      await close(page);
    }
  }
});

test("a host in no cluster has no such page", async () => {
  const alone = new Place();
  const of = await fake(alone.socket, { cpus: 4, jobs: 2 });
  try {
    const its = await alone.startWeb();
    const page = await newPage(chrome);
    await page.goto(its.address);
    await page.locator("tbody tr[data-job]").first().waitFor();
    assert.ok(!(await page.getByRole("link", { name: "All hosts" }).isVisible()));
    assert.equal(await page.getByRole("columnheader", { name: "Hosts" }).count(), 0);
    await page.context().close();
  } finally {
    of.close();
    await alone.end();
  }
});
