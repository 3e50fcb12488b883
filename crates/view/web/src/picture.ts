// Shared by the two pictures: a canvas that fits its place and the screen's pixels. It is drawn
// only while it can be seen. Wheel, keys and buttons zoom and hold it.

import { element } from "./dom.js";
import { onSchemeChange } from "./colours.js";

export interface Controls {
  zoom(factor: number, x: number, y: number): void;
  pan(steps: number): void;
  /** Up and down; where there is none, both move the picture sideways. */
  panRows?(steps: number): void;
  reset(): void;
  /** Describes a point. */
  at(x: number, y: number): string;
  /** The whole picture, in words. */
  inWords(): string;
}

/** Between two pictures, for those who asked for less motion. */
const CALM_MS = 1000;
/** How often the words for screen readers are renewed. */
const WORDS_MS = 5000;

/** Of the window: who asks for it in a frame has the page laid out for it. */
let innerHeight_px = window.innerHeight;
addEventListener("resize", () => (innerHeight_px = window.innerHeight));

/** So high that the jobs below begin on the same screen. */
export function pictureHeight(): number {
  return Math.round(Math.min(420, Math.max(180, innerHeight_px * 0.3)));
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export abstract class Picture {
  readonly section: HTMLElement;
  protected readonly canvas = element("canvas", { tabindex: 0, role: "img" });
  protected readonly context: CanvasRenderingContext2D;
  protected width = 0;
  protected height = 0;
  protected ratio = 1;
  protected held = false;
  /** How wide its place is. */
  private available = 0;
  private readonly holdButton: HTMLButtonElement;
  private readonly pointed = element("p", { class: "pointed" }, "");
  private readonly words = element("details", { class: "words" });
  private readonly wording = element("p");
  private isSeen = false;
  private isGone = false;
  private drawn_ms = -Infinity;
  private worded_ms = -Infinity;
  private pointer: [number, number] | undefined;

  constructor(private readonly title: string, id: string, about: string) {
    this.context = this.canvas.getContext("2d", { alpha: false })!;
    this.canvas.setAttribute("aria-label", title);
    const button = (text: string, label: string, press: () => void) =>
      element("button", { type: "button", "aria-label": `${label} (${title})`, title: label, onclick: press }, text);
    this.holdButton = button("Hold", "Hold the picture", () => this.hold(!this.held));
    this.holdButton.setAttribute("aria-pressed", "false");
    const middle = (factor: number) => () => this.controls().zoom(factor, this.width / 2, this.height / 2);
    const tools = element(
      "div",
      { class: "tools" },
      button("+", "Zoom in", middle(1.5)),
      button("−", "Zoom out", middle(1 / 1.5)),
      button("Whole", "Show the whole", () => this.controls().reset()),
      this.holdButton,
    );
    this.words.append(element("summary", {}, "In words"), this.wording);
    this.section = element(
      "section",
      { class: `picture ${id}`, "aria-labelledby": `${id}-title` },
      element("div", { class: "head" }, element("h2", { id: `${id}-title` }, title), tools),
      element("p", { class: "quiet about" }, about),
      element("div", { class: "frame" }, this.canvas),
      this.pointed,
      this.words,
    );
    this.listen();
  }

  protected abstract controls(): Controls;
  /** Draws the picture of this moment. */
  protected abstract draw(): void;
  /** How high it wants to be in its width. */
  protected abstract wantedHeight(): number;
  /** Nothing that was drawn before holds any more. */
  protected abstract forget(): void;

  /** Ends it: it is not in the page any more. */
  close(): void {
    this.isGone = true;
  }

  protected hold(held: boolean): void {
    this.held = held;
    this.holdButton.setAttribute("aria-pressed", String(held));
    this.holdButton.textContent = held ? "Go on" : "Hold";
  }

  private listen(): void {
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        // A wheel scrolls the page unless it is meant for the picture.
        if (!event.ctrlKey && document.activeElement !== this.canvas) return;
        event.preventDefault();
        const box = this.canvas.getBoundingClientRect();
        const factor = Math.exp(-event.deltaY / 300);
        this.controls().zoom(factor, event.clientX - box.left, event.clientY - box.top);
      },
      { passive: false },
    );
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      this.pointer = [event.clientX - box.left, event.clientY - box.top];
    });
    this.canvas.addEventListener("pointerleave", () => (this.pointer = undefined));
    this.canvas.addEventListener("keydown", (event) => {
      const done = this.key(event.key);
      if (done && !event.ctrlKey && !event.metaKey && !event.altKey) event.preventDefault();
    });
    const place = this.canvas.parentElement!;
    new ResizeObserver(() => {
      this.available = place.clientWidth;
      this.fit();
    }).observe(place);
    new IntersectionObserver(([entry]) => {
      this.isSeen = entry!.isIntersecting;
    }).observe(this.canvas);
    onSchemeChange(() => this.forget());
    const next = (now: number) => {
      if (this.isGone) return;
      this.tick(now);
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
  }

  private key(key: string): boolean {
    const controls = this.controls();
    const [x, y] = this.pointer ?? [this.width / 2, this.height / 2];
    switch (key) {
      case "+":
      case "=":
        controls.zoom(1.5, x, y);
        return true;
      case "-":
        controls.zoom(1 / 1.5, x, y);
        return true;
      case "0":
        controls.reset();
        return true;
      case "ArrowLeft":
        controls.pan(-1);
        return true;
      case "ArrowRight":
        controls.pan(1);
        return true;
      case "ArrowUp":
      case "ArrowDown": {
        const steps = key === "ArrowUp" ? -1 : 1;
        if (controls.panRows) controls.panRows(steps);
        else controls.pan(steps);
        return true;
      }
      case " ":
        this.hold(!this.held);
        return true;
      default:
        return false;
    }
  }

  protected fit(): void {
    const width = this.available;
    const height = this.wantedHeight();
    const ratio = window.devicePixelRatio || 1;
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    [this.width, this.height, this.ratio] = [width, height, ratio];
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.canvas.style.height = `${height}px`;
    this.forget();
  }

  /** Says what is drawn, for who looks at the page as text. */
  protected note(name: string, value: string): void {
    if (this.canvas.dataset[name] !== value) this.canvas.dataset[name] = value;
  }

  private tick(now: number): void {
    if (!this.isSeen) return;
    if (calm.matches && now - this.drawn_ms < CALM_MS) return;
    this.drawn_ms = now;
    this.fit();
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.draw();
    const pointed = this.pointer ? this.controls().at(...this.pointer) : "";
    if (this.pointed.textContent !== pointed) this.pointed.textContent = pointed;
    if (now - this.worded_ms > WORDS_MS || (this.words.open && now - this.worded_ms > CALM_MS)) {
      this.worded_ms = now;
      const words = this.controls().inWords();
      this.canvas.setAttribute("aria-label", `${this.title}. ${words}`);
      this.wording.textContent = words;
    }
  }
}
