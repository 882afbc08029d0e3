"use strict";

// What stands beside the matrix and moves with it: the tree and the colours of groups, names of rows and of columns.
class BesideView {
  constructor(matrix, { tree, rows, columns }) {
    Object.assign(this, { matrix, tree, rows, columns });
    this.shape = null; // the tree as a path
    this.groups = null; // { names, colours, stretches }
    this.version = "";
    this.blocks = new Map(); // names by "axis/number of the block"
    new ResizeObserver(() => this.paint()).observe(rows);
  }

  // Take the tree and the groups of a version; names of another version are asked for again.
  show({ tree, groups }, version) {
    this.shape = tree ? new Path2D(tree) : null;
    this.groups = groups;
    this.tree.parentElement.classList.toggle("has-tree", Boolean(tree));
    this.tree.parentElement.classList.toggle("has-groups", Boolean(groups));
    if (version !== this.version) this.blocks.clear();
    this.version = version;
    this.paint();
  }

  paint() {
    if (!this.matrix.size) return;
    const style = getComputedStyle(this.matrix.canvas);
    this.ratio = window.devicePixelRatio || 1;
    this.ink = style.color;
    this.font = style.fontFamily;
    this.paintTree(this.prepare(this.tree));
    const { top, left } = this.matrix, { rows, columns } = this.matrix.size;
    this.paintNames(this.prepare(this.rows), "rows", top, rows, this.rows.height, this.rows.width, false);
    this.paintNames(this.prepare(this.columns), "columns", left, columns, this.columns.width, this.columns.height, true);
  }

  // Empty a canvas, at the size that it has on the page.
  prepare(canvas) {
    const box = canvas.getBoundingClientRect();
    canvas.width = Math.max(1, Math.round(box.width * this.ratio));
    canvas.height = Math.max(1, Math.round(box.height * this.ratio));
    const pen = canvas.getContext("2d");
    pen.strokeStyle = pen.fillStyle = this.ink;
    return pen;
  }

  paintTree(pen) {
    const { scale, top } = this.matrix, strip = this.groups ? STRIP * this.ratio : 0;
    const width = this.tree.width - (strip ? strip + 4 * this.ratio : 0);
    if (strip) this.paintStrip(pen, this.tree.width - strip, strip, scale, top, this.tree.height);
    if (!this.shape) return;
    const drawn = new Path2D(), margin = 2 * this.ratio;
    drawn.addPath(this.shape, new DOMMatrix([(width - 2 * margin) / TREE_WIDTH, 0, 0, scale, margin, top]));
    pen.lineWidth = Math.max(0.5, Math.min(1, scale / 3)) * this.ratio;
    pen.stroke(drawn);
  }

  paintStrip(pen, x, width, scale, top, height) {
    for (const [first, after, group] of this.stretches()) {
      const from = Math.max(0, top + first * scale), to = Math.min(height, top + after * scale);
      if (to <= from) continue;
      pen.fillStyle = this.groups.colours[group];
      pen.fillRect(x, from, width, to - from);
    }
    pen.fillStyle = this.ink;
  }

  // Rows of one group: the first, the one after the last, and the group.
  *stretches() {
    const parts = this.groups.stretches, end = this.matrix.size.rows;
    for (let k = 0; k < parts.length; k++) yield [parts[k][0], k + 1 < parts.length ? parts[k + 1][0] : end, parts[k][1]];
  }

  // Names of the cells in sight, where there is room for a line each; else those of the groups.
  paintNames(pen, axis, at, count, length, room, turned) {
    const { scale } = this.matrix, least = LEAST_LINE * this.ratio;
    let shared = 0;
    const write = (text, place, size) => {
      pen.font = `${size}px ${this.font}`;
      pen.textBaseline = "middle";
      pen.save();
      if (turned) {
        pen.translate(place, 0);
        pen.rotate(Math.PI / 2);
      } else pen.translate(0, place);
      pen.fillText(fitText(pen, text, room - 6 * this.ratio, shared), 4 * this.ratio, 0);
      pen.restore();
    };
    const largest = 13 * this.ratio;
    if (scale >= least) {
      const first = Math.max(0, Math.floor(-at / scale)), last = Math.min(count - 1, Math.floor((length - at) / scale));
      const names = Array.from({ length: Math.max(0, last - first + 1) }, (_, k) => this.nameOf(axis, first + k));
      shared = countShared(names);
      for (let place = first; place <= last; place++) {
        const middle = at + (place + 0.5) * scale;
        if (middle > 0 && middle < length) write(names[place - first], middle, Math.min(largest, 0.9 * scale));
      }
      return;
    }
    if (!this.groups) return;
    for (const [first, after, group] of this.stretches()) {
      const from = Math.max(0, at + first * scale), to = Math.min(length, at + after * scale);
      if (to - from >= 1.4 * least) write(this.groups.names[group], (from + to) / 2, Math.min(largest, to - from));
    }
  }

  nameOf(axis, place) {
    const block = Math.floor(place / BLOCK), name = `${axis}/${block}`;
    if (!this.blocks.has(name)) this.fetchBlock(name, `/names/${axis}/${block * BLOCK}/${BLOCK}`);
    return this.blocks.get(name)[place - block * BLOCK] ?? "";
  }

  async fetchBlock(name, address) {
    const mine = [];
    this.blocks.set(name, mine);
    while (this.blocks.size > MOST_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    try {
      const answer = await fetch(address);
      if (answer.ok) mine.push(...(await answer.json()).names);
      this.paint();
    } catch {
      this.blocks.delete(name); // asked for again when the matrix is drawn
    }
  }
}

const TREE_WIDTH = 1000; // of the path of a tree
const STRIP = 10; // pixels
const LEAST_LINE = 9; // pixels of a line that can be read
const BLOCK = 128, MOST_BLOCKS = 64;

// How many letters texts begin with in common, whole words of them.
function countShared(texts) {
  let shared = texts.length > 1 ? texts[0].length : 0;
  for (const text of texts) while (shared && !text.startsWith(texts[0].slice(0, shared))) shared--;
  return shared && texts[0].slice(0, shared).replace(/[\p{L}\p{N}]+$/u, "").length;
}

// A text that fits a width: it loses what it shares with its neighbours, then its middle, because names often differ at
// their ends.
function fitText(pen, text, room, shared = 0) {
  if (pen.measureText(text).width <= room) return text;
  if (shared > 1) text = `…${text.slice(shared)}`;
  if (pen.measureText(text).width <= room) return text;
  let keep = text.length;
  const shortened = () => `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(text.length - Math.floor(keep / 2))}`;
  while (keep > 1 && pen.measureText(shortened()).width > room) keep--;
  return shortened();
}
