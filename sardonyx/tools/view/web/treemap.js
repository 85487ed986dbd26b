// Where time goes: operators, in them nodes, as areas. And the same as a table of calls.

/** So many areas are drawn; of the others each operator shows the sum. */
const MOST_LEAVES = 300;
/** Characters of a name that stays as it is, and of a line of others. */
const MOST_LABEL = 18, LINE_LENGTH = 16;
const KINDS = [["nodes (processor's view)", NODE], ["kernels (threads, GPU's view)", KERNEL]];
const LEVELS = ["operator, node", "operator, kernel", "node"];

/** A name in an area: without what its neighbours begin with, in lines that are short. */
function lines(label, path) {
  const text = label.length > MOST_LABEL ? label.slice(path) : label;
  if (text.length <= LINE_LENGTH) return plain(text);
  const short = abridged(text, 2 * LINE_LENGTH);
  const slash = short.lastIndexOf("/", LINE_LENGTH) + 1;
  const end = slash > LINE_LENGTH / 2 ? slash : LINE_LENGTH;
  return `${plain(short.slice(0, end))}<br>${plain(short.slice(end))}`;
}

class TreemapView {
  constructor() {
    this.kind = NODE;
    this.level = 0;
    this.kinds = choice("kind", KINDS.map((k) => k[0]), (k) => {
      this.kind = KINDS[k][1];
      this.update();
    });
    const levels = choice("level", LEVELS, (k) => { this.level = k; this.update(); });
    this.remark = element("span", { class: "quiet" });
    this.chart = element("div", { class: "chart", id: "treemap" });
    this.chart.style.height = "460px";
    this.details = element("div", { id: "details" });
    const ms = (name, of) => ({ name, of, width: 110, number: true, text: (r) => milliseconds(of(r)) });
    const us = (name, of) => ({ name, of, width: 100, number: true, text: (r) => (of(r) / 1e3).toFixed(2) });
    const texts = (key) => (r) => this.profile.texts[this.profile.commands[key][r.command]];
    this.table = new Table([
      { name: "name", width: 330, of: texts("name") },
      { name: "operator", width: 150, of: texts("operator") },
      { name: "calls", width: 85, of: (r) => r.count, number: true },
      ms("total ms", (r) => r.ns), us("mean µs", (r) => r.ns / r.count),
      us("least µs", (r) => r.least), us("most µs", (r) => r.most),
      { name: "share", width: 90, of: (r) => r.ns, number: true, text: (r) => this.share(r.ns) },
      { name: "rate", width: 115, of: (r) => this.rate(r), number: true, text: (r) => this.rateText(r) },
      { name: "nodes", width: 90, of: (r) => this.profile.commands.nodes[r.command].length, number: true },
      { name: "kernel", width: 200, of: texts("kernel") },
      { name: "provider", width: 180, of: texts("provider") },
      { name: "inputs", width: 260, of: texts("reads") },
      { name: "outputs", width: 200, of: texts("writes") },
    ], { sort: 3, id: "calls", chosen: (row) => this.show(row.command) });
    this.element = element("section", {},
      element("div", { class: "bar" }, this.kinds, levels, this.remark),
      this.chart, this.details, element("h2", { textContent: "Calls" }), this.table.element);
  }

  share(ns) { return this.whole ? `${(100 * ns / this.whole).toFixed(1)} %` : ""; }

  rate(row) {
    const work = this.profile.commands.operations[row.command] * row.count;
    return row.ns ? work / row.ns : 0;
  }

  rateText(row) {
    const rate = this.rate(row);
    if (rate >= 1000) return `${(rate / 1000).toFixed(2)} TFLOP/s`;
    return rate ? `${rate.toFixed(1)} GFLOP/s` : "";
  }

  show(command) {
    const p = this.profile, c = p.commands, text = (key) => p.texts[c[key][command]];
    this.details.replaceChildren(facts([
      ["name", text("name")], ["operator", text("operator")], ["kernel", text("kernel")],
      ["provider", text("provider")], ["nodes in it", c.nodes[command].map((n) => p.texts[n]).join(", ")],
      ["inputs", text("reads")], ["outputs", text("writes")],
      ["bytes", c.written_bytes[command] || c.read_bytes[command]
        ? `${bytes(c.read_bytes[command])} read, ${bytes(c.weight_bytes[command])} of weights,`
          + ` ${bytes(c.written_bytes[command])} written` : ""],
      ["launched by", c.owner[command] >= 0 ? p.texts[c.name[c.owner[command]]] : ""],
    ]));
  }

