// Programs for a test: each is started with a place of its own, and ended by its number.

import { execFileSync, spawn } from "node:child_process";
import { appendFileSync, chmodSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Only against hanging: a machine may be slow, or busy. */
export const TEST_TIMEOUT_MS = 180_000;
const BUILT = process.env.GANG_BUILT;
const CHROMIUM = process.env.GANG_CHROMIUM;

/** Waits until something holds. */
export async function until(what, holds) {
  const end = Date.now() + TEST_TIMEOUT_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`not within ${TEST_TIMEOUT_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Skips a test, and has it listed with its reason at the end of all tests. */
export function skipped(t, file, why) {
  if (process.env.GANG_SKIPS) appendFileSync(process.env.GANG_SKIPS, `tests/web/${file}: ${why}\n`);
  t.skip(why);
}

/** A directory with a socket, and the programs of this build. */
export class Place {
  constructor() {
    this.directory = mkdtempSync(join(tmpdir(), "gang-web-"));
    chmodSync(this.directory, 0o755);
    this.socket = join(this.directory, "gangd.sock");
    this.children = [];
    // Where other users can execute it. By another process: see ETXTBSY in execve(2).
    this.gang = join(this.directory, "gang");
    execFileSync("cp", [join(BUILT, "gang"), this.gang]);
  }

  start(program, args, options = {}) {
    const env = { ...process.env, GANG_SOCKET: this.socket };
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"], env, ...options });
    this.children.push(child);
    return child;
  }

  async startGangd(...flags) {
    const gangd = this.start(join(BUILT, "gangd"), ["--socket", this.socket, ...flags]);
    await until("gangd listens", () => isThere(gangd) && existsSync(this.socket) && this.answers());
    return gangd;
  }

  answers() {
    try {
      execFileSync(this.gang, ["status"], { env: { ...process.env, GANG_SOCKET: this.socket }, stdio: "ignore", timeout: TEST_TIMEOUT_MS });
      return true;
    } catch {
      return false;
    }
  }

  /** Asks the daemon itself. */
  async call(method, parameters) {
    const socket = connect(this.socket);
    socket.write(`${JSON.stringify({ method: `org.gangd.v1.${method}`, parameters })}\0`);
    let said = "";
    for await (const data of socket) {
      said += data;
      if (said.endsWith("\0")) break;
    }
    const answer = JSON.parse(said.slice(0, -1));
    if (answer.error) throw new Error(`${method}: ${said}`);
    return answer.parameters;
  }

  /** A gang of two threads that spin while the test runs. Its command ignores its last word. */
  async spin(name, word = "sh") {
    const count = "n=0; while [ $n -lt 9999 ]; do n=$((n + 1)); done";
    const whileThere = (pid) => `while kill -0 ${pid} 2>/dev/null; do ${count}; done`;
    const work = `(${whileThere("$$")}) & ${whileThere(process.pid)}`;
    const run = this.start(this.gang, ["run", "-n", "2", "--min", "1", "--name", name, "--", "sh", "-c", work, word]);
    const isListed = async () => (await this.call("ListJobs", {})).jobs.some((job) => job.name === name);
    await until(`${name} is a job`, async () => isThere(run) && (await isListed()));
  }

  /** The address that `gang web` prints. */
  async startWeb(args = [], options = {}, listen = "127.0.0.1:0") {
    const web = this.start(this.gang, ["web", "--listen", listen, ...args], options);
    let said = "";
    web.stdout.on("data", (data) => (said += data));
    await until("gang web listens", () => isThere(web) && said.includes("\n"));
    return { web, address: said.trim() };
  }

  async end() {
    for (const child of this.children.reverse()) await ended(child);
    try {
      execFileSync(join(BUILT, "gangd"), ["--release", "--socket", this.socket], { stdio: "ignore", timeout: TEST_TIMEOUT_MS });
    } catch {
      // There was nothing to release.
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** That a program has not ended yet, which fails what waits for it. */
function isThere({ exitCode, signalCode, spawnargs }) {
  if (exitCode === null && signalCode === null) return true;
  throw new Error(`${spawnargs.join(" ")} ended: ${signalCode ?? exitCode}`);
}

/** Ends a program, which is to take the signal. */
export async function ended(child, signal = "SIGTERM") {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const over = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  const late = setTimeout(() => child.kill("SIGKILL"), TEST_TIMEOUT_MS);
  await over;
  clearTimeout(late);
  if (child.signalCode === "SIGKILL") throw new Error(`${child.spawnargs.join(" ")} did not end by ${signal}`);
}

export async function browser(chromium) {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  return chromium.launch({ executablePath: CHROMIUM, args, timeout: TEST_TIMEOUT_MS });
}

/** A page that waits for everything as patiently. */
export async function newPage(chrome, options = {}) {
  const page = await (await chrome.newContext(options)).newPage();
  page.setDefaultTimeout(TEST_TIMEOUT_MS);
  return page;
}

/** After the page has drawn what it knew. */
export function frames(page) {
  return page.evaluate(() => new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then))));
}
