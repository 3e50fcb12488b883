// Messages about what just happened: shown for a while, and read aloud.

import { byId, element } from "./dom.js";

const SHOWN_MS = 6000;
const SHOWN_LONG_MS = 20_000;
const SHOWN_MAX = 4;

export function notify(text: string, isTrouble = false): void {
  const place = byId("notes");
  const note = element("p", { class: isTrouble ? "note trouble" : "note" }, text);
  const close = element("button", { type: "button", "aria-label": "Close", onclick: () => note.remove() }, "×");
  note.append(close);
  place.append(note);
  while (place.children.length > SHOWN_MAX) place.firstElementChild!.remove();
  setTimeout(() => note.remove(), isTrouble ? SHOWN_LONG_MS : SHOWN_MS);
}
