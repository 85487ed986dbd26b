// What the page shows, out of its data block. Columns become typed arrays.

const SESSION = 0, NODE = 1, KERNEL = 2;
const ALL_RUNS = -1, LATER_RUNS = -2;

class Profile {
  constructor(part) {
    const trace = part.trace, events = trace.events;
    this.title = trace.title;
    this.texts = trace.texts;
    this.commands = trace.commands;
    this.lanes = trace.lanes.map(([name, device]) => ({ name: this.texts[name], device: !!device }));
    this.plans = trace.plans.map(([plan, sizes, buffers]) =>
      ({ plan, sizes: this.texts[sizes], buffers }));
    this.runs = trace.runs.map(([start, duration, plan, error, sizes]) =>
      ({ start, duration, plan, error: this.texts[error], sizes: this.texts[sizes] }));
    this.arena = trace.arena;
    this.remarks = trace.remarks;
    this.explain = part.explain;
    this.placement = part.placement;
    this.count = events.kind.length;
    this.kind = Uint8Array.from(events.kind);
    this.start = new Float64Array(this.count);
    this.duration = Float64Array.from(events.duration);
    this.what = Int32Array.from(events.what);
    this.lane = Int32Array.from(events.lane);
    this.depth = Int32Array.from(events.depth);
    this.inner = Float64Array.from(events.inner);
    this.memory = Float64Array.from(events.memory);
    this.run = new Int32Array(this.count);
    let now = 0, run = -1;
    this.end = 0;
    for (let k = 0; k < this.count; k++) {
      now += events.start[k];
      this.start[k] = now;
      while (run + 1 < this.runs.length && this.runs[run + 1].start <= now) run++;
      // What is done between runs belongs to none.
      const held = run >= 0 && now <= this.runs[run].start + this.runs[run].duration;
      this.run[k] = held || this.kind[k] === KERNEL ? run : -1;
      this.end = Math.max(this.end, now + this.duration[k]);
    }
    this.hasRuns = this.runs.length > 0;
  }

  name(event) {
    const what = this.what[event];
    return this.texts[this.kind[event] === SESSION ? what : this.commands.name[what]];
  }

  operator(event) {
    if (this.kind[event] === SESSION) return "";
    return this.texts[this.commands.operator[this.what[event]]];
  }

  /** Whether an event is in the chosen runs. */
  inRun(event, chosen) {
    if (chosen === ALL_RUNS || !this.hasRuns) return true;
    return chosen === LATER_RUNS ? this.run[event] > 0 : this.run[event] === chosen;
  }

  /** How many runs are chosen; at least one, so that it can divide. */
  chosenRuns(chosen) {
    if (chosen >= 0) return 1;
    return Math.max(1, this.runs.length - (chosen === LATER_RUNS ? 1 : 0));
  }

  /** One truth value for each command: whether the filter's text is in its names. */
  matching(filter) {
    const wanted = filter.trim().toLowerCase(), c = this.commands;
    const hits = this.texts.map((text) => !wanted || text.toLowerCase().includes(wanted));
    return c.name.map((name, k) => hits[name] || hits[c.operator[k]] || hits[c.kernel[k]]
      || c.nodes[k].some((n) => hits[n]));
  }

  /** Calls, nanoseconds and extremes of each command, of one kind of event. */
  totals(kind, chosen, matching) {
    const found = new Map();
    for (let k = 0; k < this.count; k++) {
      const what = this.what[k];
      if (this.kind[k] !== kind || !matching[what] || !this.inRun(k, chosen)) continue;
      let held = found.get(what);
      if (!held) found.set(what, held = { command: what, count: 0, ns: 0, least: Infinity, most: 0 });
      const own = Math.max(0, this.duration[k] - this.inner[k]);
      held.count++;
      held.ns += own;
      held.least = Math.min(held.least, own);
      held.most = Math.max(held.most, own);
    }
    return [...found.values()];
  }
}
