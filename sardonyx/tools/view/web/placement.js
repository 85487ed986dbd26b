// Which kernel computes each node, what else is in it, and why it ends where it does.

class PlacementView {
  constructor() {
    this.table = new Table([
      { name: "node", width: 330, of: (r) => r.node || "(planner)" },
      { name: "operator", width: 150, of: (r) => r.operator },
      { name: "runs on", width: 190, of: (r) => r.provider || "no kernel" },
      { name: "call", width: 75, of: (r) => r.command < 0 ? Infinity : r.command, number: true, text: (r) => r.command < 0 ? "" : `${r.command}` },
      { name: "kernel", width: 190, of: (r) => r.kernel },
      { name: "nodes in it", width: 120, of: (r) => r.peers.length, number: true, text: (r) => r.kernel ? `${r.peers.length}` : "" },
      { name: "plan", width: 90, of: (r) => r.plan },
      { name: "remarks", width: 620, of: (r) => r.remarks },
    ], { sort: 3, id: "placement", chosen: (row) => this.show(row) });
    this.table.falling = false;
    this.details = element("div", { id: "node" });
    this.counts = element("div", { class: "bar quiet", id: "placed" });
    this.lines = element("pre", { id: "explain" });
    this.element = element("section", {}, this.counts, this.table.element, this.details, this.lines);
  }

  update(state) {
    const p = state.profile;
    if (p !== this.profile) this.take(p);
    const wanted = state.filter.trim().toLowerCase();
    this.table.set(this.rows.filter((r) => !wanted
      || `${r.node}\n${r.operator}\n${r.kernel}`.toLowerCase().includes(wanted)));
  }

  take(p) {
    this.profile = p;
    const columns = p.placement, calls = new Map();
    this.rows = columns.node.map((_, k) => {
      const row = {};
      for (const key of Object.keys(columns)) row[key] = columns[key][k];
      const call = `${row.plan}\n${row.command}\n${row.command < 0 ? row.kernel : ""}`;
      if (row.kernel && !calls.has(call)) calls.set(call, []);
      row.peers = row.kernel ? calls.get(call) : [];
      row.peers.push(row.node);
      return row;
    });
    const places = new Map();
    for (const row of this.rows) {
      const name = row.provider || "no kernel";
      places.set(name, (places.get(name) ?? 0) + 1);
    }
    const counts = [...places].map(([name, count]) => `${name}: ${count} nodes`);
    this.counts.replaceChildren(...[`${calls.size} kernel calls`, ...counts].map((textContent) =>
      element("span", { textContent })));
    this.lines.textContent = p.explain.join("\n");
    this.lines.hidden = !p.explain.length;
    this.details.replaceChildren();
  }

  show(row) {
    this.details.replaceChildren(facts([["node", row.node], ["operator", row.operator],
      ["runs on", row.provider || "no kernel"], ["kernel", row.kernel],
      ["computed together", row.peers.join(", ")], ...row.remarks.split("; ").map((r) => ["", r])
        .filter((r) => r[1]).map((r) => ["remark", r[1]])]));
  }
}
