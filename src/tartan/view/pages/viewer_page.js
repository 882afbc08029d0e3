// The page around the drawing: mouse, keys, panel, labels, tooltips, pictures.
"use strict";

const PRINT_RATIO = 300 / 96; // dots an inch of paper over those of a page
const MOST_LABELS = 300;
const FEW_POINTS = 60; // their names are shown from the start

// While a map moves, a machine that cannot keep up draws fewer points and pixels: at level k one of 2^k points. The
// whole is drawn as soon as the map stands still.
const LAST_LEVEL = 4, SLOW_FRAME = 50, QUICK_FRAME = 25, QUICK_FRAMES = 30, STILL_AFTER = 150;

class Pace {
  constructor() { this.level = 0; this.quick = 0; }

  // Take the milliseconds that a frame of a moving map took.
  took(milliseconds) {
    this.quick = milliseconds < QUICK_FRAME ? this.quick + 1 : 0;
    if (milliseconds > SLOW_FRAME) this.level = Math.min(LAST_LEVEL, this.level + Math.ceil(Math.log2(milliseconds / SLOW_FRAME)));
    else if (this.quick >= QUICK_FRAMES) [this.level, this.quick] = [Math.max(0, this.level - 1), 0];
  }
}

class Viewer {
  constructor(scene, byId) {
    this.scene = scene;
    this.middles = { n: scene.clusters.length, maps: middles(scene) };
    this.byId = byId;
    this.canvas = byId("maps");
    this.over = byId("over").getContext("2d");
    this.stage = byId("stage");
    this.painter = this.makePainter();
    this.start = { rotation: scene.flat ? [1, 0, 0, 0, 1, 0, 0, 0, 1] : turned([1, 0, 0, 0, 1, 0, 0, 0, 1], 0.6, 0.35), zoom: 1, pan: [0, 0] };
    this.view = { ...this.start, pan: [0, 0], ratio: 1 };
    this.options = { size: this.usualSize(), labels: scene.n <= FEW_POINTS, names: scene.clusters.length > 1 && scene.n > FEW_POINTS, edges: true, axes: false, spin: false };
    this.mode = { beside: scene.maps.length < 5, frame: 0, playing: false };
    this.found = -1;
    this.sought = -1;
    this.movesUntil = 0;
    this.level = 0;
    this.pace = new Pace();
    this.pointers = new Map();
    this.buildPanel();
    this.listen();
    this.repaint();
    this.resize();
    this.last = 0;
    requestAnimationFrame((now) => this.tick(now));
  }

  makePainter() {
    // Discs have soft edges of their own; smoothing them once more halves the frames a second of a software renderer.
    const gl = this.canvas.getContext("webgl", { antialias: this.scene.edges.length > 0 });
    try {
      if (gl) return new GlPainter(gl, this.scene);
    } catch (error) {
      console.warn("no WebGL:", error.message);
      const plain = document.createElement("canvas");
      plain.id = "maps";
      this.canvas.replaceWith(plain);
      this.canvas = plain;
    }
    return new PlainPainter(this.canvas.getContext("2d"), this.scene);
  }

  usualSize() { return Math.max(2.5, Math.min(11, 260 / Math.sqrt(this.scene.n))) * this.scene.pointSize; }

  // ---- What is shown ---------------------------------------------------------------------------

  panes() {
    const { width, height } = this, n = this.scene.maps.length;
    if (n === 1) return [{ left: 0, top: 0, width, height, map: 0, next: 0, mixed: 0 }];
    if (!this.mode.beside) {
      const map = Math.floor(this.mode.frame) % n;
      return [{ left: 0, top: 0, width, height, map, next: (map + 1) % n, mixed: this.mode.frame - Math.floor(this.mode.frame) }];
    }
    const across = Math.ceil(Math.sqrt(n * width / Math.max(1, height) / 1.2)), columns = Math.max(1, Math.min(n, across));
    const rows = Math.ceil(n / columns);
    return this.scene.maps.map((_, k) => ({
      left: (k % columns) * width / columns, top: Math.floor(k / columns) * height / rows,
      width: width / columns, height: height / rows, map: k, next: k, mixed: 0,
    }));
  }

  theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    return dark ? { paper: [0.086, 0.09, 0.102], ink: [0.93, 0.92, 0.9] } : { paper: [1, 1, 1], ink: [0.11, 0.12, 0.13] };
  }

  repaint() {
    const { scene } = this, colours = new Uint8Array(4 * scene.n), sizes = new Float32Array(scene.n);
    for (let i = 0; i < scene.n; i++) {
      const cluster = scene.clusters[scene.clusterOf[i]];
      colours.set(cluster.colour, 4 * i);
      sizes[i] = cluster.visible ? cluster.size : 0;
    }
    this.sizes = sizes;
    this.painter.paint(colours, sizes);
    this.stale = true;
  }

  // Draw maps and what stands over them, at a level of detail.
  draw(level = 0) {
    const theme = this.theme();
    this.sharpen(level > 0 ? Math.min(1, this.fullRatio) : this.fullRatio);
    this.painter.clear(theme);
    for (const pane of this.panes()) this.painter.draw(pane, this.view, theme, this.options, 1 << level);
    this.drawOver(1 << level);
    [this.level, this.stale] = [level, false];
  }

  drawOver(step = 1) {
    const theme = this.theme();
    this.over.setTransform(this.view.ratio, 0, 0, this.view.ratio, 0, 0);
    this.over.clearRect(0, 0, this.width, this.height);
    for (const pane of this.panes()) this.drawOverPane(pane, theme, step);
    this.staleOver = false;
  }

  drawOverPane(pane, theme, step) {
    const c = this.over, ink = css(theme.ink), paper = css(theme.paper, 0.85);
    c.save();
    c.beginPath(); c.rect(pane.left, pane.top, pane.width, pane.height); c.clip();
    c.font = "13px system-ui, sans-serif";
    c.lineJoin = "round";
    const write = (text, x, y) => { c.lineWidth = 3; c.strokeStyle = paper; c.strokeText(text, x, y); c.fillStyle = ink; c.fillText(text, x, y); };
    if (this.scene.maps.length > 1) {
      c.textAlign = "left"; c.font = "600 14px system-ui, sans-serif";
      write(this.scene.maps[pane.mixed < 0.5 ? pane.map : pane.next].title, pane.left + 12, pane.top + 22);
      c.font = "13px system-ui, sans-serif";
      c.strokeStyle = css(theme.ink, 0.15); c.lineWidth = 1; c.strokeRect(pane.left + 0.5, pane.top + 0.5, pane.width - 1, pane.height - 1);
    }
    if (this.options.axes) this.drawAxes(pane, write, theme);
    const taken = new Set();
    for (const i of [this.found, this.sought]) if (i >= 0 && this.sizes[i] > 0) this.drawRing(i, pane, ink, write, taken);
    if (this.options.names && this.scene.clusters.length > 1) this.drawNames(pane, write, taken);
    if (this.options.labels) this.drawLabels(pane, write, taken, step);
    c.restore();
  }

  // Around a point that is pointed at or was looked for; the latter with its label.
  drawRing(i, pane, ink, write, taken) {
    const { x, y } = placesOf(this.scene, pane, this.view, 1, i, i + 1), c = this.over, radius = this.options.size / 2 + 5;
    c.beginPath(); c.arc(x[i], y[i], radius, 0, 7); c.lineWidth = 2.5; c.strokeStyle = ink; c.stroke();
    c.textAlign = "left"; c.font = "600 13px system-ui, sans-serif";
    if (i !== this.sought) return;
    takes(taken, x[i] + radius + 4, y[i], 7 * short(this.scene.labels[i]).length);
    write(short(this.scene.labels[i]), x[i] + radius + 4, y[i] + 4);
  }

  drawAxes(pane, write, theme) {
    const map = this.scene.maps[pane.map], reach = 0.9 / map.scale, c = this.over;
    const from = project(...map.centre, map, this.view, pane);
    c.textAlign = "center";
    for (let d = 0; d < map.dim; d++) {
      const end = map.centre.map((v, k) => v + (k === d ? reach : 0)), to = project(...end, map, this.view, pane);
      c.beginPath(); c.moveTo(from.x, from.y); c.lineTo(to.x, to.y); c.lineWidth = 1.5; c.strokeStyle = css(theme.ink, 0.5); c.stroke();
      write("xyz"[d], to.x, to.y - 4);
    }
  }

  // The points in sight, nearest first; of many only the nearest ones, since a sort of all takes longer than the drawing.
  nearest(places, pane, step) {
    const seen = [], counts = new Uint32Array(1024), most = 20 * MOST_LABELS;
    const bin = (i) => Math.max(0, Math.min(1023, Math.floor((1 - places.depth[i]) * 512)));
    for (let i = 0; i < this.scene.n; i += step) {
      const x = places.x[i] - pane.left, y = places.y[i] - pane.top;
      if (this.sizes[i] > 0 && x > 0 && x < pane.width && y > 0 && y < pane.height) { seen.push(i); counts[bin(i)]++; }
    }
    let last = 0;
    for (let above = counts[0]; above < most && last < 1023; above += counts[last]) last++;
    return seen.filter((i) => bin(i) <= last).sort((i, j) => places.depth[j] - places.depth[i]);
  }

  // Labels of the nearest points, at their right or left, each where no other label is, and of few points none of these.
  drawLabels(pane, write, taken, step) {
    const places = placesOf(this.scene, pane, this.view, step), seen = this.nearest(places, pane, step), aside = this.options.size / 2 + 3;
    this.over.textAlign = "left"; this.over.font = "13px system-ui, sans-serif";
    const dots = seen.length <= FEW_POINTS ? seen : [], radius = this.options.size / 2;
    const covers = (x, y, wide) => dots.some((i) => places.x[i] > x - radius && places.x[i] < x + wide + radius && Math.abs(places.y[i] - y) < radius + 6);
    let written = 0;
    for (const i of seen) {
      const text = short(this.scene.labels[i]), wide = this.over.measureText(text).width, y = places.y[i];
      for (const x of [places.x[i] + aside, places.x[i] - aside - wide]) {
        if (x < pane.left || x + wide > pane.left + pane.width || covers(x, y, wide) || !takes(taken, x, y, wide)) continue;
        write(text, x, y + 4);
        written++;
        break;
      }
      if (written >= MOST_LABELS) break;
    }
  }

  // Names of the largest clusters, in the middle of their points, each where no larger one has its name.
  drawNames(pane, write, taken) {
    const places = placesOf(this.middles, pane, this.view), counts = this.middles.maps[pane.map].counts;
    const order = [...counts.keys()].filter((k) => this.scene.clusters[k].visible && counts[k]).sort((a, b) => counts[b] - counts[a]);
    this.over.textAlign = "center"; this.over.font = "600 13px system-ui, sans-serif";
    for (const k of order.slice(0, 40)) {
      const text = short(this.scene.clusters[k].label);
      if (takes(taken, places.x[k] - text.length * 3.5, places.y[k] - 4, 7 * text.length)) write(text, places.x[k], places.y[k]);
    }
  }

  tick(now) {
    const seconds = Math.min(0.1, (now - this.last) / 1000);
    if (this.moved) this.pace.took(now - this.last);
    this.last = now;
    if (this.options.spin) { this.view.rotation = turned(this.view.rotation, 0.4 * seconds, 0); this.moves(); }
    if (this.mode.playing) { this.mode.frame = (this.mode.frame + seconds / Math.max(0.1, Number(this.byId("delay").value) || 2)) % this.scene.maps.length; this.byId("frame").value = this.mode.frame; this.moves(); }
    if (this.pointed) { this.point(this.pointed); this.pointed = null; }
    this.show(now < this.movesUntil ? this.pace.level : 0);
    requestAnimationFrame((next) => this.tick(next));
  }

  // Draw what is not as it should be: all of it, or only what stands over the maps.
  show(level) {
    const all = this.stale || level < this.level;
    this.moved = this.stale && this.last < this.movesUntil;
    if (all) this.draw(level);
    else if (this.staleOver) this.drawOver(1 << this.level);
  }

  // The view has changed and may go on changing.
  moves() { this.movesUntil = performance.now() + STILL_AFTER; this.stale = true; }

  resize() {
    const box = this.stage.getBoundingClientRect();
    [this.width, this.height, this.fullRatio, this.view.ratio] = [box.width, box.height, Math.min(2, devicePixelRatio || 1), 0];
    this.stale = true;
  }

  // Give the canvases so many pixels for one of the page; that clears them.
  sharpen(ratio) {
    if (ratio === this.view.ratio) return;
    this.view.ratio = ratio;
    for (const canvas of [this.canvas, this.over.canvas]) { canvas.width = Math.round(this.width * ratio); canvas.height = Math.round(this.height * ratio); }
  }

  // ---- Pointing and turning --------------------------------------------------------------------

  listen() {
    addEventListener("resize", () => this.resize());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.stale = true; });
    const stage = this.stage;
    stage.addEventListener("pointerdown", (e) => { stage.setPointerCapture(e.pointerId); this.pointers.set(e.pointerId, e); this.begun = e; this.tip(-1); });
    stage.addEventListener("pointerup", (e) => {
      const begun = this.begun;
      this.pointers.delete(e.pointerId);
      if (begun && Math.hypot(e.clientX - begun.clientX, e.clientY - begun.clientY) < 4) { this.point(e); this.pick(this.found); }
    });
    stage.addEventListener("pointercancel", (e) => this.pointers.delete(e.pointerId));
    stage.addEventListener("pointerleave", () => this.tip(-1));
    stage.addEventListener("pointermove", (e) => (this.pointers.has(e.pointerId) ? this.drag(e) : (this.pointed = e)));
    stage.addEventListener("contextmenu", (e) => e.preventDefault());
    stage.addEventListener("dblclick", () => this.reset());
    stage.addEventListener("wheel", (e) => { e.preventDefault(); this.zoomAt(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0015)), e); }, { passive: false });
    stage.addEventListener("keydown", (e) => this.key(e));
  }

  drag(e) {
    const before = this.pointers.get(e.pointerId), dx = e.clientX - before.clientX, dy = e.clientY - before.clientY;
    if (this.pointers.size === 2) {
      const other = [...this.pointers.values()].find((p) => p.pointerId !== e.pointerId);
      const gap = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
      this.zoomAt(gap(e) / Math.max(1, gap(before)), e);
      this.move(dx / 2, dy / 2);
    } else if (this.scene.flat ? !e.altKey : e.shiftKey || e.buttons === 2 || e.buttons === 4) this.move(dx, dy);
    else if (this.scene.flat || e.altKey) this.view.rotation = rolled(this.view.rotation, dx * 0.008);
    else this.view.rotation = turned(this.view.rotation, dx * 0.008, dy * 0.008);
    this.pointers.set(e.pointerId, e);
    this.moves();
  }

  move(dx, dy) { this.view.pan = [this.view.pan[0] + dx, this.view.pan[1] + dy]; }

  zoomAt(factor, e) {
    const zoom = within(this.view.zoom * factor), pane = this.paneAt(e.offsetX, e.offsetY), by = zoom / this.view.zoom;
    const from = [e.offsetX - pane.left - pane.width / 2, e.offsetY - pane.top - pane.height / 2];
    this.view.pan = this.view.pan.map((p, d) => from[d] - by * (from[d] - p));
    this.view.zoom = zoom;
    this.moves();
  }

  key(e) {
    const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
    if (turns[e.key] && this.scene.flat) this.move(turns[e.key][0] * 200, turns[e.key][1] * 200);
    else if (turns[e.key]) this.view.rotation = turned(this.view.rotation, ...turns[e.key]);
    else if (e.key === "+" || e.key === "=") this.view.zoom = within(this.view.zoom * 1.15);
    else if (e.key === "-") this.view.zoom = within(this.view.zoom / 1.15);
    else if (e.key === "0") this.reset();
    else return;
    e.preventDefault();
    this.moves();
  }

  reset() { Object.assign(this.view, { rotation: this.start.rotation, zoom: 1, pan: [0, 0] }); this.stale = true; }

  paneAt(x, y) {
    return this.panes().find((p) => x >= p.left && x < p.left + p.width && y >= p.top && y < p.top + p.height) || this.panes()[0];
  }

  point(e) {
    const pane = this.paneAt(e.offsetX, e.offsetY), places = placesOf(this.scene, pane, this.view);
    let best = -1, least = Math.max(8, this.options.size) ** 2;
    for (let i = 0; i < this.scene.n; i++) {
      const far = (places.x[i] - e.offsetX) ** 2 + (places.y[i] - e.offsetY) ** 2 - places.depth[i];
      if (far < least && this.sizes[i] > 0) { least = far; best = i; }
    }
    this.tip(best, e);
  }

  tip(i, e) {
    const tip = this.byId("tip");
    tip.hidden = i < 0;
    if (i >= 0) {
      tip.textContent = this.scene.clusters.length > 1 ? `${this.scene.labels[i]}\n${this.scene.clusters[this.scene.clusterOf[i]].label}` : this.scene.labels[i];
      tip.style.left = `${Math.min(e.offsetX + 14, this.width - 180)}px`;
      tip.style.top = `${Math.min(e.offsetY + 14, this.height - 50)}px`;
    }
    if (i !== this.found) { this.found = i; this.staleOver = true; }
  }

  // From a point to its group in the list.
  pick(i) {
    for (const line of this.byId("clusters").children) line.classList.remove("picked");
    if (i < 0) return;
    this.byId("match").textContent = this.scene.labels[i];
    const line = this.byId("clusters").children[this.scene.clusterOf[i]];
    line.classList.add("picked");
    line.scrollIntoView({ block: "nearest" });
  }

  // ---- The panel -------------------------------------------------------------------------------

  buildPanel() {
    const { scene, byId } = this, several = scene.maps.length > 1;
    byId("count").textContent = `${scene.n.toLocaleString()} points`;
    for (const name of ["labels", "names", "edges", "axes", "spin"]) {
      const box = byId(name);
      box.checked = this.options[name];
      box.addEventListener("change", () => { this.options[name] = box.checked; this.stale = true; });
    }
    byId("edges").parentElement.hidden = !scene.edges.length;
    byId("names").parentElement.hidden = scene.clusters.length < 2;
    byId("spin").parentElement.hidden = scene.flat;
    const size = byId("size");
    size.value = this.options.size;
    size.addEventListener("input", () => { this.options.size = Number(size.value); this.moves(); });
    byId("reset").addEventListener("click", () => this.reset());
    byId("save").addEventListener("click", () => this.save());
    byId("save-svg").addEventListener("click", () => this.saveSvg());
    byId("search").addEventListener("input", (e) => this.search(e.target.value));
    byId("all").addEventListener("click", () => this.showAll(true));
    byId("none").addEventListener("click", () => this.showAll(false));
    byId("sequence").hidden = !several;
    if (several) this.buildSequence();
    this.buildClusters();
  }

  buildSequence() {
    const frame = this.byId("frame"), beside = this.byId("beside"), play = this.byId("play");
    frame.max = this.scene.maps.length - 1;
    beside.checked = this.mode.beside;
    const still = () => { this.mode.playing = false; play.textContent = "Play"; };
    beside.addEventListener("change", () => { this.mode.beside = beside.checked; this.stale = true; });
    frame.addEventListener("input", () => { still(); this.mode.frame = Number(frame.value); beside.checked = this.mode.beside = false; this.moves(); });
    play.addEventListener("click", () => {
      this.mode.playing = !this.mode.playing;
      play.textContent = this.mode.playing ? "Stop" : "Play";
      if (this.mode.playing) beside.checked = this.mode.beside = false;
    });
  }

  buildClusters() {
    const counts = new Uint32Array(this.scene.clusters.length);
    this.scene.clusterOf.forEach((k) => counts[k]++);
    this.boxes = this.scene.clusters.map((cluster, k) => {
      const line = document.createElement("li"), box = document.createElement("input"), colour = document.createElement("input");
      const name = document.createElement("span"), count = document.createElement("small");
      Object.assign(box, { type: "checkbox", checked: cluster.visible, title: "show or hide" });
      Object.assign(colour, { type: "color", value: hex(cluster.colour), title: "colour" });
      box.setAttribute("aria-label", `show ${cluster.label}`);
      colour.setAttribute("aria-label", `colour of ${cluster.label}`);
      Object.assign(name, { textContent: cluster.label, title: "click or Enter: this one alone; double click or F2: rename", tabIndex: 0 });
      name.setAttribute("role", "button");
      count.textContent = counts[k].toLocaleString();
      box.addEventListener("change", () => { cluster.visible = box.checked; this.repaint(); });
      colour.addEventListener("input", () => { cluster.colour = [...unhex(colour.value), cluster.colour[3]]; this.repaint(); });
      name.addEventListener("click", () => { if (!name.isContentEditable) this.alone(k); });
      name.addEventListener("keydown", (e) => {
        if (e.key === "F2") { name.contentEditable = "true"; name.focus(); }
        if (e.key !== "Enter") return;
        e.preventDefault();
        if (name.isContentEditable) name.blur();
        else this.alone(k);
      });
      name.addEventListener("dblclick", () => { name.contentEditable = "true"; name.focus(); });
      name.addEventListener("blur", () => { name.contentEditable = "false"; cluster.label = name.textContent; this.stale = true; });
      line.append(box, colour, name, count);
      this.byId("clusters").append(line);
      return box;
    });
  }

  alone(k) {
    const only = this.scene.clusters.every((cluster, other) => cluster.visible === (other === k));
    this.scene.clusters.forEach((cluster, other) => { cluster.visible = only || other === k; });
    this.tickBoxes();
  }

  showAll(visible) { this.scene.clusters.forEach((cluster) => { cluster.visible = visible; }); this.tickBoxes(); }

  tickBoxes() { this.boxes.forEach((box, k) => { box.checked = this.scene.clusters[k].visible; }); this.repaint(); }

  search(text) {
    const wanted = text.trim().toLowerCase();
    this.sought = wanted ? this.scene.labels.findIndex((label) => label.toLowerCase().includes(wanted)) : -1;
    this.byId("match").textContent = !wanted ? "" : this.sought < 0 ? "none" : this.scene.labels[this.sought];
    this.staleOver = true;
  }

  download(parts, type, ending) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(parts, { type }));
    link.download = `${this.scene.title.replace(/[^\w-]+/g, "_") || "map"}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // The maps as they are seen, for paper: discs, edges and names stay what they are. The farthest points come first.
  saveSvg() {
    const escaped = (text) => text.replace(/[&<>"\p{C}]/gu, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter] || "\ufffd");
    const scene = this.scene, parts = [`<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" font-family="system-ui, sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/><text x="12" y="20" font-size="15">${escaped(scene.title)}</text>\n`];
    for (const pane of this.panes()) {
      const places = placesOf(scene, pane, this.view), seen = [];
      for (let i = 0; i < scene.n; i++) if (places.x[i] === places.x[i] && this.sizes[i] > 0) seen.push(i);
      seen.sort((i, j) => places.depth[i] - places.depth[j]);
      for (let k = 0; this.options.edges && k < scene.edges.length; k += 2) {
        const [a, b] = [scene.edges[k], scene.edges[k + 1]];
        if (this.sizes[a] > 0 && this.sizes[b] > 0) parts.push(`<path d="M${places.x[a].toFixed(1)} ${places.y[a].toFixed(1)}L${places.x[b].toFixed(1)} ${places.y[b].toFixed(1)}" stroke="#bebebe"/>`);
      }
      for (const i of seen) parts.push(`<circle cx="${places.x[i].toFixed(1)}" cy="${places.y[i].toFixed(1)}" r="${(this.options.size * this.sizes[i] / 2).toFixed(1)}" fill="${hex(scene.clusters[scene.clusterOf[i]].colour)}"><title>${escaped(scene.labels[i])}</title></circle>\n`);
      if (this.options.labels) for (const i of seen.slice(-MOST_LABELS)) parts.push(`<text x="${(places.x[i] + this.options.size / 2 + 3).toFixed(1)}" y="${(places.y[i] + 4).toFixed(1)}">${escaped(short(scene.labels[i]))}</text>\n`);
    }
    scene.clusters.filter((cluster) => cluster.visible && scene.clusters.length > 1).slice(0, 30).forEach((cluster, at) => parts.push(
      `<circle cx="${this.width - 170}" cy="${20 + 18 * at}" r="5" fill="${hex(cluster.colour)}"/><text x="${this.width - 158}" y="${24 + 18 * at}">${escaped(short(cluster.label))}</text>\n`));
    this.download([...parts, "</svg>\n"], "image/svg+xml", "svg");
  }

  save() {
    const screen = this.fullRatio;
    this.fullRatio = Math.max(screen, PRINT_RATIO);
    this.draw(); // a WebGL canvas holds its picture only until the browser shows it
    const both = document.createElement("canvas"), c = both.getContext("2d");
    [both.width, both.height] = [this.canvas.width, this.canvas.height];
    c.drawImage(this.canvas, 0, 0);
    c.drawImage(this.over.canvas, 0, 0);
    this.fullRatio = screen;
    this.stale = true;
    both.toBlob((picture) => this.download([picture], "image/png", "png"));
  }
}

// Reserve the space of a text, from x to the right and with y in the middle, where it is free; say whether it was.
function takes(taken, x, y, wide) {
  const wanted = [];
  for (const row of new Set([Math.floor((y - 7) / 15), Math.floor((y + 7) / 15)])) {
    for (let cell = Math.floor(x / 24); cell <= (x + wide) / 24; cell++) wanted.push(`${row},${cell}`);
  }
  if (wanted.some((cell) => taken.has(cell))) return false;
  wanted.forEach((cell) => taken.add(cell));
  return true;
}

function within(zoom) { return Math.min(200, Math.max(0.1, zoom)); }

function short(text) { return text.length > 28 ? `${text.slice(0, 27)}…` : text; }

function hex(colour) { return "#" + colour.slice(0, 3).map((v) => v.toString(16).padStart(2, "0")).join(""); }

function unhex(text) { return [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16)); }
