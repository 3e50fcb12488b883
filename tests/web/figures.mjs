// The figures of the page that SPECIFICATION.md promises: bytes, first useful paint, frames a
// second with 128 CPUs and 200 jobs. And the part of a CPU that gang web takes at ten updates a
// second with 20 jobs.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";
import { fake } from "./fake.mjs";
import { browser, Place } from "./programs.mjs";

const SECONDS = Number(process.env.GANG_SECONDS ?? 10);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** CPU time of a process in ms: utime and stime, in ticks of 10 ms. */
function cpu_ms(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return 10 * (Number(fields[11]) + Number(fields[12]));
}

async function measure(machine, look) {
  const place = new Place();
  const daemon = await fake(place.socket, machine);
  const chrome = await browser(chromium);
  try {
    const { web, address } = await place.startWeb();
    const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
    const page = await context.newPage();
    let bytes = 0;
    page.on("response", async (response) => {
      if (!response.url().includes("/api/")) bytes += (await response.body().catch(() => "")).length;
    });
    // Useful is the first row of the table.
    await page.addInitScript(() => {
      new MutationObserver((_, observer) => {
        if (!document.querySelector("tbody tr[data-job]")) return;
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => (globalThis.useful = performance.now())));
      }).observe(document, { childList: true, subtree: true });
    });
    await page.goto(address);
    await page.waitForFunction(() => globalThis.useful);
    await look({ page, context, web, address, bytes: () => bytes });
    await context.close();
  } finally {
    await chrome.close();
    daemon.close();
    await place.end();
  }
}

await measure({ cpus: 16, jobs: 20 }, async ({ page, web, address, bytes }) => {
  console.log(`bytes of the page: ${bytes()}`);
  const paints = [];
  for (let round = 0; round < 7; round++) {
    await page.goto("about:blank");
    await page.goto(address);
    await page.waitForFunction(() => globalThis.useful);
    paints.push(Math.round(await page.evaluate(() => globalThis.useful)));
  }
  paints.sort((a, b) => a - b);
  console.log(`first useful paint: median ${paints[3]} ms, of ${paints.join(" ")}`);
  await pause(2000);
  const before = cpu_ms(web.pid);
  await pause(SECONDS * 1000);
  const share = (cpu_ms(web.pid) - before) / (SECONDS * 10);
  console.log(`gang web, 20 jobs, one browser, 10 updates/s: ${share.toFixed(2)} % of a CPU over ${SECONDS} s`);
});

const MACHINES = [
  { cpus: 128, jobs: 200, slice_ns: 10_000_000 },
  { cpus: 128, jobs: 200, slice_ns: 1_000_000 },
  { cpus: 64, jobs: 20, slice_ns: 10_000_000, hosts: 64 },
];
for (const of of MACHINES) await measure(of, async ({ page, web }) => {
  const matrix = of.hosts ? `, the matrix of ${of.hosts} hosts` : "";
  const machine = `${of.cpus} CPUs, ${of.jobs} jobs, slices of ${of.slice_ns / 1e6} ms${matrix}`;
  if (of.hosts) {
    await page.getByRole("link", { name: "All hosts" }).click();
    await page.locator(".hostmatrix canvas[data-painted]").waitFor();
  }
  await pause(3000);
  const before = cpu_ms(web.pid);
  const gaps = await page.evaluate(
    (ms) =>
      new Promise((resolve) => {
        const gaps = [];
        const begin = performance.now();
        let last = begin;
        const next = (now) => {
          gaps.push(now - last);
          last = now;
          if (now - begin < ms) requestAnimationFrame(next);
          else resolve(gaps.slice(1));
        };
        requestAnimationFrame(next);
      }),
    SECONDS * 1000,
  );
  const share = (cpu_ms(web.pid) - before) / (SECONDS * 10);
  const sum = gaps.reduce((a, b) => a + b, 0);
  const late = gaps.filter((gap) => gap > 25).length;
  console.log(`${machine}: ${((1000 * gaps.length) / sum).toFixed(1)} frames/s, ${late} of ${gaps.length} later than 25 ms`);
  console.log(`gang web, ${machine}: ${share.toFixed(2)} % of a CPU`);
});
