// The charts of a job's last minutes without a server: any minutes, in the locales and sizes that
// browsers have.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { browser, frames, newPage } from "./programs.mjs";
import { recordTexts } from "./texts.mjs";

const PICTURES = process.env.GANG_PICTURES;
const WEB = fileURLToPath(new URL("../../crates/view/web/", import.meta.url));
const { build } = createRequire(join(WEB, "package.json"))("esbuild");

/** Of what the server says of figures, the part that charts use. */
const FIGURES = [
  ["share_had", "share had", "share"],
  ["share_wanted", "share wanted", "share"],
  ["coscheduled", "coscheduled", "share"],
  ["skew_ns_p99", "skew, p99", "ns"],
  ["cpus_used", "CPUs used", "mean"],
  ["filling", "filling", "share"],
].map(([name, title, unit]) => ({ name, title, unit }));

let chrome, script, style;

before(async () => {
  mkdirSync(PICTURES, { recursive: true });
  const shared = { bundle: true, write: false, absWorkingDir: WEB, logLevel: "warning" };
  const built = await build({
    ...shared,
    entryPoints: ["src/charts.ts"],
    format: "iife",
    globalName: "built",
  });
  script = `${built.outputFiles[0].text}; globalThis.Charts = built.Charts;`;
  style = (await build({ ...shared, entryPoints: ["src/page.css"] })).outputFiles[0].text;
  chrome = await browser(chromium);
});

after(() => chrome?.close());

/** A page of charts only. Letters are 16 pixels high unless a browser is set to others. */
async function open(options, letters = 16) {
  const page = await newPage(chrome, options);
  await page.addInitScript(recordTexts);
  await page.goto("about:blank");
  const root = `html { font-size: ${(letters * 15) / 16}px !important; }`;
  await page.setContent(
    `<!doctype html><html lang="en"><style>${style}${root}</style><main class="job"></main></html>`,
  );
  await page.evaluate(script);
  await page.evaluate((figures) => {
    globalThis.charts = new globalThis.Charts(figures);
    document.querySelector(".job").append(globalThis.charts.section);
    /** Minutes up to a moment, with greater and greater skew. */
    globalThis.showPast = async (until_s, span_s, most_us = 80) => {
      const column = (of) => Array.from({ length: 60 }, (_, at) => of(at / 59));
      const at_s = column((share) => Math.round(until_s - span_s * (1 - share)));
      const half = column((share) => 0.4 + share / 5);
      const skew_ns_p99 = column((share) => share * most_us * 1000);
      const past = {
        at_s,
        share_had: half,
        share_wanted: half,
        coscheduled: half,
        skew_ns_p99,
        cpus_used: half,
        filling: half,
      };
      globalThis.charts.show(past);
      // It draws when all that runs now has ended.
      await null;
    };
  }, FIGURES);
  return page;
}

/** Seconds since the epoch of a moment in the page's own time. */
const moment = (page, ...parts) =>
  page.evaluate((given) => new Date(...given).getTime() / 1000, parts);

const axis = (page) =>
  page.evaluate(() =>
    globalThis
      .textsOn(document.querySelector(".uplot canvas"))
      .map(({ text }) => text.replace(/\s/g, " ")),
  );

test("labels of times lie apart wherever a day begins", async () => {
  const spans_s = [
    1, 9, 25, 60, 119, 120, 300, 599, 600, 1500, 3600, 7200, 21_600, 86_400, 200_000, 1e6, 1e7,
  ];
  const look = async (locale, letters, widths) => {
    const page = await open({ locale, timezoneId: "Europe/Berlin" }, letters);
    for (const width of widths) {
      await page.setViewportSize({ width, height: 800 });
      await frames(page);
      const found = await page.evaluate(
        async ([spans, letters]) => {
          const found = [];
          // A day and a year begin; clocks are put back, and forward.
          const moments = [
            new Date(2025, 10, 26),
            new Date(2026, 0, 1),
            new Date(2025, 9, 26, 3),
            new Date(2026, 2, 29, 3),
          ];
          for (const [moment, span_s] of moments.flatMap((moment) =>
            spans.map((span) => [moment, span]),
          )) {
            await globalThis.showPast(moment.getTime() / 1000 + 0.6 * span_s, span_s);
            const canvas = document.querySelector(".uplot canvas");
            const wrong = globalThis.collisions(canvas);
            // Three are values, two a time with its date. Large letters leave few ticks.
            if (globalThis.textsOn(canvas).length < 5 && (letters === 16 || span_s <= 600))
              wrong.push("hardly a time is drawn");
            found.push(...wrong.map((it) => `${span_s} s about ${moment.toISOString()}: ${it}`));
          }
          return found;
        },
        [spans_s, letters],
      );
      assert.deepEqual(found, [], `${locale}, ${width} wide, letters of ${letters}`);
    }
    await page.context().close();
  };
  for (const locale of ["en-US", "de-DE", "bg-BG", "ja-JP", "ar-EG"])
    await look(locale, 16, [320, 640, 1920]);
  await look("en-US", 32, [390, 1280]);
});

