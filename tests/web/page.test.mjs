// The page as people use it, in a browser, with a daemon and gangs of its own.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { browser, ended, frames, newPage, Place, skipped, until } from "./programs.mjs";
import { recordTexts } from "./texts.mjs";

const PICTURES = process.env.GANG_PICTURES;
const SIZES = [[390, 844], [1280, 800], [1920, 1080]];
const EVIL = `<b onclick="x">'&</b>`;
/** Of a command, which has no rules. */
const EVIL_WORD = "<i>\u202e\u001b]0;x";

let place, gangd, chrome, address;

before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  place = new Place();
  gangd = await place.startGangd("--slice", "20ms");
  await place.spin("solver", EVIL_WORD);
  await place.spin(EVIL);
  ({ address } = await place.startWeb());
  chrome = await browser(chromium);
});

after(async () => {
  await chrome?.close();
  await place?.end();
});

/** A page that fails the test where its console is used, or anything is loaded from elsewhere. */
async function open(at = address, options = {}) {
  const page = await newPage(chrome, options);
  await page.addInitScript(recordTexts);
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(String(error)));
  page.on("console", (said) => {
    // That an answer refuses is what some of the tests want.
    if (said.type() === "error" && !said.text().startsWith("Failed to load resource")) page.complaints.push(said.text());
  });
  const origin = new URL(at).origin;
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== origin) page.complaints.push(`asked for ${request.url()}`);
  });
  await page.goto(at);
  await page.locator("tbody tr[data-job]").first().waitFor();
  return page;
}

async function close(page) {
  assert.deepEqual(page.complaints, []);
  await page.context().close();
}

const link = (page, name) => page.getByRole("link", { name, exact: true });

test("the row moves, and names are text", async () => {
  const page = await open();
  assert.ok(!page.url().includes("token="), "the token is taken out of the address");
  const canvas = page.locator(".matrix canvas");
  const first = await canvas.getAttribute("data-slice");
  await until("another slice", async () => (await canvas.getAttribute("data-slice")) !== first);
  await link(page, EVIL).waitFor();
  assert.equal(await page.locator("tbody b").count(), 0);
  const machine = page.getByRole("region", { name: "Machine" });
  const plans = await machine.locator("dt", { hasText: "Plans" }).locator("xpath=following-sibling::dd[1]").textContent();
  const [, late, out] = plans.match(/^(\d+) late, (\d+) ran out$/).map(Number);
  const { status } = await place.call("GetStatus", {});
  assert.ok(late <= status.switches.late_plans && out <= status.switches.ran_out, plans);
  await until("the picture in words", async () => /had \d/.test(await page.locator(".timeline canvas").getAttribute("aria-label") ?? ""));
  await close(page);
});

test("what is drawn row by row is what is drawn at once", async () => {
  const { web, address: its } = await place.startWeb();
  const page = await open(its);
  const matrix = page.locator(".matrix canvas");
  const drawn = () => matrix.evaluate((canvas) => canvas.toDataURL());
  const wide = () => matrix.evaluate((canvas) => canvas.width);
  const slice = async () => Number(await matrix.getAttribute("data-slice"));
  const first = await slice();
  await until("ten slices have passed", async () => (await slice()) >= first + 10);
  await page.locator(".matrix").getByRole("button", { name: /^Hold the picture/ }).click();
  // Nothing changes any more where nothing arrives any more.
  await ended(web);
  await page.locator("#banner").filter({ hasText: "gang web does not answer" }).waitFor();
  await frames(page);
  const parts = await drawn();
  // In another width all of it is drawn anew.
  const [size, width] = [page.viewportSize(), await wide()];
  await page.setViewportSize({ ...size, width: size.width - 300 });
  await until("it is narrow", async () => (await wide()) !== width);
  await page.setViewportSize(size);
  await until("it is as it was", async () => (await wide()) === width);
  await frames(page);
  assert.ok((await drawn()) === parts, "both are the same");
  await close(page);
});

