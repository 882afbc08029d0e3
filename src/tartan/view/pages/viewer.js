// The viewer of a scene page: draws the maps with WebGL, or on a plain canvas where there is none.
// Needs no network and no library. `Viewer` below is what a page starts; all else is plain functions.
"use strict";

// ---- Reading the scene -------------------------------------------------------------------------

function decode(text, Kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

// The mean place of each cluster in each map, three numbers a cluster; NaN where it has no point.
function middles(scene) {
  return scene.maps.map((map) => {
    const sums = new Float64Array(3 * scene.clusters.length), counts = new Uint32Array(scene.clusters.length), p = map.points;
    for (let i = 0; i < scene.n; i++) {
      if (p[3 * i] !== p[3 * i]) continue;
      const k = scene.clusterOf[i];
      for (let d = 0; d < 3; d++) sums[3 * k + d] += p[3 * i + d];
      counts[k]++;
    }
    return { ...map, points: sums.map((sum, at) => sum / counts[Math.floor(at / 3)]), counts };
  });
}

function readScene(data) {
  const maps = data.maps.map((map) => withFrame({ title: map.title, dim: map.dim, points: decode(map.points, Float32Array) }));
  return {
    title: data.title,
    n: data.n,
    maps,
    labels: data.labels,
    clusters: data.clusters,
    clusterOf: decode(data.clusterOf, Uint32Array),
    edges: decode(data.edges, Uint32Array),
    pointSize: data.pointSize,
    flat: maps.every((map) => map.dim === 2),
  };
}

// Centre and scale of a map, so that it fills the unit ball.
function withFrame(map) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  const p = map.points;
  for (let i = 0; i < p.length; i++) {
    if (p[i] < low[i % 3]) low[i % 3] = p[i];
    if (p[i] > high[i % 3]) high[i % 3] = p[i];
  }
  map.centre = low.map((l, d) => (high[d] >= l ? (l + high[d]) / 2 : 0));
  let radius = 0;
  for (let i = 0; i + 2 < p.length; i += 3) {
    const r = Math.hypot(p[i] - map.centre[0], p[i + 1] - map.centre[1], p[i + 2] - map.centre[2]);
    if (r > radius) radius = r;
  }
  map.scale = radius > 0 ? 1 / radius : 1;
  return map;
}

// ---- Geometry ----------------------------------------------------------------------------------

const PERSPECTIVE = 0.28;

function multiply(a, b) {
  const out = new Array(9).fill(0);
  for (let i = 0; i < 3; i++) for (let j = 0; j < 3; j++) for (let k = 0; k < 3; k++) out[3 * i + j] += a[3 * i + k] * b[3 * k + j];
  return out;
}

function turned(rotation, right, down) {
  const [c, s, e, t] = [Math.cos(right), Math.sin(right), Math.cos(down), Math.sin(down)];
  return multiply(multiply([1, 0, 0, 0, e, -t, 0, t, e], [c, 0, s, 0, 1, 0, -s, 0, c]), rotation);
}

function rolled(rotation, angle) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return multiply([c, -s, 0, s, c, 0, 0, 0, 1], rotation);
}

// Place of a point in a pane, in pixels, with its depth (nearer is larger); null where there is none.
function project(x, y, z, frame, view, pane) {
  x = (x - frame.centre[0]) * frame.scale; y = (y - frame.centre[1]) * frame.scale; z = (z - frame.centre[2]) * frame.scale;
  if (x !== x || y !== y || z !== z) return null;
  const r = view.rotation;
  const depth = r[6] * x + r[7] * y + r[8] * z;
  const size = view.zoom * Math.min(pane.width, pane.height) * 0.46 / (1 - PERSPECTIVE * depth);
  return {
    x: pane.left + pane.width / 2 + view.pan[0] + size * (r[0] * x + r[1] * y + r[2] * z),
    y: pane.top + pane.height / 2 + view.pan[1] - size * (r[3] * x + r[4] * y + r[5] * z),
    depth,
  };
}

// ---- Drawing with WebGL ------------------------------------------------------------------------

const PLACE = `
  attribute vec3 here, next;
  uniform vec3 centreA, centreB, reach;
  uniform vec2 scales, pan, size;
  uniform mat3 rotation;
  uniform float mixed;
  vec3 placed() {
    vec3 p = mix((here - centreA) * scales.x, (next - centreB) * scales.y, mixed);
    return rotation * p;
  }
  vec4 projected(vec3 q) {
    float w = 1.0 - ${PERSPECTIVE} * q.z;
    return vec4(q.xy * reach.xy + pan * w, -q.z * 0.5 * w, w);
  }`;
const POINT_SHADER = `${PLACE}
  attribute vec4 colour;
  attribute float large;
  uniform float pixels;
  varying vec4 shade;
  varying float depth;
  void main() {
    vec3 q = placed();
    gl_Position = projected(q);
    float seen = step(0.001, large);
    if (seen < 0.5 || q.x != q.x) gl_Position = vec4(9.0, 9.0, 9.0, 1.0);
    gl_PointSize = max(1.0, pixels * large / gl_Position.w);
    shade = colour; depth = q.z;
  }`;