test("labels of times are those of the locale", async () => {
  const expected = {
    "en-US": [
      ["11:59:40 PM", "Nov 25"],
      "12:00:00 AM",
      ["11:50 PM", "Nov 25"],
      "12:00 AM",
      "Nov 26",
    ],
    "de-DE": [["23:59:40", "25. Nov."], "00:00:00", ["23:50", "25. Nov."], "00:00", "26. Nov."],
    "en-GB": [["23:59:40", "25 Nov"], "00:00:00", ["23:50", "25 Nov"], "00:00", "26 Nov"],
  };
  for (const [locale, [first, midnight, firstOfMinutes, midnightOfMinutes, day]] of Object.entries(
    expected,
  )) {
    const page = await open({
      locale,
      timezoneId: "America/New_York",
      viewport: { width: 700, height: 800 },
    });
    const midnight_s = await moment(page, 2025, 10, 26);
    const shows = async (begin, span_s, ...texts) => {
      await page.evaluate(
        ([until_s, span]) => globalThis.showPast(until_s, span),
        [begin + span_s, span_s],
      );
      const drawn = await axis(page);
      for (const text of texts)
        assert.ok(drawn.includes(text), `${locale}: ${text} is among ${drawn.join(" | ")}`);
    };
    await shows(midnight_s - 20, 40, ...first, midnight, day);
    await shows(midnight_s - 600, 1200, ...firstOfMinutes, midnightOfMinutes, day);
    await page.screenshot({
      path: join(PICTURES, `charts-midnight-${locale}.png`),
      fullPage: true,
    });
    await page.context().close();
  }
});

test("values of a chart are whole at any size", async () => {
  for (const letters of [16, 32]) {
    const page = await open({ viewport: { width: 390, height: 800 } }, letters);
    const now_s = await moment(page, 2025, 10, 26, 12);
    for (const most_us of [0.5, 80, 5000, 123_456, 98_765_432]) {
      await page.evaluate(([now, most]) => globalThis.showPast(now, 600, most), [now_s, most_us]);
      const found = await page.evaluate(() =>
        [...document.querySelectorAll(".uplot canvas")].flatMap(globalThis.collisions),
      );
      assert.deepEqual(found, [], `${most_us} µs, letters of ${letters}`);
    }
    await page.screenshot({
      path: join(PICTURES, `charts-letters-${letters}.png`),
      fullPage: true,
    });
    await page.context().close();
  }
});

test("a legend shows values only where one points", async () => {
  const page = await open({ viewport: { width: 1280, height: 800 } });
  await page.evaluate(() => globalThis.showPast(1_764_158_400, 600));
  const legends = () =>
    page
      .locator(".u-legend")
      .evaluateAll((all) =>
        all.map((legend) =>
          [...legend.querySelectorAll("tr:not(:first-child) > *")]
            .flatMap((it) => it.innerText.trim() || [])
            .join(" "),
        ),
      );
  const names = ["share had share wanted", "coscheduled", "skew, p99", "CPUs used", "filling"];
  const colons = () =>
    page
      .locator(".u-legend tr:not(:first-child) > *")
      .evaluateAll(
        (all) =>
          all.flatMap((it) =>
            ["::before", "::after"].filter((mark) =>
              getComputedStyle(it, mark).content.includes(":"),
            ),
          ).length,
      );
  assert.deepEqual(await legends(), names);
  assert.equal(await colons(), 0);
  const expected = [
    /^share had \d+\.\d % share wanted \d+\.\d %$/,
    /^coscheduled \d+\.\d %$/,
    /^skew, p99 \d+\.\d µs$/,
    /^CPUs used \d+\.\d$/,
    /^filling \d+\.\d %$/,
  ];
  for (const [at, text] of expected.entries()) {
    await page.locator(".u-over").nth(at).hover();
    const said = await legends();
    assert.equal(await colons(), at === 0 ? 2 : 1);
    assert.match(said[at], text);
    const others = (of) => of.filter((_, index) => index !== at);
    assert.deepEqual(others(said), others(names));
    // As each second, with the pointer where it was.
    await page.evaluate(() => globalThis.showPast(1_764_158_401, 600));
    assert.match((await legends())[at], text);
  }
  await page.mouse.move(0, 0);
  assert.deepEqual(await legends(), names);
  await page.evaluate(() => globalThis.showPast(1_764_158_402, 600));
  assert.deepEqual(await legends(), names);
  await page.context().close();
});
