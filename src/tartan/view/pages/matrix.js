"use strict";

// The matrix on a canvas: tiles of a pyramid, a cursor, drag, wheel, pinch and keys. It knows cells, not items.
class MatrixView {
  constructor(canvas, events) {
    this.canvas = canvas;
    this.events = events; // { moved(row, column), chosen(row, column), coloured(scale, reading), painted() }
    this.pen = canvas.getContext("2d");
    this.tiles = new Map();
    this.waiting = new Set();
    this.size = null; // { rows, columns, levels, tile }
    this.version = "";
    this.cursor = { row: 0, column: 0 };
    this.pointers = new Map();
    new ResizeObserver(() => this.fitCanvas()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.listen();
  }

  // Take the size of a matrix, and a version: tiles of another version are asked for again.
  show(size, version) {
    const other = !this.size || this.size.rows !== size.rows || this.size.columns !== size.columns;
    this.size = size;
    if (other) this.tiles.clear();
    this.version = version;
    if (other) this.reset();
    this.draw();
  }

  fitCanvas() {
    const ratio = window.devicePixelRatio || 1;
    const box = this.canvas.getBoundingClientRect();
    const before = this.canvas.width;
    this.canvas.width = Math.max(1, Math.round(box.width * ratio));
    this.canvas.height = Math.max(1, Math.round(box.height * ratio));
    if (!this.size) return;
    if (before !== this.canvas.width) this.reset();
    this.bound();
    this.paint(); // at once: a canvas of another size is empty
  }

  // Pixels a cell at which the whole matrix is seen.
  least() {
    return Math.min(this.canvas.width / this.size.columns, this.canvas.height / this.size.rows);
  }

  reset() {
    if (!this.size) return;
    this.scale = this.least();
    this.left = (this.canvas.width - this.scale * this.size.columns) / 2;
    this.top = (this.canvas.height - this.scale * this.size.rows) / 2;
    this.draw();
  }

  zoom(factor, x = this.canvas.width / 2, y = this.canvas.height / 2) {
    if (!this.size) return;
    const scale = Math.min(64 * (window.devicePixelRatio || 1), Math.max(this.least(), this.scale * factor));
    this.left = x - ((x - this.left) * scale) / this.scale;
    this.top = y - ((y - this.top) * scale) / this.scale;
    this.scale = scale;
    this.bound();
    this.draw();
  }

  move(x, y) {
    this.left += x;
    this.top += y;
    this.bound();
    this.draw();
  }

  // Keep the matrix in sight.
  bound() {
    const keep = (at, length, room) =>
      length <= room ? (room - length) / 2 : Math.min(0, Math.max(room - length, at));
    this.left = keep(this.left, this.scale * this.size.columns, this.canvas.width);
    this.top = keep(this.top, this.scale * this.size.rows, this.canvas.height);
  }

  cellAt(x, y) {
    const column = Math.floor((x - this.left) / this.scale), row = Math.floor((y - this.top) / this.scale);
    const inside = row >= 0 && column >= 0 && row < this.size.rows && column < this.size.columns;
    return inside ? { row, column } : null;
  }

  // Put the cursor on a cell, in sight.
  point(row, column) {
    this.cursor = {
      row: Math.min(this.size.rows - 1, Math.max(0, row)),
      column: Math.min(this.size.columns - 1, Math.max(0, column)),
    };
    const x = this.left + (this.cursor.column + 0.5) * this.scale, y = this.top + (this.cursor.row + 0.5) * this.scale;
    if (x < 0 || x > this.canvas.width) this.left += this.canvas.width / 2 - x;
    if (y < 0 || y > this.canvas.height) this.top += this.canvas.height / 2 - y;
    this.bound();
    this.draw();
    this.events.moved(this.cursor.row, this.cursor.column);
  }

  draw() {
    if (this.drawing || !this.size) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.paint();
    });
  }

  paint() {
    const { pen, canvas } = this;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    this.paintGround();
    pen.imageSmoothingEnabled = false;
    const level = Math.min(this.size.levels - 1, Math.max(0, Math.ceil(Math.log2(1 / this.scale) - 0.01)));
    this.paintLevel(this.size.levels - 1);
    if (level < this.size.levels - 1) this.paintLevel(level);
    const seen = [...this.tiles].find(([name]) => name.startsWith(`${level}/`));
    const reading = this.waiting.size > 0 || [...this.tiles.values()].some((tile) => !tile.complete);
    if (seen) this.events.coloured(seen[1].scale, reading);
    this.paintCursor();
    this.events.painted();
  }

  // What is not known is hatched.
  paintGround() {
    const { pen } = this;
    const width = this.scale * this.size.columns, height = this.scale * this.size.rows;
    const style = getComputedStyle(this.canvas);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, width, height);
    pen.clip();
    pen.strokeStyle = style.color;
    pen.globalAlpha = 0.18;
    pen.lineWidth = 2;
    pen.beginPath();
    for (let x = -this.canvas.height; x < this.canvas.width; x += 9) {
      pen.moveTo(x, this.canvas.height);
      pen.lineTo(x + this.canvas.height, 0);
    }
    pen.stroke();
    pen.restore();
  }

  paintLevel(level) {
    const side = this.size.tile * 2 ** level, pixels = side * this.scale;
    const last = (n) => Math.ceil(n / side) - 1;
    const span = (at, room, n) => [
      Math.max(0, Math.floor(-at / pixels)),
      Math.min(last(n), Math.floor((room - at) / pixels)),
    ];
    const [firstRow, lastRow] = span(this.top, this.canvas.height, this.size.rows);
    const [firstColumn, lastColumn] = span(this.left, this.canvas.width, this.size.columns);
    for (let row = firstRow; row <= lastRow; row++) {
      for (let column = firstColumn; column <= lastColumn; column++) this.paintTile(level, row, column, side);
    }
  }

  paintTile(level, row, column, side) {
    const name = `${level}/${row}/${column}`, known = this.tiles.get(name);
    if (!known || known.version !== this.version || !known.complete) this.fetchTile(name);
    if (!known) return;
    const cell = 2 ** level * this.scale;
    const x = Math.round(this.left + column * side * this.scale), y = Math.round(this.top + row * side * this.scale);
    const right = Math.round(this.left + column * side * this.scale + known.image.width * cell);
    const foot = Math.round(this.top + row * side * this.scale + known.image.height * cell);
    this.pen.clearRect(x, y, 0, 0);
    this.pen.drawImage(known.image, x, y, right - x, foot - y);
  }

  paintCursor() {
    const { pen, cursor, scale } = this;
    if (document.activeElement !== this.canvas && !this.pointed) return;
    const style = getComputedStyle(this.canvas);
    const x = this.left + cursor.column * scale, y = this.top + cursor.row * scale, side = Math.max(scale, 5);
    pen.lineWidth = 2 * (window.devicePixelRatio || 1);
    for (const [colour, more] of [[style.backgroundColor, 3], [style.color, 1]]) {
      pen.strokeStyle = colour;
      pen.strokeRect(x - more, y - more, side + 2 * more, side + 2 * more);
    }
  }

  async fetchTile(name) {
    if (this.waiting.has(name) || this.waiting.size >= 4) return void (this.again = true);
    this.waiting.add(name);
    const version = this.version;
    try {
      const answer = await fetch(`/tile/${name}.png?v=${encodeURIComponent(version)}`);
      if (answer.ok) {
        const image = await createImageBitmap(await answer.blob());
        this.tiles.set(name, { image, version, complete: answer.headers.get("X-Complete") === "1", scale: JSON.parse(decodeURIComponent(answer.headers.get("X-Scale"))) });
        this.forget();
      }
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 2000)); // the server is gone, or busy
    }
    this.waiting.delete(name);
    this.draw();
  }

  forget() {
    while (this.tiles.size > 300) this.tiles.delete(this.tiles.keys().next().value);
  }

  listen() {
    const { canvas } = this, at = (event) => {
      const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
      return { x: (event.clientX - box.left) * ratio, y: (event.clientY - box.top) * ratio };
    };
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y } = at(event);
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), x, y);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { ...at(event), moved: 0 });
    });
    canvas.addEventListener("pointermove", (event) => this.dragged(event, at(event)));
    canvas.addEventListener("pointerup", (event) => this.released(event, at(event)));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  dragged(event, now) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      const cell = event.pointerType === "mouse" && this.size && this.cellAt(now.x, now.y);
      if (cell) {
        this.cursor = cell;
        this.pointed = true;
        this.events.moved(cell.row, cell.column);
        this.draw();
      }
      return;
    }
    const step = { x: now.x - before.x, y: now.y - before.y };
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    this.pointers.set(event.pointerId, { ...now, moved: before.moved + Math.hypot(step.x, step.y) });
    if (others.length === 0) {
      if (before.moved > 4) this.move(step.x, step.y);
      return;
    }
    const far = (place) => Math.hypot(place.x - others[0].x, place.y - others[0].y) || 1;
    this.zoom(far(now) / far(before), (now.x + others[0].x) / 2, (now.y + others[0].y) / 2);
  }

  released(event, now) {
    const before = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (!before || before.moved > 6 || this.pointers.size || !this.size) return;
    const cell = this.cellAt(now.x, now.y);
    if (!cell) return;
    this.pointed = true;
    this.cursor = cell;
    this.draw();
    this.events.moved(cell.row, cell.column);
    this.events.chosen(cell.row, cell.column);
  }

  key(event) {
    if (!this.size || event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1, step = Math.max(1, Math.round(6 / this.scale)) * far;
    const steps = { ArrowUp: [-step, 0], ArrowDown: [step, 0], ArrowLeft: [0, -step], ArrowRight: [0, step] };
    const { row, column } = this.cursor;
    const acts = {
      "+": () => this.zoomAtCursor(1.6), "=": () => this.zoomAtCursor(1.6), "-": () => this.zoomAtCursor(1 / 1.6),
      0: () => this.reset(), Home: () => this.point(0, 0), End: () => this.point(this.size.rows, this.size.columns),
      Enter: () => this.events.chosen(row, column), " ": () => this.events.chosen(row, column),
    };
    const act = event.key in steps
      ? () => this.point(row + steps[event.key][0], column + steps[event.key][1]) : acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  zoomAtCursor(factor) {
    const { row, column } = this.cursor;
    this.zoom(factor, this.left + (column + 0.5) * this.scale, this.top + (row + 0.5) * this.scale);
  }
}