test("the table sorts and filters by keyboard, the pictures zoom and hold", async () => {
  const page = await open();
  const names = () => page.locator("tbody tr[data-job] th").allTextContents();
  await page.getByRole("columnheader", { name: "Name" }).getByRole("button").press("Enter");
  assert.deepEqual(await names(), [EVIL, "solver"]);
  await page.getByRole("columnheader", { name: "Name" }).getByRole("button").press("Enter");
  assert.deepEqual(await names(), ["solver", EVIL]);
  assert.equal(await page.getByRole("columnheader", { name: "Name" }).getAttribute("aria-sort"), "descending");
  await page.getByLabel("Filter").fill("solv batch");
  assert.deepEqual(await names(), ["solver"]);
  await page.getByLabel("Filter").fill("");
  const timeline = page.locator(".timeline canvas");
  // They are renewed more often where they are shown.
  await page.locator(".timeline summary").click();
  await timeline.focus();
  const seconds = async () => Number((await timeline.getAttribute("aria-label")).match(/In the ([\d.]+) s that are shown/)?.[1]);
  await until("five seconds are shown", async () => (await seconds()) === 5);
  await page.keyboard.press("+");
  await until("fewer are shown", async () => (await seconds()) < 5);
  await page.keyboard.press("Space");
  await frames(page);
  const held = await timeline.getAttribute("data-until");
  const beside = page.locator(".matrix canvas");
  const slice = await beside.getAttribute("data-slice");
  await until("the other picture goes on", async () => (await beside.getAttribute("data-slice")) !== slice);
  assert.equal(await timeline.getAttribute("data-until"), held);
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("0");
  await until("it goes on", async () => (await timeline.getAttribute("data-until")) !== held);
  await until("all of it is shown again", async () => (await seconds()) === 5);
  const matrix = page.locator(".matrix canvas");
  const rows = async () => Number(await matrix.getAttribute("data-rows"));
  const whole = await rows();
  await page.locator(".matrix").getByRole("button", { name: /^Zoom in/ }).click();
  await until("fewer rows are shown", async () => (await rows()) < whole);
  await matrix.focus();
  await page.keyboard.press("0");
  await until("all rows are shown again", async () => (await rows()) === whole);
  await close(page);
});

test("how far a program is, is shown where it says so", async () => {
  const page = await open();
  const line = page.locator("tbody tr[data-job]").filter({ has: link(page, "solver") });
  const job = Number(await line.getAttribute("data-job"));
  await place.call("SetProgress", { job, done: 1, total: 4 });
  // Other columns have shares, too, which may be the same.
  const titles = await page.locator("table:has(tr[data-job]) thead th").allTextContents();
  const cell = line.locator("> *").nth(titles.findIndex((title) => title.startsWith("Done")));
  await cell.filter({ hasText: /^25\.0 %$/ }).waitFor();
  await link(page, "solver").click();
  await page.locator(".figures").filter({ hasText: "1 of 4" }).waitFor();
  await close(page);
});

test("a job has a page with its past, its processes and the reason for its speed", async () => {
  const page = await open();
  const { jobs } = await place.call("ListJobs", {});
  const classes = page.locator("dt", { hasText: "Had by classes" }).locator("xpath=following-sibling::dd[1]");
  await classes.filter({ hasText: `batch` }).filter({ hasText: `(${jobs.length} jobs)` }).waitFor();
  await link(page, "solver").click();
  const section = (name) => page.locator("section").filter({ has: page.getByRole("heading", { name, exact: true }) });
  await section("Why it is as fast or as slow as it is").getByText(/^Job \d+ \(solver\): /).waitFor();
  await page.locator(".uplot").first().waitFor();
  await section("Processes").getByText("<i>\\u{202e}\\u{1b}]0;x").first().waitFor();
  assert.equal(await page.locator("i").count(), 0);
  await page.locator("dt", { hasText: "Waits out of slot" }).waitFor();
  await close(page);
});

