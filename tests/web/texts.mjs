// Texts on canvases: where they are drawn, and which lie on each other or over an edge.

/** Runs in a page before its own scripts: each canvas keeps the texts that can be seen on it. */
export function recordTexts() {
  const drawing = CanvasRenderingContext2D.prototype;
  const { fillText, fillRect, clearRect } = drawing;
  const placed = (context, left, top, wide, high) => {
    const { a, d, e, f } = context.getTransform();
    return {
      left: a * left + e,
      top: d * top + f,
      right: a * (left + wide) + e,
      bottom: d * (top + high) + f,
    };
  };
  drawing.fillText = function (text, x, y, most = Infinity) {
    const size = this.measureText(text);
    const wide = Math.min(size.width, most);
    const left =
      x - { left: 0, start: 0, center: wide / 2, right: wide, end: wide }[this.textAlign];
    const [above, below] = [size.actualBoundingBoxAscent, size.actualBoundingBoxDescent];
    (this.canvas.texts ??= []).push({
      text,
      ...placed(this, left, y - above, wide, above + below),
    });
    fillText.call(this, text, x, y, ...(most === Infinity ? [] : [most]));
  };
  const covers = (draw) =>
    function (...box) {
      const over = this.canvas.texts?.length && placed(this, ...box);
      if (over) {
        this.canvas.texts = this.canvas.texts.filter(
          (it) =>
            it.left < over.left ||
            it.right > over.right ||
            it.top < over.top ||
            it.bottom > over.bottom,
        );
      }
      draw.apply(this, box);
    };
  drawing.fillRect = covers(fillRect);
  // A cleared area is cleared at its edges, too.
  drawing.clearRect = function (x, y, wide, high) {
    if (x === 0 && y === 0 && wide === this.canvas.width && high === this.canvas.height)
      this.canvas.texts = [];
    clearRect.call(this, x, y, wide, high);
  };

  globalThis.textsOn = (canvas) => canvas.texts ?? [];
  /** In words; a pixel is due to rounding. */
  globalThis.collisions = (canvas) => {
    const texts = globalThis.textsOn(canvas);
    const cut = texts.filter(
      ({ left, right, top, bottom }) =>
        left < -1 || top < -1 || right > canvas.width + 1 || bottom > canvas.height + 1,
    );
    const found = cut.map(({ text }) => `${text} is cut`);
    texts.forEach((a, at) => {
      for (const b of texts.slice(at + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 1) found.push(`${a.text} and ${b.text} lie on each other`);
      }
    });
    return found;
  };
}
