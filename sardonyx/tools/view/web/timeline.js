// Events by thread and stream. The wheel zooms, dragging moves, a click tells all about an event.
//
// Only what is in sight is drawn, and neighbours that are narrower than a pixel become one box: so
// there are never more boxes than pixels, however many events there are.

const LINE_HEIGHT = 20, LEFT = 130, RIGHT = 16, TOP = 34, BOTTOM = 40;
const GREY = "#dfe3e8";

class TimelineView {
  constructor() {
    this.chart = element("div", { class: "chart", id: "timeline" });
    this.details = element("div", { id: "event" });
    const whole = element("button", { textContent: "whole", id: "whole" });
    whole.addEventListener("click", () => this.zoom(0, this.profile.end));
    this.jump = choice("to-run", ["go to run"], (k) => {
      const run = this.profile.runs[k - 1];
      if (run) this.zoom(run.start - 0.02 * run.duration, run.start + 1.02 * run.duration);
    });
    this.remark = element("span", { class: "quiet" });
    this.element = element("section", {},
      element("div", { class: "bar" }, whole, this.jump, this.remark), this.chart, this.details);
    this.chart.addEventListener("mousemove", (event) => this.hover(event));
    this.chart.addEventListener("mouseleave", () => tip.hide());
    this.chart.addEventListener("click", (event) => this.click(event));
  }

  update(state) {
    if (state.profile !== this.profile) this.take(state.profile);
    this.state = state;
    const p = this.profile;
    this.matching = p.matching(state.filter);
    if (state.run >= 0 && state.run !== this.run && p.runs[state.run]) {
      const run = p.runs[state.run];
      this.range = [run.start - 0.02 * run.duration, run.start + 1.02 * run.duration];
    }
    this.run = state.run;
    this.draw();
  }

  take(profile) {
    const p = this.profile = profile;
    const depths = p.lanes.map(() => 1);
    for (let k = 0; k < p.count; k++)
      depths[p.lane[k]] = Math.max(depths[p.lane[k]], p.depth[k] + 1);
    // The lane with most in it (the caller's) comes first, devices come last.
    const order = p.lanes.map((_, k) => k)
      .sort((a, b) => p.lanes[a].device - p.lanes[b].device || depths[b] - depths[a] || a - b);
    this.base = [];
    this.ticks = [];
    this.lines = 0;
    for (const lane of order) {
      this.base[lane] = this.lines;
      this.ticks.push([this.lines + depths[lane] / 2, p.lanes[lane].name]);
      this.lines += depths[lane] + 0.4;
    }
    this.byLine = new Map();
    this.tints = p.commands.operator.map((o) => color(p.texts[o]));
    for (let k = 0; k < p.count; k++) {
      const line = this.base[p.lane[k]] + p.depth[k];
      if (!this.byLine.has(line)) this.byLine.set(line, []);
      this.byLine.get(line).push(k);
    }
    const last = p.runs.slice(0, 2).at(-1);
    this.range = last ? [last.start, last.start + last.duration] : [0, p.end || 1];
    this.jump.replaceChildren(...["go to run", ...p.runs.slice(0, 500).map((r, k) =>
      `run ${k + 1}: ${duration(r.duration)}`)].map((textContent, value) =>
      element("option", { textContent, value })));
    this.details.replaceChildren();
  }

  get width() { return Math.max(100, this.chart.clientWidth - LEFT - RIGHT); }

  zoom(from, to) {
    this.range = [from, Math.max(to, from + 10)];
    this.draw();
  }

  /** Boxes [from, to, line, event, count] in a range of time. */
  boxes(from, to, unit) {
    const p = this.profile, found = [];
    for (const [line, events] of this.byLine) {
      let box = null;
      for (const k of events) {
        const start = p.start[k], end = start + p.duration[k];
        if (end < from) continue;
        if (start > to) break;
        if (end - start >= 2 * unit) {
          if (box) found.push(box);
          found.push([start, end, line, k, 1]);
          box = null;
        } else if (box && start - box[1] < unit && box[1] - box[0] < 3 * unit) {
          box[1] = Math.max(box[1], end);
          box[4]++;
          if (p.duration[k] > p.duration[box[3]]) box[3] = k;
        } else {
          if (box) found.push(box);
          box = [start, Math.max(end, start + 0.7 * unit), line, k, 1];
        }
      }
      if (box) found.push(box);
    }
    return found;
  }

  tint(event) {
    const p = this.profile;
    if (p.kind[event] === SESSION) return this.state.filter ? GREY : "#b9c4d6";
    return this.matching[p.what[event]] ? this.tints[p.what[event]] : GREY;
  }