test("times are those of the browser's locale", async () => {
  const written = {
    "en-US": { moment: /^\d+\/\d+\/\d{4}, \d+:\d\d:\d\d\s[AP]M$/, label: /^\d+:\d\d(:\d\d)?\s[AP]M$/, day: /^[A-Z]\w\w \d+$/ },
    "de-DE": { moment: /^\d+\.\d+\.\d{4}, \d\d:\d\d:\d\d$/, label: /^\d\d:\d\d(:\d\d)?$/, day: /^\d+\. [A-Z]/ },
    "en-GB": { moment: /^\d\d\/\d\d\/\d{4}, \d\d:\d\d:\d\d$/, label: /^\d\d:\d\d(:\d\d)?$/, day: /^\d+ [A-Z]/ },
  };
  const job = { id: 1, name: "over", owner: "root", class: "batch", cpus: 1, registered_at_ns: 1e18, ended_at_ns: 2e18, slots: 1, in_slot_ns: 1e9, cpu_time_ns: 1e9 };
  for (const [locale, { moment, label, day }] of Object.entries(written)) {
    const page = await open(address, { locale });
    await page.route("**/api/history", (route) => route.fulfill({ json: [job] }));
    await page.getByText("Jobs that have ended").click();
    const ended = page.locator(".ended tbody td");
    assert.match(await ended.nth(5).textContent(), moment);
    assert.match(await ended.nth(6).textContent(), moment);
    await link(page, "solver").click();
    const since = page.locator("dt", { hasText: "Registered" }).locator("xpath=following-sibling::dd[1]");
    assert.match(await since.textContent(), moment);
    await page.locator(".uplot").first().waitFor();
    await frames(page);
    const texts = await page.locator(".uplot canvas").first().evaluate((canvas) => globalThis.textsOn(canvas).map(({ text }) => text));
    const isNumber = (text) => /^[\d.,]+$/.test(text);
    assert.ok(texts.some((text) => label.test(text)) && texts.some((text) => day.test(text)), texts.join(" | "));
    assert.deepEqual(texts.filter((text) => !label.test(text) && !day.test(text) && !isNumber(text)), [], locale);
    await close(page);
  }
});

test("labels of the timeline lie apart at any zoom", async () => {
  for (const width of [390, 1280]) {
    const page = await open(address, { viewport: { width, height: 900 } });
    const timeline = page.locator(".timeline canvas");
    const look = async (where) => {
      await frames(page);
      const [texts, found] = await timeline.evaluate((canvas) => [globalThis.textsOn(canvas).length, globalThis.collisions(canvas)]);
      assert.deepEqual(found, [], `${where}, ${width} wide`);
      assert.ok(texts > 0, `${where}, ${width} wide: nothing is drawn`);
    };
    await timeline.scrollIntoViewIfNeeded();
    await timeline.focus();
    await page.keyboard.press("-");
    await page.keyboard.press("-");
    await look("ten seconds");
    for (let zoom = 0; zoom < 10; zoom++) {
      await page.keyboard.press("+");
      await page.keyboard.press("+");
      await look(`zoomed ${zoom} times`);
    }
    await page.keyboard.press("Space");
    for (let zoom = 0; zoom < 10; zoom++) {
      await page.keyboard.press("-");
      await page.keyboard.press("-");
      await page.keyboard.press("ArrowLeft");
      await look(`held, ${zoom} times back`);
    }
    await close(page);
  }
});

test("it can be used by who does not see it", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await open(address, { colorScheme });
    await page.evaluate(axe.source);
    const check = async (where) => {
      const found = await page.evaluate(() => globalThis.axe.run());
      const reports = found.violations.map((v) => `${where}, ${colorScheme}: ${v.id}: ${v.nodes[0].html}`);
      assert.deepEqual(reports, []);
    };
    await check("overview");
    await link(page, "solver").click();
    await page.locator(".uplot").first().waitFor();
    await check("job");
    await page.getByRole("button", { name: "Kill …" }).click();
    await check("question");
    await page.keyboard.press("Escape");
    await close(page);
  }
});

