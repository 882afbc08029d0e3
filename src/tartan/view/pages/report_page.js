// A report at work: search and CSV of its groups, names and facts of the cells of its matrix, pictures to save.
"use strict";

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const seen = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\ufffd");
const MOST_NAMES = 40, MOST_FOUND = 100;

function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function save(name, parts, type) {
  const link = make("a", { href: URL.createObjectURL(new Blob(parts, { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = (ending) => `${document.title.replace(/\.tartan$/, "").replace(/[^\p{L}\p{N}._-]+/gu, "_") || "run"}-${ending}`;

// ---- Groups ------------------------------------------------------------------------------------

class Groups {
  constructor({ names, colours, of }, items) {
    Object.assign(this, { names, colours, of, items });
    this.members = names.map(() => []);
    of.forEach((group, item) => this.members[group].push(item));
    this.order = names.map((_, group) => group);
    this.body = byId("groups").tBodies[0];
    this.first = [...this.body.rows];
    byId("group-tools").hidden = false;
    byId("more-groups").hidden = this.first.length >= names.length;
    byId("more-groups").addEventListener("click", () => this.show(this.order, this.members, "all are shown"));
    byId("save-groups").addEventListener("click", () => this.write());
    byId("find-group").addEventListener("input", (event) => this.find(event.target.value));
  }

  find(text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted) {
      this.body.replaceChildren(...this.first);
      byId("found-groups").textContent = "";
      return;
    }
    const members = this.members.map((inside, group) =>
      this.names[group].toLowerCase().includes(wanted) ? inside : inside.filter((item) => this.items[item].toLowerCase().includes(wanted)));
    const found = this.order.filter((group) => members[group].length);
    const count = found.reduce((sum, group) => sum + members[group].length, 0);
    this.show(found.slice(0, MOST_FOUND), members, count ? `${count.toLocaleString("en")} items in ${found.length.toLocaleString("en")} groups` : "nothing has this in its name");
  }

  show(groups, members, said) {
    const wide = this.first.length ? this.first[0].cells.length : 3;
    this.body.replaceChildren(...groups.map((group) => {
      const names = members[group].slice(0, MOST_NAMES).map((item) => seen(this.items[item])).join(", ");
      const more = members[group].length - MOST_NAMES, dot = make("span", { class: "dot" });
      dot.style.background = this.colours[group];
      return make("tr", {}, make("th", { scope: "row" }, dot, seen(this.names[group])),
        make("td", { class: "number" }, this.members[group].length.toLocaleString("en")), ...(wide > 3 ? [make("td")] : []),
        make("td", { class: "key" }, more > 0 ? `${names} and ${more.toLocaleString("en")} more` : names));
    }));
    byId("found-groups").textContent = said;
  }

  write() {
    const cell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = this.items.map((name, item) => `${cell(name)},${cell(this.names[this.of[item]])}\n`);
    save(fileName("groups.csv"), ["item,group\n", ...lines], "text/csv");
  }
}

// ---- The matrix --------------------------------------------------------------------------------

class Matrix {
  constructor(about, items) {
    Object.assign(this, about);
    this.items = items;
    this.across = about.across || about.down;
    const raw = atob(about.scores), bytes = Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
    this.scores = new Float32Array(bytes.buffer);
    this.section = byId("matrix-section");
    this.figure = this.section.querySelector("figure");
    this.svg = this.section.querySelector("svg");
    this.image = this.svg.querySelector(".cells");
    this.cursor = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    this.cursor.setAttribute("class", "cursor");
    this.at = null;
    this.large = 1;
    byId("matrix-tools").hidden = byId("cell").hidden = false;
    this.listen();
  }

  score(row, column) {
    if (!this.mirrored) return this.scores[row * this.columns + column];
    const [i, j] = row < column ? [row, column] : [column, row];
    return this.scores[i * this.rows - (i * (i - 1)) / 2 + j - i];
  }

  // Items of a row or column of cells: its first and how many.
  itemsOf(list, cells, cell) {
    const first = Math.floor((cell * list.length) / cells), after = Math.floor(((cell + 1) * list.length) / cells);
    return [list[first], Math.max(1, after - first)];
  }

  point(row, column) {
    this.at = [row, column];
    const box = ["x", "y", "width", "height"].map((name) => Number(this.image.getAttribute(name)));
    const [wide, high] = [box[2] / this.columns, box[3] / this.rows];
    for (const [name, value] of Object.entries({ x: box[0] + column * wide, y: box[1] + row * high, width: wide, height: high })) this.cursor.setAttribute(name, value);
    this.svg.append(this.cursor);
    byId("cell").textContent = this.say(row, column);
  }

  say(row, column) {
    const [a, more] = this.itemsOf(this.down, this.rows, row), [b, others] = this.itemsOf(this.across, this.columns, column);
    const score = this.score(row, column), name = (item, count) => seen(this.items[item]) + (count > 1 ? ` and ${count - 1} more` : "");
    if (a === b && more === 1) return `${name(a, 1)}: the item itself`;
    const told = Number.isNaN(score) ? "no score" : `${this.unit} ${Number(score.toPrecision(4))}${more * others > 1 ? " on average" : ""}`;
    return `${name(a, more)} · ${name(b, others)}: ${told}`;
  }

  choose(row, column) {
    const both = [this.itemsOf(this.down, this.rows, row)[0], this.itemsOf(this.across, this.columns, column)[0]];
    byId("both").replaceChildren(...[...new Set(both)].map((item) => this.describe(item)));
  }

  describe(item) {
    const picture = document.querySelector(`img[data-item="${item}"]`), row = document.querySelector(`tr[data-item="${item}"]`);
    const side = make("div", { class: "side" }, make("h3", {}, seen(this.items[item])));
    if (picture) side.append(make("img", { src: picture.src, alt: picture.alt }));
    const facts = make("dl", { class: "facts" });
    if (data.groups) facts.append(make("dt", {}, "group"), make("dd", {}, seen(data.groups.names[data.groups.of[item]])));
    if (row) {
      const heads = [...row.closest("table").tHead.rows[0].cells].map((cell) => cell.textContent);
      [...row.cells].forEach((cell, at) => { if (at && heads[at] !== "Group" && cell.textContent) facts.append(make("dt", {}, heads[at]), make("dd", {}, cell.textContent)); });
    }
    side.append(facts);
    return side;
  }

  cellAt(event) {
    const box = this.image.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columns), row = Math.floor(((event.clientY - box.top) / box.height) * this.rows);
    return row >= 0 && column >= 0 && row < this.rows && column < this.columns ? [row, column] : null;
  }

  enlarge(factor) {
    this.large = Math.min(16, Math.max(1, factor));
    this.figure.classList.toggle("enlarged", this.large > 1);
    const box = this.svg.viewBox.baseVal;
    this.svg.style.width = this.large > 1 ? `${Math.round(box.width * this.large)}px` : "";
    this.svg.style.maxWidth = this.large > 1 ? "none" : `${box.width}px`;
    markScrolling(document);
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => { const cell = this.cellAt(event); if (cell) this.point(...cell); });
    this.svg.addEventListener("click", (event) => { const cell = this.cellAt(event); if (cell) { this.point(...cell); this.choose(...cell); } });
    this.figure.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key], [row, column] = this.at || [0, 0];
      const within = (value, n) => Math.min(n - 1, Math.max(0, value)), far = event.shiftKey ? 10 : 1;
      if (step) this.point(within(row + far * step[0], this.rows), within(column + far * step[1], this.columns));
      else if (event.key === "Enter") { this.point(row, column); this.choose(row, column); }
      else if (event.key === "+" || event.key === "=") this.enlarge(this.large * 1.5);
      else if (event.key === "-") this.enlarge(this.large / 1.5);
      else return;
      event.preventDefault();
    });
    byId("closer").addEventListener("click", () => this.enlarge(this.large * 1.5));
    byId("farther").addEventListener("click", () => this.enlarge(this.large / 1.5));
    byId("whole").addEventListener("click", () => this.enlarge(1));
  }
}

