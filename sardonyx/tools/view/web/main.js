// Tabs, and what all of them share: the profile, the runs, the filter.

const began = performance.now();
const DATA = JSON.parse(document.getElementById("data").textContent);
const profiles = DATA.profiles.map((part) => new Profile(part));
const state = { profile: profiles[0], run: ALL_RUNS, filter: "" };
const views = {
  operators: new TreemapView(), timeline: new TimelineView(), memory: new MemoryView(),
  placement: new PlacementView(),
};
if (DATA.comparison) views.comparison = new ComparisonView(DATA.comparison, profiles);
let current = null;

function summary() {
  const p = state.profile, runs = p.runs.length;
  const each = p.runs.map((r) => r.duration).sort((a, b) => a - b);
  const failed = p.runs.filter((r) => r.error);
  const parts = [];
  if (runs) {
    parts.push(`${runs} runs: fastest ${duration(each[0])}, median ${duration(each[runs >> 1])},`
      + ` slowest ${duration(each.at(-1))}`);
  }
  if (failed.length) parts.push(`${failed.length} failed: ${failed[0].error}`);
  return [parts.join("; "), ...p.remarks].filter(Boolean).join("\n");
}

function show(name) {
  current = name;
  for (const button of document.getElementById("tabs").children)
    button.setAttribute("aria-selected", button.dataset.name === name);
  document.getElementById("views").replaceChildren(views[name].element);
  tip.hide();
  views[name].update(state);
}

function takeProfile(number) {
  state.profile = profiles[number];
  state.run = ALL_RUNS;
  const p = state.profile;
  document.getElementById("title").textContent = p.title;
  document.getElementById("summary").textContent = summary();
  const runs = [["all", ALL_RUNS]];
  if (p.runs.length > 1) runs.push(["without the first", LATER_RUNS]);
  p.runs.slice(0, 500).forEach((r, k) => runs.push([`${k + 1}: ${duration(r.duration)}`, k]));
  document.getElementById("run").replaceChildren(...runs.map(([textContent, value]) =>
    element("option", { textContent, value })));
}

for (const name of Object.keys(views)) {
  const button = element("button", { textContent: name });
  button.dataset.name = name;
  button.addEventListener("click", () => show(name));
  document.getElementById("tabs").append(button);
}
const which = document.getElementById("which");
which.append(...profiles.map((p, k) =>
  element("option", { value: k, textContent: profiles.length > 1 ? `${"AB"[k]}: ${p.title}` : p.title })));
document.getElementById("which-label").hidden = profiles.length < 2;
which.addEventListener("change", () => { takeProfile(Number(which.value)); show(current); });
document.getElementById("run").addEventListener("change", (event) => {
  state.run = Number(event.target.value);
  show(current);
});
let waiting = 0;
document.getElementById("filter").addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    state.filter = event.target.value;
    views[current].update(state);
  }, 120);
});
addEventListener("resize", () => { if (current === "timeline") views.timeline.draw(); });
takeProfile(0);
show(DATA.comparison ? "comparison" : state.profile.count ? "operators" : "placement");
document.body.dataset.ready = String(Math.round(performance.now() - began));
