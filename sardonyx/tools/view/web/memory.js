// Memory of intermediate values: over time, and who holds it at one moment or in one plan.

/** So many holders have a colour of their own. */
const MOST_HOLDERS = 12;

class MemoryView {
  constructor() {
    this.chart = element("div", { class: "chart", id: "memory" });
    this.stack = element("div", { class: "chart", id: "holders-chart" });
    this.moment = element("p", { class: "quiet", id: "moment" });
    this.plans = choice("plan", [], (k) => this.drawPlan(k));
    this.about = element("div", { class: "bar" }, this.plans);
    this.table = new Table([
      { name: "bytes", width: 120, number: true, of: (r) => r[0], text: (r) => bytes(r[0]) },
      { name: "made by", width: 380, of: (r) => this.maker(r[1]) },
      { name: "last used by", width: 380, of: (r) => this.maker(r[2]) },
      { name: "from call", width: 90, number: true, of: (r) => r[1] },
      { name: "to call", width: 90, number: true, of: (r) => r[2] },
    ], { height: 300, id: "holders" });
    this.element = element("section", {}, this.chart, this.moment, this.table.element,
      element("h2", { textContent: "Who holds memory, call by call" }), this.about, this.stack);
  }

  update(state) {
    const p = this.profile = state.profile;
    this.events = [];
    for (let k = 0; k < p.count; k++)
      if (p.memory[k] >= 0 && p.inRun(k, state.run)) this.events.push(k);
    if (p !== this.taken) this.take(p);
    const first = this.events[0], last = this.events.at(-1);
    this.range = this.events.length ? [p.start[first], p.start[last] + p.duration[last]] : [0, 1];
    this.draw();
    let peak = -1;
    for (const k of this.events) if (peak < 0 || p.memory[k] > p.memory[peak]) peak = k;
    this.tell(peak);
  }

  take(p) {
    this.taken = p;
    this.makers = new Map();
    p.commands.name.forEach((name, k) => {
      if (p.commands.owner[k] < 0)
        this.makers.set(`${p.commands.plan[k]} ${p.commands.number[k]}`, p.texts[name]);
    });
    this.plans.replaceChildren(...p.plans.map((plan, k) => element("option",
      { value: k, textContent: `plan ${plan.plan}${plan.sizes ? ": " + plan.sizes : ""}` })));
    this.about.hidden = this.stack.hidden = !p.plans.length;
    this.plan = p.plans[0];
    if (p.plans.length) this.drawPlan(0);
  }

  maker(call) { return this.makers.get(`${this.plan?.plan} ${call}`) ?? `call ${call}`; }

  draw() {
    const p = this.profile, [from, to] = this.range;
    const width = Math.max(200, this.chart.clientWidth), unit = (to - from) / width;
    const x = [], y = [];
    let bucket = -1, least, most, latest;
    const flush = () => {
      if (bucket < 0) return;
      // The lowest and highest of a pixel, then what it ends with.
      for (const k of [least, most, latest]) { x.push(p.start[k] / 1e6); y.push(p.memory[k] / 1e6); }
    };
    for (const k of this.events) {
      const now = Math.floor((p.start[k] - from) / unit);
      if (now < -width || now > 2 * width) continue;
      if (now !== bucket) { flush(); bucket = now; least = most = k; }
      if (p.memory[k] < p.memory[least]) least = k;
      if (p.memory[k] > p.memory[most]) most = k;
      latest = k;
    }
    flush();
    const layout = {
      height: 300, font: FONT, margin: { l: 70, r: 16, t: 34, b: 40 }, dragmode: "pan",
      hovermode: false, showlegend: false,
      xaxis: { range: [from / 1e6, to / 1e6], title: { text: "ms since profiling began" } },
      yaxis: { rangemode: "tozero", title: { text: "MB in use" }, fixedrange: true },
    };
    const trace = { type: "scatter", mode: "lines", x, y, fill: "tozeroy",
      line: { shape: "hv", width: 1.2, color: PALETTE[0] } };
    Plotly.react(this.chart, [trace], layout, { ...CHART, scrollZoom: true });
    if (this.listens) return;
    this.listens = true;
    this.chart.on("plotly_relayout", (change) => {
      const [from, to] = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (change["xaxis.autorange"]) this.update({ profile: this.profile, run: ALL_RUNS });
      else if (from !== undefined) { this.range = [from * 1e6, to * 1e6]; this.draw(); }
    });
    this.chart.addEventListener("click", (event) => {
      const box = this.chart.getBoundingClientRect(), [from, to] = this.range;
      const time = from + (event.clientX - box.left - 70) / (box.width - 86) * (to - from);
      this.tell(this.events.findLast((k) => this.profile.start[k] <= time) ?? -1);
    });
  }

  /** Who holds memory while an event runs. */
  tell(event) {
    const p = this.profile;
    this.table.element.hidden = event < 0;
    if (event < 0) {
      this.moment.textContent = "The profile does not say what memory is in use.";
      return;
    }
    const run = p.runs[p.run[event]], call = p.commands.number[p.what[event]];
    const plan = p.plans.find((it) => run && it.plan === run.plan && it.sizes === run.sizes);
    const text = `${bytes(p.memory[event])} in use at ${milliseconds(p.start[event])} ms,`
      + ` while ${p.name(event)} runs; ${bytes(p.arena)} held at most. A click chooses another moment.`;
    this.moment.textContent = plan ? text : `${text} The profile does not say by whom.`;
    this.table.element.hidden = !plan;
    if (!plan) return;
    this.plan = plan;
    this.table.set(plan.buffers.filter(([size, first, last]) => size && first <= call && call <= last));
  }

  drawPlan(number) {
    const plan = this.plan = this.profile.plans[number];
    const calls = plan.buffers.reduce((most, b) => Math.max(most, b[2]), 0) + 1;
    const weight = ([size, first, last]) => size * (last - first + 1);
    const sorted = plan.buffers.filter((b) => b[0]).sort((a, b) => weight(b) - weight(a));
    const series = sorted.slice(0, MOST_HOLDERS).map((b) => [this.maker(b[1]), [b]]);
    if (sorted.length > MOST_HOLDERS)
      series.push([`${sorted.length - MOST_HOLDERS} others`, sorted.slice(MOST_HOLDERS)]);
    const traces = series.reverse().map(([name, buffers], k) => {
      const change = new Float64Array(calls + 1), y = new Array(calls);
      for (const [size, first, last] of buffers) { change[first] += size; change[last + 1] -= size; }
      for (let call = 0, sum = 0; call < calls; call++) y[call] = (sum += change[call]) / 1e6;
      return { type: "scatter", mode: "lines", stackgroup: "all", name: plain(shorter(name, 50)), y,
        line: { width: 0, shape: "hv" }, fillcolor: PALETTE[k % PALETTE.length], hoverinfo: "skip" };
    });
    const layout = { height: 340, font: FONT, margin: { l: 70, r: 16, t: 34, b: 40 },
      xaxis: { title: { text: "call in the plan" } }, yaxis: { title: { text: "MB" } },
      legend: { traceorder: "reversed" }, hovermode: false, showlegend: true };
    Plotly.react(this.stack, traces, layout, CHART);
  }
}