// ---- Pictures to save --------------------------------------------------------------------------

// A drawing as a file of its own: black on white, in the size of its own numbers.
function standalone(svg) {
  const copy = svg.cloneNode(true), box = svg.viewBox.baseVal;
  copy.querySelectorAll(".cursor").forEach((part) => part.remove());
  copy.removeAttribute("style");
  for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width: box.width, height: box.height, color: "#1d1e22", "font-family": "system-ui, sans-serif" })) copy.setAttribute(name, value);
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: "#fff" })) ground.setAttribute(name, value);
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  style.textContent = ".near{fill:#d9822b}.far{fill:#2f8f76}.cut{stroke:#9a3412}text.cut{stroke:none;fill:#9a3412}.line{fill:none;stroke:#2f8f76;stroke-width:2}.pause{fill:#dedbd2}";
  copy.prepend(style, ground);
  return new XMLSerializer().serializeToString(copy);
}

const PRINT_DOTS = 300, PAGE_DOTS = 96; // dots an inch

function savePng(svg, name) {
  const image = new Image(), box = svg.viewBox.baseVal, factor = PRINT_DOTS / PAGE_DOTS;
  image.onload = () => {
    const canvas = make("canvas", { width: Math.round(box.width * factor), height: Math.round(box.height * factor) }), pen = canvas.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((picture) => save(name, [picture], "image/png"));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
}

function offerPictures() {
  for (const svg of document.querySelectorAll("figure svg")) {
    const figure = svg.closest("figure"), flat = figure.classList.contains("on-paper") ? ", flat" : "";
    const title = figure.closest("section").querySelector("h2").textContent;
    const name = `${title}${flat}`.toLowerCase().replace(/^the /, "").replace(/[^\p{L}\p{N}]+/gu, "-");
    const line = make("div", { class: "tools" });
    for (const [kind, write] of [["SVG", () => save(fileName(`${name}.svg`), [standalone(svg)], "image/svg+xml")], ["PNG", () => savePng(svg, fileName(`${name}.png`))]]) {
      const button = make("button", { type: "button", "aria-label": `Save ${kind}${flat} of ${title}` }, `Save ${kind}${flat}`);
      button.addEventListener("click", write);
      line.append(button);
    }
    figure.after(line);
  }
}

if (data.items && data.groups && byId("groups")) new Groups(data.groups, data.items);
if (data.items && data.matrix && byId("matrix-section")) new Matrix(data.matrix, data.items);
startMaps(document);
offerPictures();
markScrolling(document);
addEventListener("resize", () => markScrolling(document));