  draw() {
    const p = this.profile, [from, to] = this.range, unit = (to - from) / this.width;
    // As much again to both sides, so that there is something to see while it is moved.
    const boxes = this.boxes(from - (to - from), to + (to - from), unit);
    const paths = new Map(), texts = { x: [], y: [], text: [] };
    for (const [start, end, line, event] of boxes) {
      const tint = this.tint(event);
      if (!paths.has(tint)) paths.set(tint, { x: [], y: [] });
      const { x, y } = paths.get(tint), a = start / 1e6, b = end / 1e6;
      x.push(a, b, b, a, a, null);
      y.push(line + 0.06, line + 0.06, line + 0.94, line + 0.94, line + 0.06, null);
      const left = Math.max(start, from), room = (Math.min(end, to) - left) / unit / 7;
      if (room > 6 && texts.x.length < 400) {
        texts.x.push(left / 1e6);
        texts.y.push(line + 0.5);
        texts.text.push(plain(shorter(p.name(event), Math.floor(room))));
      }
    }
    Object.assign(this.chart.dataset, { boxes: boxes.length, from, to });
    const traces = [...paths].map(([fillcolor, { x, y }]) => ({
      type: "scatter", mode: "lines", line: { width: 0, simplify: false }, fill: "toself",
      fillcolor, x, y, hoverinfo: "skip",
    }));
    traces.push({ type: "scatter", mode: "text", textposition: "middle right", hoverinfo: "skip",
      textfont: { size: 11, color: "#10151c" }, ...texts });
    const layout = {
      height: Math.max(200, this.lines * LINE_HEIGHT + TOP + BOTTOM), font: FONT, showlegend: false,
      margin: { l: LEFT, r: RIGHT, t: TOP, b: BOTTOM }, dragmode: "pan", hovermode: false,
      xaxis: { range: [from / 1e6, to / 1e6], title: { text: "ms since profiling began" } },
      yaxis: { range: [this.lines, 0], fixedrange: true, showgrid: false, zeroline: false,
        tickvals: this.ticks.map((t) => t[0]), ticktext: this.ticks.map((t) => plain(t[1])) },
    };
    Plotly.react(this.chart, traces, layout, { ...CHART, scrollZoom: true });
    this.remark.textContent = `${duration(to - from)} of ${duration(p.end)},`
      + ` ${p.count} events; the wheel zooms, dragging moves`;
    if (!this.listens) this.listen();
  }

  listen() {
    this.listens = true;
    this.chart.on("plotly_relayout", (change) => {
      let [from, to] = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (change["xaxis.range"]) [from, to] = change["xaxis.range"];
      if (change["xaxis.autorange"]) this.zoom(0, this.profile.end);
      else if (from !== undefined) this.zoom(from * 1e6, to * 1e6);
    });
  }

  /** The event under the pointer; -1 for none. */
  at(event) {
    const box = this.chart.getBoundingClientRect(), [from, to] = this.range;
    const unit = (to - from) / this.width;
    const time = from + (event.clientX - box.left - LEFT) * unit;
    const high = box.height - TOP - BOTTOM;
    const y = (event.clientY - box.top - TOP) / high * this.lines;
    if (y < 0 || y > this.lines || event.clientX - box.left < LEFT) return -1;
    for (const [line, events] of this.byLine) {
      if (y < line || y >= line + 1) continue;
      const p = this.profile;
      let low = 0, past = events.length;
      while (low < past) {
        const middle = (low + past) >> 1;
        if (p.start[events[middle]] <= time + unit) low = middle + 1;
        else past = middle;
      }
      let best = -1;
      for (let k = low - 1; k >= 0 && k > low - 8; k--) {
        const it = events[k];
        if (p.start[it] + p.duration[it] >= time - unit
            && (best < 0 || p.duration[it] > p.duration[best])) best = it;
      }
      return best;
    }
    return -1;
  }

  hover(event) {
    const found = event.buttons ? -1 : this.at(event);
    if (found < 0) return tip.hide();
    const p = this.profile, operator = p.operator(found);
    tip.show(`${p.name(found)}\n${operator ? operator + ", " : ""}${duration(p.duration[found])}`, event);
  }

  click(event) {
    const found = this.at(event);
    if (found < 0) return;
    const p = this.profile, c = p.commands, what = p.what[found];
    const pairs = [["name", p.name(found)], ["begins at", duration(p.start[found])],
      ["takes", duration(p.duration[found])], ["on", p.lanes[p.lane[found]].name],
      ["run", p.run[found] >= 0 ? p.run[found] + 1 : ""]];
    if (p.kind[found] !== SESSION) {
      const text = (key) => p.texts[c[key][what]];
      pairs.push(["operator", text("operator")], ["kernel", text("kernel")],
        ["nodes in it", c.nodes[what].map((n) => p.texts[n]).join(", ")],
        ["inputs", text("reads")], ["outputs", text("writes")], ["provider", text("provider")],
        ["memory in use", p.memory[found] >= 0 ? bytes(p.memory[found]) : ""]);
    }
    this.details.replaceChildren(facts(pairs));
  }
}
