// What every page of a run has: marks for what is wider than the window, and maps that can be turned.
"use strict";

function markScrolling(root) {
  for (const part of root.querySelectorAll(".wide, figure.drawing")) part.classList.toggle("scrolls", part.scrollWidth > part.clientWidth + 1);
}

// A map of three dimensions, drawn as SVG: dragging and arrow keys turn it, names follow their points.
class TurningMap {
  constructor(figure) {
    this.svg = figure.querySelector("svg");
    this.frame = this.svg.dataset.frame.split(" ").map(Number); // middle, and the room that there is
    const [x, y] = this.frame;
    const read = (node, name) => Number(node.getAttribute(name));
    this.points = [...this.svg.querySelectorAll("circle[data-z]")].map((node) => ({ node, at: [read(node, "cx") - x, read(node, "cy") - y, Number(node.dataset.z)], names: [] }));
    for (const node of this.svg.querySelectorAll("text[data-point]")) {
      const point = this.points[node.dataset.point];
      point.names.push({ node, x: read(node, "x") - read(point.node, "cx"), y: read(node, "y") - read(point.node, "cy") });
    }
    this.after = this.points.length ? this.points[this.points.length - 1].node.nextSibling : null;
    this.reset();
    this.listen(figure);
  }

  reset() {
    this.rotation = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    this.draw();
  }

  // Turn by angles about the upright and the level line of the window.
  turn(right, down) {
    const [c, s, e, t] = [Math.cos(right), Math.sin(right), Math.cos(down), Math.sin(down)];
    const by = [[c, 0, s], [-s * t, e, c * t], [-s * e, -t, c * e]];
    this.rotation = by.map((row) => [0, 1, 2].map((k) => row[0] * this.rotation[0][k] + row[1] * this.rotation[1][k] + row[2] * this.rotation[2][k]));
    if (!this.waiting) requestAnimationFrame(() => this.draw());
    this.waiting = true;
  }

  draw() {
    this.waiting = false;
    const [x, y, wide, high] = this.frame;
    const seen = this.points.map((point) => ({ point, to: this.rotation.map((row) => row[0] * point.at[0] + row[1] * point.at[1] + row[2] * point.at[2]) }));
    const most = (k) => Math.max(1e-9, ...seen.map(({ to }) => Math.abs(to[k])));
    const size = Math.min(1, wide / 2 / most(0), high / 2 / most(1)), deep = most(2);
    seen.sort((a, b) => a.to[2] - b.to[2]);
    for (const { point, to } of seen) {
      const [left, top] = [x + size * to[0], y + size * to[1]];
      point.node.setAttribute("cx", left.toFixed(1));
      point.node.setAttribute("cy", top.toFixed(1));
      point.node.setAttribute("fill-opacity", (0.85 + (0.15 * to[2]) / deep).toFixed(2));
      this.svg.insertBefore(point.node, this.after);
      for (const name of point.names) {
        name.node.setAttribute("x", (left + name.x).toFixed(1));
        name.node.setAttribute("y", (top + name.y).toFixed(1));
      }
    }
    this.hideCovered(seen);
  }

  // Names of far points give way to those of near ones.
  hideCovered(seen) {
    const taken = [];
    for (const { point } of seen.reverse()) {
      for (const { node } of point.names) {
        const box = node.getBBox();
        const free = taken.every((other) => box.x > other.x + other.width || other.x > box.x + box.width || Math.abs(box.y - other.y) > 0.8 * box.height);
        node.style.display = free ? "" : "none";
        if (free) taken.push(box);
      }
    }
  }

  listen(figure) {
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      from = event;
      this.svg.setPointerCapture(event.pointerId);
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.turn((event.clientX - from.clientX) / 150, (event.clientY - from.clientY) / 150);
      from = event;
    });
    for (const end of ["pointerup", "pointercancel"]) this.svg.addEventListener(end, () => { from = null; });
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
      if (step) this.turn(...step);
      else if (event.key === "0") this.reset();
      else return;
      event.preventDefault();
    });
  }
}

function startMaps(root) {
  for (const figure of root.querySelectorAll("figure.turns")) new TurningMap(figure);
}
