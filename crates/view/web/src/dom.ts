// Elements. Every text is a text node: nothing that a job is called can become part of the page.

export type Child = Node | string | null | undefined;
type Attributes = Record<string, string | number | boolean | EventListener | undefined>;

/** An element with attributes and children; `onclick` and the like are listeners. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
  return made;
}

/** Sets the text where it differs, so that nothing is laid out or read aloud again for nothing. */
export function say(where: Element, text: string): void {
  if (where.textContent !== text) where.textContent = text;
}

export function byId(id: string): HTMLElement {
  return document.getElementById(id)!;
}

/** A list of terms and what they are, whose values change. */
export class Figures {
  readonly list = element("dl", { class: "figures" });
  private values = new Map<string, HTMLElement>();

  set(term: string, value: string, hint?: string): void {
    let at = this.values.get(term);
    if (!at) {
      at = element("dd");
      this.values.set(term, at);
      this.list.append(element("div", {}, element("dt", {}, term), at));
    }
    say(at, value);
    if (hint !== undefined && at.title !== hint) at.title = hint;
  }
}

/** Of the page. Pictures go by it, so that their letters are large where the browser's are. */
export function fontSize_px(): number {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

const ruler = document.createElement("canvas").getContext("2d")!;

/** Measures how wide texts are in a font. */
export function measureIn(font: string): (text: string) => number {
  return (text) => {
    ruler.font = font;
    return ruler.measureText(text).width;
  };
}