const POINT_COLOUR = `precision mediump float;
  varying vec4 shade;
  varying float depth;
  uniform vec3 paper;
  uniform float fog;
  void main() {
    float r = length(gl_PointCoord - 0.5) * 2.0;
    if (r > 1.0) discard;
    vec3 lit = shade.rgb * (1.0 - 0.35 * r * r);
    gl_FragColor = vec4(mix(lit, paper, fog * clamp(0.15 - 0.4 * depth, 0.0, 0.55)), shade.a * (1.0 - smoothstep(0.82, 1.0, r)));
  }`;
const LINE_SHADER = `${PLACE}
  attribute float large;
  void main() { gl_Position = large > 0.0 ? projected(placed()) : vec4(9.0, 9.0, 9.0, 1.0); }`;
const LINE_COLOUR = `precision mediump float;
  uniform vec4 ink;
  void main() { gl_FragColor = ink; }`;

function program(gl, vertex, fragment) {
  const made = gl.createProgram();
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  return made;
}

class GlPainter {
  constructor(gl, scene) {
    this.gl = gl;
    this.scene = scene;
    this.points = program(gl, POINT_SHADER, POINT_COLOUR);
    this.lines = program(gl, LINE_SHADER, LINE_COLOUR);
    this.places = scene.maps.map((map) => this.buffer(map.points));
    this.ends = scene.maps.map((map) => this.buffer(this.segments(map)));
    this.colours = gl.createBuffer();
    this.sizes = gl.createBuffer();
    this.endSizes = gl.createBuffer();
    gl.enable(gl.BLEND);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  buffer(values) {
    const made = this.gl.createBuffer();
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, made);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.STATIC_DRAW);
    return made;
  }

  segments(map) {
    const out = new Float32Array(this.scene.edges.length * 3);
    this.scene.edges.forEach((point, k) => { for (let d = 0; d < 3; d++) out[3 * k + d] = map.points[3 * point + d]; });
    return out;
  }

  paint(colours, sizes) {
    const gl = this.gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colours);
    gl.bufferData(gl.ARRAY_BUFFER, colours, gl.DYNAMIC_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.sizes);
    gl.bufferData(gl.ARRAY_BUFFER, sizes, gl.DYNAMIC_DRAW);
    const edges = this.scene.edges, ends = new Float32Array(edges.length);
    for (let k = 0; k < edges.length; k++) ends[k] = Math.min(sizes[edges[k]], sizes[edges[k ^ 1]]);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.endSizes);
    gl.bufferData(gl.ARRAY_BUFFER, ends, gl.DYNAMIC_DRAW);
  }

  clear(theme) {
    const gl = this.gl;
    gl.disable(gl.SCISSOR_TEST);
    gl.viewport(0, 0, gl.canvas.width, gl.canvas.height);
    gl.clearColor(...theme.paper, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
  }

  // Of `step` points one is drawn: the buffers are read with wider strides, at most 16 times 12 bytes of the 255 allowed.
  draw(pane, view, theme, options, step) {
    const gl = this.gl, ratio = view.ratio;
    const box = [pane.left, gl.canvas.height / ratio - pane.top - pane.height, pane.width, pane.height].map((v) => Math.round(v * ratio));
    gl.viewport(...box);
    gl.enable(gl.SCISSOR_TEST);
    gl.scissor(...box);
    if (options.edges && this.scene.edges.length) {
      this.place(this.lines, this.ends, pane, view, 1);
      gl.uniform4f(gl.getUniformLocation(this.lines, "ink"), ...theme.ink, 0.35);
      this.attribute(this.lines, "large", this.endSizes, 1, 1);
      gl.disable(gl.DEPTH_TEST);
      gl.drawArrays(gl.LINES, 0, this.scene.edges.length);
    }
    this.place(this.points, this.places, pane, view, step);
    const at = (name) => gl.getUniformLocation(this.points, name);
    gl.uniform1f(at("pixels"), options.size * ratio);
    gl.uniform1f(at("fog"), this.scene.flat ? 0 : 1);
    gl.uniform3f(at("paper"), ...theme.paper);
    this.attribute(this.points, "colour", this.colours, 4, step, gl.UNSIGNED_BYTE);
    this.attribute(this.points, "large", this.sizes, 1, step);
    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LEQUAL);
    gl.drawArrays(gl.POINTS, 0, Math.ceil(this.scene.n / step));
  }

  place(used, buffers, pane, view, step) {
    const gl = this.gl, [a, b] = [this.scene.maps[pane.map], this.scene.maps[pane.next]];
    gl.useProgram(used);
    const at = (name) => gl.getUniformLocation(used, name);
    const reach = view.zoom * Math.min(pane.width, pane.height) * 0.92;
    gl.uniform3f(at("centreA"), ...a.centre);
    gl.uniform3f(at("centreB"), ...b.centre);
    gl.uniform2f(at("scales"), a.scale, b.scale);
    gl.uniform3f(at("reach"), reach / pane.width, reach / pane.height, 0);
    gl.uniform2f(at("pan"), 2 * view.pan[0] / pane.width, -2 * view.pan[1] / pane.height);
    gl.uniform1f(at("mixed"), pane.mixed);
    const r = view.rotation;
    gl.uniformMatrix3fv(at("rotation"), false, [r[0], r[3], r[6], r[1], r[4], r[7], r[2], r[5], r[8]]);
    this.attribute(used, "here", buffers[pane.map], 3, step);
    this.attribute(used, "next", buffers[pane.next], 3, step);
  }

  attribute(used, name, buffer, length, step, kind = this.gl.FLOAT) {
    const gl = this.gl, place = gl.getAttribLocation(used, name), bytes = kind === gl.FLOAT ? 4 * length : length;
    if (place < 0) return;
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, length, kind, kind !== gl.FLOAT, step * bytes, 0);
  }
}

