// Actions on a job, each after a question. A refusal is shown in the daemon's words.

import { confirmed } from "./ask.js";
import { element } from "./dom.js";
import { act, Refused, type Action } from "./server.js";
import { printable } from "./text.js";
import { notify } from "./notes.js";
import type { Class, Job, Limits } from "./wire.js";

const SIGNALS = [
  ["TERM", 15, "asks it to end"],
  ["INT", 2, "as Ctrl-C does"],
  ["HUP", 1, "hangs up"],
  ["USR1", 10, "means what the program says"],
  ["KILL", 9, "ends it at once"],
] as const;

function named(job: Job): string {
  return `job ${job.id}, ${printable(job.name)}`;
}

async function perform(job: Job, action: Action, done: string): Promise<void> {
  try {
    await act(job.id, action);
    notify(`${printable(job.name)} (job ${job.id}): ${done}.`);
  } catch (error) {
    const why = error instanceof Refused ? error.message : "the server does not answer; try again.";
    notify(`${printable(job.name)} (job ${job.id}): ${printable(why)}`, true);
  }
}

export async function suspend(job: Job): Promise<void> {
  const about = "It stops at once and keeps its memory, until it is resumed.";
  if (await confirmed({ title: `Suspend ${named(job)}?`, about, yes: "Suspend" })) {
    await perform(job, { what: "suspend" }, "suspended");
  }
}

export async function resume(job: Job): Promise<void> {
  if (await confirmed({ title: `Resume ${named(job)}?`, about: "It takes its turns again.", yes: "Resume" })) {
    await perform(job, { what: "resume" }, "resumed");
  }
}

export async function kill(job: Job): Promise<void> {
  const signal = element(
    "select",
    { id: "signal" },
    ...SIGNALS.map(([name, number, about]) => element("option", { value: number }, `${name}: ${about}`)),
  );
  const field = element("label", {}, "Signal ", signal);
  const about = "Every process of the job gets the signal. Work that it has not saved may be lost.";
  const question = { title: `Kill ${named(job)}?`, about, yes: "Send the signal", isGrave: true, fields: [field] };
  if (await confirmed(question)) {
    const number = Number(signal.value);
    const name = SIGNALS.find(([, known]) => known === number)![0];
    await perform(job, { what: "kill", signal: number }, `signal ${name} sent`);
  }
}

export async function setClass(job: Job, to: Class): Promise<void> {
  const about = `It is in ${job.class} now. Its owner may lower the class of a job; to raise it again takes an administrator.`;
  if (await confirmed({ title: `Put ${named(job)} into ${to}?`, about, yes: "Change class" })) {
    await perform(job, { what: "class", class: to }, `now in ${to}`);
  }
}

export async function resize(job: Job, limits: Limits): Promise<void> {
  const number = (label: string, value: number | undefined, attributes: Record<string, string | number>) => {
    const input = element("input", { type: "number", value: value ?? "", ...attributes });
    return { input, field: element("label", {}, label, input) };
  };
  const cpus = number("CPUs at once ", job.cpus, { min: 1, max: limits.cpus_max, required: "" });
  const min = number("At least ", job.min_cpus, { min: 1, max: limits.cpus_max, required: "" });
  const weight = number("Weight ", job.weight, { min: limits.weight_min, max: limits.weight_max, required: "" });
  const gib = (job.memory_promised_bytes ?? 0) / 2 ** 30;
  const mem = number("Memory in GiB, 0 asks for none ", Number(gib.toFixed(3)), { min: 0, step: "any" });
  const fields = [cpus, min, weight, mem].map(({ field }) => field);
  const about = "What it asks for from now on. Threads that it has already stay.";
  if (!(await confirmed({ title: `Resize ${named(job)}`, about, yes: "Resize", fields }))) return;
  const action: Action = { what: "resize" };
  // A field that was not touched is not sent, so that its value stays.
  const changed = (of: typeof cpus, then: (value: number) => void) => {
    if (of.input.value !== of.input.defaultValue && of.input.value !== "") then(of.input.valueAsNumber);
  };
  changed(cpus, (value) => (action.cpus = value));
  changed(min, (value) => (action.min_cpus = value));
  changed(weight, (value) => (action.weight = value));
  changed(mem, (value) => (action.mem_bytes = Math.round(value * 2 ** 30)));
  if (Object.keys(action).length === 1) return notify("Nothing was changed.");
  await perform(job, action, "resized");
}
