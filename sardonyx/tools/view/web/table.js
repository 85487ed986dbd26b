// A table of any length: it sorts, filters, and draws only the rows that are in sight.

const ROW_HEIGHT = 24;

class Table {
  /**
   * columns: {name, width, of(row), text(row)?, number?, mark(row)?}: `of` is what sorts.
   * options: height in pixels, sort (number of a column), filter: a box of its own,
   *   id, chosen(row).
   */
  constructor(columns, options = {}) {
    this.columns = columns;
    this.options = options;
    this.sort = options.sort ?? 0;
    this.falling = columns[this.sort].number ?? false;
    this.all = this.rows = [];
    this.count = element("span", { class: "quiet" });
    this.box = element("input", { type: "search", placeholder: "filter rows" });
    this.box.addEventListener("input", () => this.refresh());
    this.head = element("div", { class: "head" });
    this.body = element("div", { class: "rows" });
    this.frame = element("div", { class: "table" }, this.head, this.body);
    this.frame.style.maxHeight = `${options.height ?? 420}px`;
    this.frame.addEventListener("scroll", () => this.draw(false), { passive: true });
    this.element = element("div", { id: options.id ?? "" },
      element("div", { class: "bar" }, this.box, this.count), this.frame);
    columns.forEach((column, k) => {
      const button = element("button", { textContent: column.name });
      button.style.width = `${column.width}px`;
      if (column.number) button.className = "number";
      button.addEventListener("click", () => {
        this.falling = this.sort === k ? !this.falling : column.number ?? false;
        this.sort = k;
        this.refresh();
      });
      this.head.append(button);
    });
  }

  set(rows) {
    this.all = rows;
    this.refresh();
  }

  text(column, row) {
    return column.text ? column.text(row) : String(column.of(row));
  }

  refresh() {
    const wanted = this.box.value.trim().toLowerCase();
    const texts = this.columns.filter((c) => !c.number);
    const hit = (row) => texts.some((c) => this.text(c, row).toLowerCase().includes(wanted));
    this.rows = wanted ? this.all.filter(hit) : this.all.slice();
    const column = this.columns[this.sort], sign = this.falling ? -1 : 1;
    const keys = new Map(this.rows.map((row) => [row, column.of(row)]));
    this.rows.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      return x < y ? -sign : x > y ? sign : 0;
    });
    [...this.head.children].forEach((button, k) => {
      const arrow = k === this.sort ? (this.falling ? " ▼" : " ▲") : "";
      button.textContent = this.columns[k].name + arrow;
    });
    this.count.textContent = this.rows.length === this.all.length
      ? `${this.all.length} rows` : `${this.rows.length} of ${this.all.length} rows`;
    // Browsers draw no element higher than some millions of pixels.
    this.body.style.height = `${Math.min(this.rows.length * ROW_HEIGHT, 8e6)}px`;
    this.frame.scrollTop = 0;
    this.draw();
  }

  /** Draw the rows that are in sight; if not `always`, only where others have come in sight. */
  draw(always = true) {
    const shown = Math.ceil(this.frame.clientHeight / ROW_HEIGHT) + 2;
    const high = this.body.offsetHeight || 1, whole = this.rows.length * ROW_HEIGHT;
    const top = this.frame.scrollTop * (whole > high ? whole / high : 1);
    const first = Math.max(0, Math.min(Math.floor(top / ROW_HEIGHT), this.rows.length - shown + 2));
    const shift = this.frame.scrollTop - top, place = `${first} ${shift}`;
    if (place === this.place && !always) return;
    this.place = place;
    this.body.replaceChildren(...this.rows.slice(first, first + shown).map((row, k) => {
      const line = element("div", { class: "row" });
      line.style.top = `${(first + k) * ROW_HEIGHT + shift}px`;
      for (const column of this.columns) {
        const text = this.text(column, row);
        const cell = element("div", { class: "cell", textContent: text, title: text });
        if (column.number) cell.classList.add("number");
        if (column.mark) cell.classList.add(column.mark(row) || "cell");
        cell.style.width = `${column.width}px`;
        line.append(cell);
      }
      if (row === this.chosen) line.classList.add("chosen");
      line.addEventListener("click", () => {
        this.chosen = row;
        for (const other of this.body.children) other.classList.toggle("chosen", other === line);
        this.options.chosen?.(row);
      });
      return line;
    }));
  }
}
