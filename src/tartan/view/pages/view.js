"use strict";

// The page of a run: its state, the matrix, one item or pair, and the sections of the report.
const byId = (id) => document.getElementById(id);

// Make an element; texts are written as texts.
function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name === "onclick") element.addEventListener("click", value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

async function ask(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

const go = (hash) => {
  if (location.hash === hash) show();
  else location.hash = hash;
};

const matrix = new MatrixView(byId("matrix"), {
  coloured: (scale, reading) => {
    byId("far").textContent = `different ${scale.far}`;
    byId("near").textContent = `${scale.near} similar`;
    byId("unit").textContent = reading ? `${scale.name} · still reading` : scale.name;
  },
  painted: () => beside.paint(),
  moved: (row, column) => {
    clearTimeout(matrix.timer);
    matrix.timer = setTimeout(() => tellCell(row, column), 90);
  },
  chosen: async (row, column) => {
    try {
      const cell = await ask(`/cell/${row}/${column}`);
      go(cell.a.item === cell.b.item ? `#item=${cell.a.item}` : `#pair=${cell.a.item},${cell.b.item}`);
    } catch (error) {
      byId("cell").textContent = error.message;
    }
  },
});

const beside = new BesideView(matrix, { tree: byId("beside-tree"), rows: byId("beside-rows"), columns: byId("beside-columns") });

async function tellCell(row, column) {
  try {
    const cell = await ask(`/cell/${row}/${column}`);
    const same = cell.a.item === cell.b.item;
    byId("cell").textContent = same ? cell.a.key : `${cell.a.key} · ${cell.b.key}: ${cell.score ?? "not known"}`;
  } catch (error) {
    byId("cell").textContent = error.message;
  }
}

let shownVersion = "", bodyVersion = "";

async function refresh() {
  let wait = 2000;
  try {
    const state = await ask("/state");
    byId("about").textContent = `${state.n_items.toLocaleString("en")} items compared by ${state.application}`;
    byId("said").textContent = [state.finished ? "finished" : "in progress", state.said, state.failures]
      .filter(Boolean).join(" · ");
    byId("filled").style.width = `${100 * state.share}%`;
    byId("progress").setAttribute("aria-valuenow", String(Math.floor(100 * state.share)));
    if (state.version !== shownVersion) {
      shownVersion = state.version;
      matrix.show({ rows: state.rows, columns: state.columns, levels: state.levels, tile: state.tile }, state.version);
    }
    if (state.version !== bodyVersion) await refreshBody(state.version);
    wait = state.finished ? 15000 : 2000;
  } catch {
    byId("said").textContent = "tartan view has ended, or does not answer; this page shows what it had";
    wait = 5000;
  }
  setTimeout(refresh, wait);
}

async function refreshBody(version) {
  const answer = await fetch("/body");
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  byId("body").replaceChildren(...page.body.children);
  markScrolling(document);
  startMaps(byId("body"));
  beside.show(await ask("/beside"), version);
  bodyVersion = version;
}

function drawings(item) {
  return item.drawings.map((title, number) => make("figure", { class: "drawn" },
    make("img", { src: `/drawing/${item.item}/${number}.png`, alt: `${title} of ${item.key}` }),
    make("figcaption", {}, title)));
}

function facts(item) {
  const list = make("dl", { class: "facts" });
  for (const [name, value] of item.facts) list.append(make("dt", {}, name), make("dd", {}, value));
  return item.problem ? [list, make("p", { class: "hint" }, `Not drawn: ${item.problem}`)] : [list];
}

function itemView(item) {
  const rows = item.neighbours.map((other, place) => make("tr", {},
    make("td", { class: "number" }, String(place + 1)),
    make("td", { class: "key" }, make("button", { type: "button", class: "link", onclick: () => go(`#item=${other.item}`) }, other.key)),
    make("td", { class: "number" }, other.score),
    make("td", { class: "pick" }, make("button", {
      type: "button", "aria-label": `side by side: ${item.key} and ${other.key}`, onclick: () => go(`#pair=${item.item},${other.item}`),
    }, "side by side"))));
  const table = make("table", {},
    make("caption", {}, rows.length ? `The nearest of ${item.n_known.toLocaleString("en")} with a known score` : "No score is known"),
    make("tbody", {}, ...rows));
  return [make("h2", {}, item.key), make("div", { class: "about" }, ...drawings(item), ...facts(item)),
    make("div", { class: "wide" }, table)];
}

function pairView(pair) {
  const scores = Object.entries(pair.scores).map(([name, value]) => `${name} ${value}`).join(" · ") || pair.state;
  const placed = (rank, who, of) => rank.rank
    ? `${who.key} is number ${rank.rank.toLocaleString("en")} of the ${rank.of.toLocaleString("en")} neighbours of ${of.key}.`
    : `${who.key} is not among the ${rank.of.toLocaleString("en")} items that have a score with ${of.key}.`;
  const side = (item) => make("div", { class: "side" },
    make("h3", {}, make("button", { type: "button", class: "link", onclick: () => go(`#item=${item.item}`) }, item.key)),
    ...drawings(item), ...facts(item));
  return [make("h2", {}, "Side by side"), ...(pair.decision ? [make("p", {}, make("strong", {}, pair.decision))] : []),
    make("p", { class: "scores" }, scores),
    ...pair.reasons.map((reason) => make("p", { class: "warn" }, reason)),
    make("p", {}, placed(pair.ranks[0], pair.b, pair.a)), make("p", {}, placed(pair.ranks[1], pair.a, pair.b)),
    make("div", { class: "sides" }, side(pair.a), side(pair.b))];
}

// Show what the address names.
async function show() {
  const asked = location.hash.match(/^#(item|pair)=(\d+)(?:,(\d+))?$/);
  if (!asked) return;
  const [, kind, a, b] = asked;
  const place = byId("shown");
  try {
    place.setAttribute("aria-busy", "true");
    place.replaceChildren(...(kind === "item" ? itemView(await ask(`/item/${a}`)) : pairView(await ask(`/pair/${a}/${b}`))));
  } catch (error) {
    place.replaceChildren(make("p", { class: "warn" }, error.message));
  }
  place.removeAttribute("aria-busy");
  place.focus({ preventScroll: true });
  if (matchMedia("(max-width: 60rem)").matches) place.scrollIntoView({ block: "start" });
}

async function look() {
  const text = byId("text").value.trim(), list = byId("found");
  if (!text) return list.replaceChildren();
  const { items } = await ask(`/find?text=${encodeURIComponent(text)}`);
  if (byId("text").value.trim() !== text) return;
  const chosen = (item) => () => {
    list.replaceChildren();
    go(`#item=${item.item}`);
  };
  list.replaceChildren(...items.map((item) =>
    make("li", {}, make("button", { type: "button", onclick: chosen(item) }, item.key))));
  if (!items.length) list.append(make("li", { class: "hint" }, "no item has this in its name"));
}

let looking = 0;
byId("text").addEventListener("input", () => {
  clearTimeout(looking);
  looking = setTimeout(() => look().catch(() => {}), 120);
});
byId("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  clearTimeout(looking);
  await look().catch(() => {});
  byId("found").querySelector("button")?.click();
});
byId("closer").addEventListener("click", () => matrix.zoom(1.6));
byId("farther").addEventListener("click", () => matrix.zoom(1 / 1.6));
byId("whole").addEventListener("click", () => matrix.reset());
addEventListener("resize", () => markScrolling(document));
addEventListener("hashchange", show);
refresh();
show();
