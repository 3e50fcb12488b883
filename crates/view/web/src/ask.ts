// A question before something is done. Escape and Cancel mean no.

import { element, type Child } from "./dom.js";

export interface Question {
  title: string;
  about: string;
  yes: string;
  isGrave?: boolean;
  /** Further questions, such as which signal. */
  fields?: Child[];
}

export function confirmed(question: Question): Promise<boolean> {
  const yes = element("button", { value: "yes", class: question.isGrave ? "grave" : "main" }, question.yes);
  const no = element("button", { value: "no", formnovalidate: true }, "Cancel");
  const dialog = element(
    "dialog",
    { "aria-labelledby": "question-title", "aria-describedby": "question-about" },
    element(
      "form",
      { method: "dialog" },
      element("h2", { id: "question-title" }, question.title),
      element("p", { id: "question-about" }, question.about),
      ...(question.fields ?? []),
      element("div", { class: "answers" }, no, yes),
    ),
  );
  document.body.append(dialog);
  dialog.returnValue = "no";
  dialog.showModal();
  // The answer that harms nobody is the one that Enter gives.
  (question.isGrave ? no : yes).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
  });
}
