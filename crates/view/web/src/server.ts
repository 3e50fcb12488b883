// Requests to the server, and its stream of events.

import { token } from "./token.js";
import type { Details, EndedJob, Frame, Gone, Hello, Past, Problem } from "./wire.js";

/** A refusal of the server or the daemon, in their own words. */
export class Refused extends Error {
  constructor(readonly status: number, readonly code: string, message: string) {
    super(message);
  }
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers: Record<string, string> = { Authorization: `Bearer ${token() ?? ""}` };
  if (init.body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { ...init, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const problem: Partial<Problem> = await answer.json().catch(() => ({}));
  throw new Refused(
    answer.status,
    problem.error?.code ?? "Unknown",
    problem.error?.message ?? `the server answered ${answer.status}`,
  );
}

export type Action =
  | { what: "class"; class: string }
  | { what: "suspend" }
  | { what: "resume" }
  | { what: "kill"; signal: number }
  | { what: "resize"; cpus?: number; min_cpus?: number; weight?: number; mem_bytes?: number };

export async function act(job: number, action: Action): Promise<void> {
  const { what, ...rest } = action;
  await ask(`api/jobs/${job}/${what}`, { method: "POST", body: JSON.stringify(rest) });
}

export async function details(job: number): Promise<Details> {
  return (await ask(`api/jobs/${job}`)).json();
}

export async function past(job: number): Promise<Past> {
  return (await ask(`api/jobs/${job}/past`)).json();
}

export async function history(): Promise<EndedJob[]> {
  return (await ask("api/history")).json();
}

export interface Listener {
  hello(hello: Hello): void;
  /** Whether it begins anew: then nothing of what was known before holds. */
  frame(frame: Frame, begins: boolean): void;
  gone(gone: Gone): void;
  /** The server itself does not answer; it is asked again. */
  lost(): void;
  /** The token is not, or no longer, right. */
  refused(error: Refused): void;
}

const RETRY_MS = 1000;
/** The server sends something at least this often, if only a comment. */
const SILENCE_MS = 15_000;

/** Follows the stream while the page can be seen, and looks for a lost server until it refuses. */
export async function follow(listener: Listener): Promise<void> {
  for (;;) {
    if (document.hidden) await seen();
    const cut = new AbortController();
    const hide = () => document.hidden && cut.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      await stream(listener, cut);
      listener.lost();
    } catch (error) {
      if (error instanceof Refused && error.status < 500) return listener.refused(error);
      if (!document.hidden) listener.lost();
    } finally {
      document.removeEventListener("visibilitychange", hide);
    }
    if (document.hidden) continue;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

function seen(): Promise<void> {
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", () => resolve(), { once: true });
  });
}

/** Not an EventSource, which cannot send the token but in the address or as a cookie. */
async function stream(listener: Listener, cut: AbortController): Promise<void> {
  const answer = await ask("api/live", { signal: cut.signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => cut.abort(), SILENCE_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop()!;
    for (const event of events) deliver(listener, event);
  }
}

function deliver(listener: Listener, event: string): void {
  let name = "";
  let data = "";
  for (const line of event.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data === "") return;
  const said = JSON.parse(data);
  if (name === "hello") listener.hello(said);
  else if (name === "gone") listener.gone(said);
  else if (name === "begin" || name === "frame") listener.frame(said, name === "begin");
}
