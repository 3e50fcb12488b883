// Programs for a test: each is started with a place of its own, and ended by its number.

import { execFileSync, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const PATIENCE_MS = 30_000;
const BUILT = process.env.GANG_BUILT;
const CHROMIUM = process.env.GANG_CHROMIUM;

/** Waits until something holds. */
export async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
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
    await until("gangd listens", () => existsSync(this.socket) && this.answers());
    return gangd;
  }

  answers() {
    try {
      execFileSync(this.gang, ["status"], { env: { ...process.env, GANG_SOCKET: this.socket }, stdio: "ignore" });
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

  /** A gang of two threads that spin for two minutes at most; the last word of its command is of no use to it. */
  spin(name, word = "sh") {
    const spin = "(while :; do :; done) & while :; do :; done";
    return this.start(this.gang, ["run", "-n", "2", "--min", "1", "--name", name, "--", "timeout", "120", "sh", "-c", spin, word]);
  }

  /** The address that `gang web` prints. */
  async startWeb(args = [], options = {}, listen = "127.0.0.1:0") {
    const web = this.start(this.gang, ["web", "--listen", listen, ...args], options);
    let said = "";
    web.stdout.on("data", (data) => (said += data));
    await until("gang web listens", () => said.includes("\n"));
    return { web, address: said.trim() };
  }

  async end() {
    for (const child of this.children.reverse()) await ended(child);
    try {
      execFileSync(join(BUILT, "gangd"), ["--release", "--socket", this.socket], { stdio: "ignore" });
    } catch {
      // There was nothing to release.
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

export async function ended(child, signal = "SIGTERM") {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const over = new Promise((resolve) => child.once("exit", resolve));
  child.kill(signal);
  const late = setTimeout(() => child.kill("SIGKILL"), 5000);
  await over;
  clearTimeout(late);
}

export async function browser(chromium) {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
  return chromium.launch({ executablePath: CHROMIUM, args });
}
