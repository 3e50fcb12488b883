// The frame of the matrix of all hosts: which row is on at a moment. The same rule as in
// crates/schedule/src/matrix/frame.rs: the first slice of each hour (UTC) is the first of a frame,
// and rows run in the order of their numbers with the bits reversed.

const HOUR_NS = 3_600_000_000_000n;

/** The row that is on at a moment (UTC) where a frame has so many rows. */
export function rowAt(now_us: number, slice_ns: number, frame: number): number {
  const length = BigInt(slice_ns);
  const slice = (BigInt(Math.floor(now_us)) * 1000n) / length;
  // A slice belongs to the hour in which it begins.
  const hour = (slice * length) / HOUR_NS;
  const first = (hour * HOUR_NS + length - 1n) / length;
  return rowOf(frame, Number((slice - first) % BigInt(frame)));
}

/** The row at a place of the order: even rows before odd ones, and each half in the same order. */
export function rowOf(frame: number, place: number): number {
  let [rows, row, bit] = [frame, 0, 1];
  while (rows > 1) {
    const even = Math.ceil(rows / 2);
    if (place < even) rows = even;
    else [rows, place, row] = [rows - even, place - even, row + bit];
    bit *= 2;
  }
  return row;
}