  update(state = this.state) {
    this.state = state;
    this.profile = state.profile;
    const p = this.profile;
    const rows = p.totals(this.kind, state.run, p.matching(state.filter));
    this.whole = rows.reduce((sum, row) => sum + row.ns, 0);
    this.table.set(rows);
    this.details.replaceChildren();
    this.remark.textContent = rows.length ? `${duration(this.whole)} in ${p.chosenRuns(state.run)} runs`
      : this.kind === KERNEL ? "the profile has no such events" : "no call fits";
    this.draw(rows);
  }

  draw(rows) {
    const p = this.profile, c = p.commands, groups = new Map();
    for (const row of rows) {
      const operator = p.texts[c.operator[row.command]] || "(none)";
      const inner = p.texts[(this.level === 1 ? c.kernel : c.name)[row.command]];
      const outer = this.level === 2 ? inner : operator;
      if (!groups.has(outer)) groups.set(outer, { operator, leaves: new Map() });
      const leaves = groups.get(outer).leaves, key = this.level === 2 ? "" : inner;
      const leaf = leaves.get(key) ?? { ns: 0, count: 0, command: row.command };
      leaf.ns += row.ns;
      leaf.count += row.count;
      leaves.set(key, leaf);
    }
    const ids = [], labels = [], parents = [], values = [], shades = [], data = [];
    const add = (id, label, parent, value, shade, about) => {
      ids.push(id); labels.push(about.path === undefined ? plain(abridged(label, 50)) : lines(label, about.path)); parents.push(parent);
      values.push(value); shades.push(shade); data.push(about);
    };
    add("r", p.title, "", this.whole, "#ffffff", { label: p.title, ns: this.whole, count: 0 });
    let number = 0;
    const outers = [...groups].map(([label, g]) => {
      const leaves = [...g.leaves].sort((a, b) => b[1].ns - a[1].ns);
      return { label, operator: g.operator, leaves, ns: leaves.reduce((s, l) => s + l[1].ns, 0) };
    }).sort((a, b) => b.ns - a.ns);
    const drawn = new Set(outers.flatMap((o) => o.leaves.map((l) => l[1]))
      .sort((a, b) => b.ns - a.ns).slice(0, MOST_LEAVES));
    for (const outer of outers) {
      if (this.level === 2) {
        const [, leaf] = outer.leaves[0];
        if (drawn.has(leaf))
          add(`g${number++}`, outer.label, "r", leaf.ns, color(outer.operator),
            { label: outer.label, path: 0, ...leaf });
        continue;
      }
      const id = `g${number++}`, shade = color(outer.operator);
      const calls = outer.leaves.reduce((s, l) => s + l[1].count, 0);
      add(id, outer.label, "r", outer.ns, shade, { label: outer.label, ns: outer.ns, count: calls });
      const path = commonPath(outer.leaves.map((l) => l[0])).length;
      const shown = outer.leaves.filter((l) => drawn.has(l[1]));
      shown.forEach(([label, leaf], k) =>
        add(`${id}.${k}`, label, id, leaf.ns, lighter(shade, (k % 5) * 0.09), { label, path, ...leaf }));
      const rest = outer.leaves.slice(shown.length);
      if (rest.length && shown.length) {
        const ns = rest.reduce((s, l) => s + l[1].ns, 0), label = `${rest.length} more`;
        add(`${id}.rest`, label, id, ns, shade, { label, ns, count: 0 });
      }
    }
    this.data = data;
    this.numbers = new Map(ids.map((id, k) => [id, k]));
    const trace = {
      type: "treemap", ids, labels, parents, values, branchvalues: "total",
      marker: { colors: shades, line: { width: 1, color: "#fff" } }, tiling: { pad: 1 },
      texttemplate: "%{label}<br>%{percentRoot:.1%}", hoverinfo: "none", sort: true,
      pathbar: { visible: true, thickness: 22, textfont: { color: "#1c2430" } },
      textfont: { color: ids.map((id) => id === "r" ? "#1c2430" : "#ffffff") },
    };
    const layout = { margin: { l: 0, r: 0, t: 24, b: 0 }, font: FONT,
      uniformtext: { minsize: 10, mode: "hide" } };
    Plotly.react(this.chart, [trace], layout, { ...CHART, displayModeBar: false });
    if (!this.listens) this.listen();
  }

  listen() {
    this.listens = true;
    const about = (event) => this.data[this.numbers.get(event.points[0].id)];
    this.chart.on("plotly_hover", (event) => {
      const it = about(event);
      if (!it) return;
      const each = it.count ? `\n${it.count} calls, ${duration(it.ns / it.count)} each` : "";
      tip.show(`${it.label}\n${duration(it.ns)}, ${this.share(it.ns)}${each}`, event.event);
    });
    this.chart.on("plotly_unhover", () => tip.hide());
    this.chart.on("plotly_treemapclick", (event) => {
      tip.hide();
      const it = about(event);
      if (it?.command !== undefined) this.show(it.command);
    });
  }
}