test("pictures of the page at three sizes", async () => {
  for (const [width, height] of SIZES) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(address, { viewport: { width, height }, colorScheme });
      const shot = (name) => page.screenshot({ path: join(PICTURES, `${name}-${width}x${height}-${colorScheme}.png`) });
      await frames(page);
      await shot("overview");
      const sideways = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok((await sideways()) <= 0, `no scrolling sideways at ${width}`);
      await link(page, "solver").click();
      await page.locator(".uplot").first().waitFor();
      await frames(page);
      await shot("job");
      assert.ok((await sideways()) <= 0, `no scrolling sideways at ${width}`);
      await page.getByRole("button", { name: "Kill …" }).click();
      await shot("question");
      await close(page);
    }
  }
});

test("missing rights are said", async (t) => {
  if (process.getuid() !== 0) return skipped(t, "page.test.mjs", "it takes root to be another user: who has no rights was not looked at");
  const { web, address: theirs } = await place.startWeb([], { uid: 65534, gid: 65534 });
  const page = await open(theirs);
  assert.match(await page.locator("#viewer").textContent(), /as nobody/);
  await link(page, "solver").click();
  await page.getByRole("button", { name: "Suspend" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Suspend" }).click();
  await page.locator(".note.trouble").filter({ hasText: "not permitted" }).waitFor();
  await page.locator(".job > p[role=status]").filter({ hasText: "It runs" }).waitFor();
  await close(page);
  await ended(web);
});

test("without the token there is a door", async () => {
  const page = await newPage(chrome);
  await page.goto(new URL(address).origin);
  await page.getByText("#token=").waitFor();
  assert.equal(await page.locator("tbody tr").count(), 0);
  await page.context().close();
});

test("a job is suspended, put into another class, resized and killed", async () => {
  const page = await open();
  await link(page, "solver").click();
  const state = page.locator(".job > p[role=status]");
  const dialog = page.getByRole("dialog");
  await page.getByRole("button", { name: "Suspend" }).click();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Suspend" }).click();
  await dialog.getByRole("button", { name: "Suspend" }).click();
  await state.filter({ hasText: "It is suspended" }).waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await dialog.getByRole("button", { name: "Resume" }).click();
  await state.filter({ hasText: "It runs" }).waitFor();

  await page.getByLabel("Class", { exact: true }).selectOption("standby");
  await page.getByRole("button", { name: "Change class" }).click();
  await dialog.getByRole("button", { name: "Change class" }).click();
  await state.filter({ hasText: "Class standby" }).waitFor();

  await page.getByRole("button", { name: "Resize …" }).click();
  await dialog.getByLabel("Weight").fill("300");
  await dialog.getByRole("button", { name: "Resize" }).click();
  await page.locator(".figures").filter({ hasText: "300 %" }).waitFor();

  await page.getByRole("button", { name: "Kill …" }).click();
  await dialog.getByLabel("Signal").selectOption("9");
  await dialog.getByRole("button", { name: "Send the signal" }).click();
  await state.filter({ hasText: "It has ended" }).waitFor();
  await page.getByRole("link", { name: "← All jobs" }).click();
  await until("one job is left", async () => (await page.locator("tbody tr[data-job]").count()) === 1);
  await close(page);
});

test("the daemon is lost and found again", async () => {
  const page = await open();
  const banner = page.locator("#banner");
  await banner.waitFor({ state: "hidden" });
  await ended(gangd);
  await banner.filter({ hasText: "Looking for it again" }).waitFor();
  gangd = await place.startGangd("--slice", "20ms");
  await banner.waitFor({ state: "hidden" });
  await place.spin("after");
  await link(page, "after").waitFor();
  await close(page);
});

test("gang web itself is lost and found again", async () => {
  const file = join(place.directory, "token");
  const first = await place.startWeb(["--token-file", file]);
  const page = await open(first.address);
  const banner = page.locator("#banner");
  await ended(first.web);
  await banner.filter({ hasText: "gang web does not answer" }).waitFor();
  const again = await place.startWeb(["--token-file", file], {}, new URL(first.address).host);
  assert.equal(again.address, first.address);
  await banner.waitFor({ state: "hidden" });
  await close(page);
});