// ---- Drawing without WebGL ---------------------------------------------------------------------

class PlainPainter {
  constructor(context, scene) { this.context = context; this.scene = scene; }

  paint(_, sizes) {
    this.sizes = sizes;
    this.shades = this.scene.clusters.map(({ colour }) => `rgba(${colour.slice(0, 3)}, ${colour[3] / 255})`);
  }

  clear(theme) {
    const c = this.context;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = css(theme.paper);
    c.fillRect(0, 0, c.canvas.width, c.canvas.height);
  }

  draw(pane, view, theme, options, step) {
    const c = this.context, scene = this.scene, seen = [];
    c.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
    c.save();
    c.beginPath(); c.rect(pane.left, pane.top, pane.width, pane.height); c.clip();
    const places = placesOf(scene, pane, view);
    if (options.edges) this.edges(places, theme);
    for (let i = 0; i < scene.n; i += step) if (places.x[i] === places.x[i] && this.sizes[i] > 0) seen.push(i);
    seen.sort((i, j) => places.depth[i] - places.depth[j]);
    for (const i of seen) {
      const radius = Math.max(0.5, options.size * this.sizes[i] / 2 / (1 - PERSPECTIVE * places.depth[i]));
      c.fillStyle = this.shades[scene.clusterOf[i]];
      if (radius < 2) c.fillRect(places.x[i] - radius, places.y[i] - radius, 2 * radius, 2 * radius);
      else { c.beginPath(); c.arc(places.x[i], places.y[i], radius, 0, 7); c.fill(); }
    }
    c.restore();
  }

  edges(places, theme) {
    const c = this.context, edges = this.scene.edges;
    c.strokeStyle = css(theme.ink, 0.35);
    c.beginPath();
    for (let k = 0; k < edges.length; k += 2) {
      const [a, b] = [edges[k], edges[k + 1]];
      if (this.sizes[a] > 0 && this.sizes[b] > 0) { c.moveTo(places.x[a], places.y[a]); c.lineTo(places.x[b], places.y[b]); }
    }
    c.stroke();
  }
}

function css(colour, opacity = 1) { return `rgba(${colour.map((v) => Math.round(255 * v))}, ${opacity})`; }

// Places of all points in a pane, in arrays that are used again; x is NaN where there is none. Between two maps
// where one turns into the next. Written out, because it runs for every point while the mouse moves. Of `step` points
// one is placed, and only those from `first` to `end`; the others keep what they had.
function placesOf(scene, pane, view, step = 1, first = 0, end = scene.n) {
  const places = scene.places || (scene.places = { x: new Float32Array(scene.n), y: new Float32Array(scene.n), depth: new Float32Array(scene.n) });
  const [a, b, m] = [scene.maps[pane.map], scene.maps[pane.next], pane.mixed], r = view.rotation;
  const [p, q, [e, f, g], [u, v, w]] = [a.points, b.points, a.centre, b.centre];
  const full = view.zoom * Math.min(pane.width, pane.height) * 0.46;
  const left = pane.left + pane.width / 2 + view.pan[0], top = pane.top + pane.height / 2 + view.pan[1];
  for (let i = first; i < end; i += step) {
    const k = 3 * i;
    let x = (p[k] - e) * a.scale, y = (p[k + 1] - f) * a.scale, z = (p[k + 2] - g) * a.scale;
    if (m > 0) {
      x += m * ((q[k] - u) * b.scale - x);
      y += m * ((q[k + 1] - v) * b.scale - y);
      z += m * ((q[k + 2] - w) * b.scale - z);
    }
    const depth = r[6] * x + r[7] * y + r[8] * z, size = full / (1 - PERSPECTIVE * depth);
    places.x[i] = left + size * (r[0] * x + r[1] * y + r[2] * z);
    places.y[i] = top - size * (r[3] * x + r[4] * y + r[5] * z);
    places.depth[i] = depth;
  }
  return places;
}
