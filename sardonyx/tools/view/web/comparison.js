// Two profiles: nodes that either side computes together are one row.

/** So many rows have bars. */
const MOST_BARS = 20;

class ComparisonView {
  constructor(comparison, profiles) {
    this.names = profiles.map((p, k) => profiles[0].title === profiles[1].title
      ? `${"AB"[k]}: ${p.title}` : p.title);
    const us = (name, key) => ({ name, width: 150, number: true, of: (r) => r[key], text: (r) => (r[key] / 1e3).toFixed(2) });
    const worse = (r) => r.second > r.first ? "more" : r.second < r.first ? "less" : "";
    const ratio = (r) => r.first ? r.second / r.first : Infinity;
    this.table = new Table([
      { name: "name", width: 360, of: (r) => r.name },
      { name: "operators", width: 190, of: (r) => r.operators },
      { name: "nodes", width: 90, number: true, of: (r) => r.nodes },
      us("A µs", "first"), us("B µs", "second"),
      { name: "B - A µs", width: 130, number: true, of: (r) => Math.abs(r.second - r.first), mark: worse,
        text: (r) => ((r.second - r.first) / 1e3).toFixed(2) },
      { name: "B / A", width: 90, number: true, of: ratio, text: (r) => Number.isFinite(ratio(r)) ? ratio(r).toFixed(2) : "only B" },
      { name: "calls A", width: 95, number: true, of: (r) => r.first_calls },
      { name: "calls B", width: 95, number: true, of: (r) => r.second_calls },
    ], { sort: 5, id: "parts" });
    this.all = comparison.name.map((_, k) => {
      const row = {};
      for (const key of Object.keys(comparison)) row[key] = comparison[key][k];
      return row;
    });
    this.chart = element("div", { class: "chart", id: "comparison" });
    const sum = (key) => this.all.reduce((s, r) => s + r[key], 0), a = sum("first"), b = sum("second");
    const text = `A = ${this.names[0]}: ${duration(a)} a run in kernels. B = ${this.names[1]}:`
      + ` ${duration(b)}. B takes ${a ? (b / a).toFixed(3) : "?"} times as long.`
      + " Times are those of a run on average; the first of several runs is left out.";
    this.element = element("section", {}, element("p", { id: "verdict", textContent: text }),
      this.chart, this.table.element);
  }

  update(state) {
    const wanted = state.filter.trim().toLowerCase();
    const rows = this.all.filter((r) => `${r.name}\n${r.operators}`.toLowerCase().includes(wanted));
    this.table.set(rows);
    const shown = rows.slice(0, MOST_BARS).reverse();
    // Bars are drawn from below: A comes last, so that it is above B.
    const bars = [["second", 1], ["first", 0]].map(([key, k]) => ({
      type: "bar", orientation: "h", name: plain(shorter(this.names[k], 40)), hoverinfo: "x",
      y: shown.map((_, n) => n), x: shown.map((r) => r[key] / 1e3), marker: { color: PALETTE[k] },
    }));
    const layout = {
      height: 90 + 26 * shown.length, font: FONT, margin: { l: 330, r: 16, t: 10, b: 40 },
      xaxis: { title: { text: "µs in a run: where they differ most" } },
      yaxis: { tickvals: shown.map((_, n) => n), fixedrange: true,
        ticktext: shown.map((r) => plain(shorter(r.name, 48))) },
      legend: { orientation: "h", traceorder: "reversed", y: 1.02, yanchor: "bottom" },
    };
    Plotly.react(this.chart, bars, layout, { ...CHART, displayModeBar: false });
  }
}
