// The labels of an axis of time, as the browser's locale writes moments: with hours of twelve or
// of twenty-four, and with its order of day and month.
//
// A label is a time of day. Where a day begins, and at the first label, the date stands below it.
// Steps of days have dates, with years below them. Ticks are so far apart that the longest of all
// such labels fits between them.

const HOUR_S = 3600;
const DAY_S = 24 * HOUR_S;

/** From a tick to the next, in seconds. */
export const STEPS_S = [
  ...[1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => 60 * minutes),
  ...[1, 2, 3, 4, 6, 12].map((hours) => HOUR_S * hours),
  ...[1, 2, 5, 10, 30, 90, 365, 1825, 7300].map((days) => DAY_S * days),
];

interface Kind {
  /** Its steps are so long, or longer. */
  from_s: number;
  line: Intl.DateTimeFormat;
  below: Intl.DateTimeFormat;
}

function kinds(): Kind[] {
  const written = (options: Intl.DateTimeFormatOptions) =>
    new Intl.DateTimeFormat(undefined, options);
  const day = written({ day: "numeric", month: "short" });
  return [
    { from_s: DAY_S, line: day, below: written({ year: "numeric" }) },
    { from_s: 60, line: written({ timeStyle: "short" }), below: day },
    { from_s: 0, line: written({ timeStyle: "medium" }), below: day },
  ];
}

/** Each hour of the day and each month of the year, with wide figures. */
const SAMPLES = Array.from({ length: 24 }, (_, at) => new Date(2028, at % 12, 28, at, 58, 58));

/** Labels of moments in seconds since the Unix epoch. */
export class TimeAxis {
  private readonly kinds = kinds();
  /** How wide the longest label of each kind is, with the room between it and the next. */
  private readonly rooms_px: number[];

  constructor(measure: (text: string) => number, between_px: number) {
    this.rooms_px = this.kinds.map(({ line, below }) => {
      const texts = SAMPLES.flatMap((date) => [line.format(date), below.format(date)]);
      return Math.ceil(Math.max(...texts.map(measure)) + between_px);
    });
  }

  /** The least that lies between two ticks where so many seconds are so wide. */
  space(span_s: number, wide_px: number): number {
    // A kind is that of the axis where its room leaves no step of a shorter kind.
    const at = this.kinds.findIndex(({ from_s }, kind) => {
      const shorter = Math.max(0, ...STEPS_S.filter((step_s) => step_s < from_s));
      return (this.rooms_px[kind]! / wide_px) * span_s > shorter;
    });
    return this.rooms_px[at] ?? this.widest();
  }

  /** The ticks from one moment to another: whole steps since a day began. */
  ticks(from_s: number, until_s: number, step_s: number): number[] {
    const from = new Date(from_s * 1000);
    const [year, month, day, zone_s] = [
      from.getFullYear(),
      from.getMonth(),
      from.getDate(),
      -60 * from.getTimezoneOffset(),
    ];
    const at = (tick: number) =>
      step_s <= HOUR_S
        ? (Math.floor((from_s + zone_s) / step_s) + tick) * step_s - zone_s
        : // By the calendar: a day on which clocks are changed has another length.
          new Date(year, month, day, 0, 0, tick * step_s).getTime() / 1000;
    const ticks = [];
    for (let tick = 0; at(tick) <= until_s; tick++) if (at(tick) >= from_s) ticks.push(at(tick));
    return ticks;
  }

  widest(): number {
    return Math.max(...this.rooms_px);
  }

  /** None where it would lie on the one before it, as where clocks are put forward. */
  labels(at_s: readonly number[], step_s: number, px_per_s: number): (string | null)[] {
    const at = this.kinds.findIndex(({ from_s }) => step_s >= from_s);
    const { line, below } = this.kinds[at]!;
    let [last_s, date] = [-Infinity, ""];
    return at_s.map((s) => {
      if ((s - last_s) * px_per_s < this.rooms_px[at]! - 1) return null;
      const moment = new Date(s * 1000);
      const label = line.format(moment);
      const before = date;
      [last_s, date] = [s, below.format(moment)];
      return date === before ? label : `${label}\n${date}`;
    });
  }
}
