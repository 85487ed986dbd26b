// Small parts of the page. Texts are set as text, never as HTML.

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key === "style") Object.assign(made.style, value);
    else made[key] = value;
  }
  made.append(...children);
  return made;
}

/** Text for the charts' library, which takes some tags and entities for its own. */
function plain(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;")
    .replace(/\$/g, "\u200b$");
}

function shorter(text, most) {
  return text.length <= most ? text : "…" + text.slice(1 - most);
}

/** The path that all names begin with, as far as its last slash. */
function commonPath(names) {
  let [common = "", ...others] = names;
  for (const name of others) while (!name.startsWith(common)) common = common.slice(0, -1);
  return common.slice(0, common.lastIndexOf("/") + 1);
}

/** A text without its middle. */
function abridged(text, most) {
  const head = most >> 1;
  return text.length <= most ? text : `${text.slice(0, head)}…${text.slice(head + 1 - most)}`;
}

function milliseconds(ns, digits = 3) { return (ns / 1e6).toFixed(digits); }

function duration(ns) {
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
  return `${(ns / 1e3).toFixed(ns < 1e4 ? 2 : 1)} µs`;
}

function bytes(count) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  return `${count} B`;
}

const PALETTE = ["#3b76d6", "#e08a2c", "#3a9c63", "#c9483f", "#8a63c4", "#96694f", "#d46fae",
  "#7a8594", "#b3a52b", "#2fa6b8", "#5a62b8", "#a8446b", "#6f9c3a", "#cf7358", "#4a8f8c"];
const colors = new Map();

/** The colour of an operator: the first ones that ask get colours that differ most. */
function color(operator) {
  if (!colors.has(operator)) colors.set(operator, PALETTE[colors.size % PALETTE.length]);
  return colors.get(operator);
}

const tip = {
  show(text, event) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    const right = event.clientX + 16 + box.offsetWidth > innerWidth;
    const below = event.clientY + 16 + box.offsetHeight > innerHeight;
    box.style.left = `${Math.max(0, event.clientX + (right ? -box.offsetWidth - 10 : 14))}px`;
    box.style.top = `${Math.max(0, event.clientY + (below ? -box.offsetHeight - 10 : 14))}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

/** A colour made lighter: 0 is as it is, 1 is white. */
function lighter(hex, part) {
  const mixed = [1, 3, 5].map((k) => {
    const own = parseInt(hex.slice(k, k + 2), 16);
    return Math.round(own + (255 - own) * part).toString(16).padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}

/** A choice among texts; `chosen` gets the number of the one that was chosen. */
function choice(id, texts, chosen) {
  const made = element("select", { id });
  made.append(...texts.map((text, k) => element("option", { value: k, textContent: text })));
  made.addEventListener("change", () => chosen(Number(made.value)));
  return made;
}

/** Names and values, those that are empty left out. */
function facts(pairs) {
  const list = element("dl");
  for (const [name, value] of pairs) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
  }
  return list;
}

/** What charts' buttons do; the library's others would leave the page. */
const CHART = { displaylogo: false, responsive: true,
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };
const FONT = { family: 'system-ui, "DejaVu Sans", sans-serif', size: 12 };
