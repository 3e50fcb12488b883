// Wires the page: the stream to the machine, the address to what is shown.

import { byId, element, say } from "./dom.js";
import { HostsPage } from "./hosts.js";
import { JobPage } from "./job.js";
import { Machine } from "./machine.js";
import { Overview } from "./overview.js";
import { follow } from "./server.js";
import { printable } from "./text.js";
import { notify } from "./notes.js";
import { forget, token } from "./token.js";
import type { Frame, Hello, State } from "./wire.js";

/** Figures change more slowly than pictures, so that they can be read. */
const FIGURES_MS = 500;

const machine = new Machine();
let hello: Hello | undefined;
let view: Overview | JobPage | HostsPage | undefined;
let states = new Map<number, State>();
let renewed_ms = -Infinity;

function show(): void {
  if (!hello) return;
  const job = /^#\/job\/(\d{1,15})$/.exec(location.hash);
  view?.close();
  if (job) view = new JobPage(machine, Number(job[1]), hello);
  else if (location.hash === "#/matrix") view = new HostsPage(machine);
  else view = new Overview(machine, hello);
  byId("view").replaceChildren(view.section);
  view.renew();
  scrollTo(0, 0);
}

function banner(text: string | undefined): void {
  const place = byId("banner");
  place.hidden = text === undefined;
  say(place, text ?? "");
  document.body.classList.toggle("stale", text !== undefined);
}

function frame(said: Frame, begins: boolean): void {
  banner(undefined);
  const wasInCluster = machine.cluster !== undefined;
  machine.take(said, begins);
  const isInCluster = machine.cluster !== undefined;
  byId("nav").hidden = !isInCluster;
  if (!view || wasInCluster !== isInCluster) show();
  if (said.jobs) announceChanges(begins);
  const now = performance.now();
  if (begins || now - renewed_ms >= FIGURES_MS) {
    renewed_ms = now;
    view?.renew();
  }
}

/** Announces jobs that come, go, are suspended or resumed. Turns change all the time. */
function announceChanges(begins: boolean): void {
  const now = new Map([...machine.jobs.values()].map((job) => [job.id, job.state]));
  if (!begins) {
    const changes: string[] = [];
    const name = (id: number) => `Job ${id}, ${printable(machine.jobs.get(id)?.name ?? "")}`;
    for (const [id, state] of now) {
      const before = states.get(id);
      if (before === undefined) changes.push(`${name(id)}, has come.`);
      else if (before !== "suspended" && state === "suspended") changes.push(`${name(id)}, is suspended.`);
      else if (before === "suspended" && state !== "suspended") changes.push(`${name(id)}, is resumed.`);
    }
    for (const id of states.keys()) if (!now.has(id)) changes.push(`Job ${id} has ended.`);
    if (changes.length > 3) notify(`${changes.length} jobs came, ended or changed.`);
    else changes.forEach((change) => notify(change));
  }
  states = now;
}

function begin(): void {
  addEventListener("hashchange", () => {
    if (/^#token=/.test(location.hash)) location.reload();
    else if (location.hash.startsWith("#/")) show();
  });
  void follow({
    hello(said) {
      const isOther = hello?.read_only !== said.read_only;
      hello = said;
      machine.kept_us = said.limits.past_ns / 1000;
      say(byId("host"), `on ${printable(said.host)}`);
      say(byId("viewer"), `as ${printable(said.user)}${said.read_only ? ", read only" : ""}`);
      document.title = `gangd on ${printable(said.host)}`;
      if (isOther && view instanceof JobPage) show();
    },
    frame,
    gone(said) {
      banner(`${printable(said.message)}. Looking for it again …`);
    },
    lost() {
      banner("gang web does not answer. Looking for it again …");
    },
    refused(error) {
      forget();
      banner(undefined);
      view?.close();
      view = undefined;
      byId("nav").hidden = true;
      const about = token() === null ? "This page needs the address that gang web printed when it was started, with the token in it." : error.message;
      byId("view").replaceChildren(element("section", { class: "door" }, element("h2", {}, "Who are you?"), element("p", {}, about), element("p", { class: "quiet" }, "It ends with #token= and many characters. After a restart of gang web there is a new one, unless it was given a file for it.")));
    },
  });
}

token();
begin();
