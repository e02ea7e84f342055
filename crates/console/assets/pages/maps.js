// Maps: the key space coloured by shard, from afar down to single entries; where a key is, and why.

import { get, path, post } from "../api.js";
import { ring, ringAt, strip } from "../charts.js";
import { colour, themes } from "../colours.js";
import { confirm, failure, h, keyText, number, rangeText, stateChip, put } from "../dom.js";
import { live } from "../live.js";
import { isolate, move, rebalance } from "../moves.js";

// Entries listed below the strip; the strip itself shows any number.
const LISTED = 100;

export default async function maps(into, [chosen, key], { status, signal }) {
  if (status.maps.length === 0) {
    into.append(
      h("h1", {}, "Maps"),
      h(
        "div",
        { className: "notice" },
        "There is no map yet. A map says which key is on which shard; make one with ",
        h("code", {}, "polyshard map create tenants --kind hash --key bigint"),
        ".",
      ),
    );
    return;
  }
  const map = status.maps.find((one) => one.name === chosen) ?? status.maps[0];
  const choose = h(
    "select",
    {
      "aria-label": "Map",
      onchange: () => {
        location.hash = `#/maps/${choose.value}`;
      },
    },
    status.maps.map((one) => h("option", { value: one.name, selected: one === map }, one.name)),
  );
  const view = new MapView(map, status, signal);
  const search = searchForm(map, view, key);
  const said = h("div", { "aria-live": "polite" });
  into.append(
    h(
      "div",
      { className: "head" },
      h("h1", {}, "Maps"),
      choose,
      h("span", { className: "grow" }),
      h("button", { id: "rebalance", onclick: () => rebalance(map.name, view.shards, said) }, "Rebalance…"),
    ),
    said,
    facts(map),
    search.form,
    search.answer,
    ...view.elements,
  );
  await view.load({ first: 0, count: null });
  into.addEventListener("shown", async () => {
    view.draw();
    if (key) await search.find();
  });
}

function facts(map) {
  const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
  return h(
    "dl",
    { className: "facts panel" },
    fact("kind", map.kind.replace("_", " + ")),
    fact("key", map.key),
    fact("entries", number(map.entries)),
    map.hash ? fact("buckets", number(map.hash.buckets)) : null,
    fact("shards", number(Object.keys(map.by_shard).length)),
    fact("epoch", number(map.epoch)),
    fact("version", number(map.version)),
  );
}

function searchForm(map, view, given) {
  const field = h("input", { type: "search", value: given ?? "", placeholder: map.key, id: "key", size: 28 });
  const answer = h("div", { "aria-live": "polite" });
  async function find() {
    if (!field.value) return;
    try {
      const found = await get(`${path("maps", map.name, "shardlet")}?key=${encodeURIComponent(field.value)}`);
      put(answer, why(map, found));
      await view.goTo(map.kind === "hash" ? found.bucket : found.position);
    } catch (error) {
      if (!error.code) throw error;
      put(answer, failure(error));
    }
  }
  const form = h(
    "form",
    {
      className: "row",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        find();
      },
    },
    h("label", { className: "field", htmlFor: "key" }, "Where is the key", field),
    h("button", { className: "main" }, "Find"),
  );
  return { form, answer, find };
}

function why(map, { located, bucket }) {
  const shown = keyText(located.key);
  const steps = [
    h("li", {}, "The key ", h("code", {}, shown), ` is a ${map.key}.`),
    bucket === null
      ? null
      : h(
          "li",
          {},
          `${map.hash.function} with seed ${map.hash.seed} puts it in bucket ${number(bucket)} of `,
          `${number(map.hash.buckets)}.`,
        ),
    h(
      "li",
      {},
      "The entry ",
      h("code", {}, rangeText(located.range)),
      " holds it, ",
      stateChip(located.state),
      ".",
    ),
    h(
      "li",
      {},
      "This entry points to ",
      h("strong", {}, swatch(located.shard), located.shard),
      `, as of epoch ${number(located.epoch)}.`,
    ),
  ];
  return h(
    "div",
    { className: "panel", id: "found" },
    h("strong", {}, shown, " is on ", swatch(located.shard), located.shard),
    h("ol", { className: "why" }, steps),
    h(
      "a",
      { href: `#/shardlets/${encodeURIComponent(map.name)}/${encodeURIComponent(shown)}` },
      "Everything of this shardlet",
    ),
  );
}

function swatch(shard) {
  const square = h("span", { className: "swatch" });
  square.style.background = colour(shard);
  return square;
}

class MapView {
  constructor(map, status, signal) {
    this.map = map;
    this.shards = status.shards.map((shard) => shard.id);
    this.window = null;
    this.whole = null;
    this.view = null;
    this.mark = null;
    this.round = false;
    this.overview = h("canvas", { className: "overview", "aria-hidden": "true" });
    this.canvas = h("canvas", {
      className: "strip",
      tabIndex: 0,
      role: "img",
      "aria-label": `The key space of ${map.name} by shard. Arrow keys move, plus and minus zoom, 0 shows all.`,
    });
    this.ring = h("canvas", {
      className: "ring",
      role: "img",
      "aria-label": `The buckets of ${map.name} by shard`,
      hidden: true,
    });
    this.ends = h("div", { className: "ends" });
    this.where = h("span", { className: "small dim", "aria-live": "polite" });
    this.details = h("div");
    this.list = h("div");
    this.legend = h("ul", { className: "legend", "aria-label": "Shards" });
    this.tip = h("div", { className: "tip", hidden: true });
    const button = (label, text, work) =>
      h("button", { type: "button", "aria-label": label, title: label, onclick: work }, text);
    const shape =
      map.kind === "hash"
        ? h(
            "button",
            {
              type: "button",
              id: "shape",
              onclick: () => {
                this.round = !this.round;
                shape.textContent = this.round ? "As a strip" : "As a ring";
                this.draw();
              },
            },
            "As a ring",
          )
        : null;
    this.elements = [
      h("h2", {}, "Key space"),
      this.overview,
      this.canvas,
      this.ring,
      this.ends,
      h(
        "div",
        { className: "zoom" },
        button("Zoom in", "+", () => this.zoom(4)),
        button("Zoom out", "−", () => this.zoom(1 / 4)),
        button("To the left", "←", () => this.pan(-0.5)),
        button("To the right", "→", () => this.pan(0.5)),
        button("Show all", "All", () => this.load({ first: 0, count: null })),
        shape,
        this.where,
      ),
      this.legend,
      this.details,
      this.list,
      this.tip,
    ];
    this.listen(signal);
  }

  listen(signal) {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return this.view.first + ((event.clientX - box.left) / box.width) * this.view.count;
    };
    let dragged = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      dragged = { x: event.clientX, first: this.view.first, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!dragged) return this.hover(event, this.pieceAt(at(event)));
      const moved = event.clientX - dragged.x;
      if (Math.abs(moved) > 4) dragged.moved = true;
      if (dragged.moved) {
        const width = this.canvas.getBoundingClientRect().width;
        this.look({ first: dragged.first - (moved / width) * this.view.count, count: this.view.count });
      }
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const click = dragged && !dragged.moved;
      dragged = null;
      if (click) this.choose(this.pieceAt(at(event)), at(event));
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.tip.hidden = true;
    });
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 1.5 : 1 / 1.5, at(event));
      },
      { passive: false },
    );
    this.canvas.addEventListener("keydown", (event) => {
      const work = {
        ArrowLeft: () => this.pan(-0.25),
        ArrowRight: () => this.pan(0.25),
        "+": () => this.zoom(2),
        "=": () => this.zoom(2),
        "-": () => this.zoom(0.5),
        0: () => this.load({ first: 0, count: null }),
        Home: () => this.look({ ...this.view, first: 0 }),
        End: () => this.look({ ...this.view, first: Infinity }),
      }[event.key];
      if (!work) return;
      event.preventDefault();
      work();
    });
    this.overview.addEventListener("click", (event) => {
      const box = this.overview.getBoundingClientRect();
      const middle = ((event.clientX - box.left) / box.width) * this.window.total;
      this.look({ first: middle - this.view.count / 2, count: this.view.count });
    });
    this.ring.addEventListener("click", (event) => {
      const position = ringAt(this.ring, event, this.window.total);
      if (position !== null) this.choose(this.pieceAt(position), position);
    });
    this.ring.addEventListener("pointermove", (event) => {
      const position = ringAt(this.ring, event, this.window.total);
      this.hover(event, position === null ? null : this.pieceAt(position));
    });
    const redraw = () => this.draw();
    addEventListener("resize", redraw, { signal });
    themes.addEventListener("change", redraw, { signal });
    // A change of any map shows as a new number; the same part is read again.
    let seq = null;
    live.addEventListener(
      "tick",
      ({ detail }) => {
        if (seq !== null && detail.seq !== seq) this.load(this.view, { keep: true }).catch(() => {});
        seq = detail.seq;
      },
      { signal },
    );
  }

  // Reads a part of the map; no more pieces than there are points to draw them with.
  async load({ first, count }, { keep = false } = {}) {
    const width = Math.round(this.canvas.getBoundingClientRect().width) || 1200;
    const query = new URLSearchParams({
      first: Math.max(0, Math.floor(first)),
      pieces: Math.min(width, 1500),
    });
    if (count !== null) query.set("count", Math.max(1, Math.ceil(count)));
    const mine = (this.asked = {});
    const answer = await get(`${path("maps", this.map.name, "window")}?${query}`);
    if (mine !== this.asked) return;
    this.window = answer;
    if (answer.count === answer.total) this.whole = answer;
    if (!keep) this.view = { first: answer.first, count: Math.max(1, answer.count) };
    this.draw();
    this.say();
  }

  // Shows another part: at once from what is here, then exactly.
  look({ first, count }) {
    const total = this.window.total;
    count = Math.min(Math.max(count, Math.min(1, total)), total);
    first = Math.min(Math.max(first, 0), total - count);
    this.view = { first, count };
    this.draw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.load(this.view).catch((error) => put(this.list, failure(error))), 60);
  }

  zoom(times, around = this.view.first + this.view.count / 2) {
    const count = Math.max(this.view.count / times, Math.min(4, this.window.total));
    const part = (around - this.view.first) / this.view.count;
    this.look({ first: around - part * count, count });
  }

  pan(part) {
    this.look({ first: this.view.first + part * this.view.count, count: this.view.count });
  }

  async goTo(position) {
    this.mark = position;
    const total = this.window.total;
    const count = this.map.kind === "hash" ? total : Math.min(total, 40);
    this.look({ first: position - count / 2, count });
  }

  pieceAt(position) {
    return this.window.pieces.find(
      (piece) => position >= piece.first && position < piece.first + piece.count,
    );
  }

  hover(event, piece) {
    this.tip.hidden = !piece;
    if (!piece) return;
    this.tip.textContent = describe(piece, this.window.unit);
    this.tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 330)}px`;
    this.tip.style.top = `${event.clientY + 18}px`;
  }

  choose(piece, position) {
    this.tip.hidden = true;
    if (!piece) return;
    if (!piece.entry) return this.zoom(8, position);
    put(
      this.details,
      entryPanel(this.map, this.window, piece, this.shards, () => this.load(this.view)),
    );
  }

  draw() {
    if (!this.window || !this.canvas.isConnected) return;
    const { pieces, total } = this.window;
    this.ring.hidden = !this.round;
    this.canvas.hidden = this.overview.hidden = this.ends.hidden = this.round;
    if (this.round) return ring(this.ring, (this.whole ?? this.window).pieces, total, this.mark);
    const near = this.view.count < total;
    this.overview.hidden = !near;
    if (near && this.whole)
      strip(this.overview, this.whole.pieces, { first: 0, count: total }, { brush: this.view });
    strip(this.canvas, pieces, this.view, { mark: this.mark });
  }

  say() {
    const { unit, total, first, count, from, to, pieces } = this.window;
    const what = unit === "bucket" ? "buckets" : "entries";
    this.where.textContent =
      total === 0
        ? "Nothing is mapped yet."
        : `${what} ${number(first)} – ${number(first + count - 1)} of ${number(total)}`;
    put(this.ends, h("span", {}, rangeText(from)), h("span", {}, rangeText(to)));
    const sums = new Map();
    for (const part of pieces.flatMap((piece) => piece.shards)) {
      sums.set(part.shard, (sums.get(part.shard) ?? 0) + part.count);
    }
    const largest = [...sums].sort((a, b) => b[1] - a[1]);
    put(
      this.legend,
      ...largest.map(([shard, sum]) =>
        h("li", {}, swatch(shard), shard, h("span", { className: "dim" }, ` ${percent(sum, count)}`)),
      ),
    );
    const entries = pieces.filter((piece) => piece.entry);
    if (entries.length < pieces.length || entries.length === 0) {
      put(
        this.list,
        total === 0
          ? ""
          : h("p", { className: "dim small" }, "Zoom in, or choose a piece, to see single entries."),
      );
      return;
    }
    put(
      this.list,
      h("h2", {}, "Entries"),
      entries.length > LISTED
        ? h("p", { className: "dim small" }, `The first ${LISTED} of those shown above.`)
        : null,
      h(
        "div",
        { className: "scroll" },
        entryTable(entries.slice(0, LISTED), (piece) => this.choose(piece, piece.first)),
      ),
    );
  }
}

const percent = (part, whole) => `${((part / whole) * 100).toFixed(part / whole < 0.01 ? 2 : 0)} %`;

function describe(piece, unit) {
  if (piece.entry) return `${rangeText(piece.entry.range)} → ${piece.entry.shard} (${piece.entry.state})`;
  const shards = piece.shards.map((part) => `${part.shard} ${number(part.count)}`).join(", ");
  const what = unit === "bucket" ? "buckets" : "entries";
  return `${what} ${number(piece.first)} – ${number(piece.first + piece.count - 1)}: ${shards}`;
}

function entryTable(pieces, choose) {
  const rows = pieces.map((piece) => {
    const { range, shard, state, epoch, group, lock } = piece.entry;
    const cell = (label, ...content) => h("td", { "data-label": label }, ...content);
    return h(
      "tr",
      {},
      cell("keys", h("code", {}, rangeText(range))),
      cell("shard", swatch(shard), shard),
      cell("state", stateChip(state)),
      cell("epoch", number(epoch)),
      cell("group", group ?? ""),
      cell("lock", lock ? `${lock.owner}` : ""),
      h("td", {}, h("button", { onclick: () => choose(piece) }, "Open")),
    );
  });
  return h(
    "table",
    { className: "cards" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        ["Keys", "Shard", "State", "Epoch", "Group", "Locked by", ""].map((name) =>
          h("th", { scope: "col" }, name),
        ),
      ),
    ),
    h("tbody", {}, rows),
  );
}

// One entry with what can be done about it. What will be sent is shown before.
function entryPanel(map, window, piece, shards, reload) {
  const { entry } = piece;
  const said = h("div", { "aria-live": "polite" });
  async function change(title, body, danger = false) {
    const lines = [
      h(
        "p",
        {},
        `Map ${map.name}, ${rangeText(entry.range)}, now on ${entry.shard}. No data moves. Requests under way `,
        "are waited for; new ones wait meanwhile.",
      ),
      h(
        "pre",
        {},
        `POST /v1/maps/${map.name}/changes\nIf-Match: "${window.version}"\n${JSON.stringify(body, null, 2)}`,
      ),
    ];
    if (!(await confirm(title, lines, { danger }))) return;
    try {
      const done = await post(path("maps", map.name, "changes"), body, { "if-match": `"${window.version}"` });
      put(
        said,
        h(
          "div",
          { className: "notice" },
          `Done; the map is at version ${done.map.version}. `,
          h("a", { href: `#/operations/${done.operation}` }, "The operation"),
        ),
      );
      await reload();
    } catch (error) {
      put(said, failure(error));
    }
  }
  const range = entry.range;
  const states = ["online", "read_only", "offline"].filter((state) => state !== entry.state);
  const words = { online: "Bring online", read_only: "Make read-only", offline: "Take offline" };
  return h(
    "div",
    { className: "panel", id: "entry" },
    h("strong", {}, h("code", {}, rangeText(range))),
    " → ",
    swatch(entry.shard),
    entry.shard,
    " ",
    stateChip(entry.state),
    h(
      "div",
      { className: "small dim" },
      `epoch ${number(entry.epoch)}`,
      entry.lock
        ? `, locked by ${entry.lock.owner} until ${new Date(entry.lock.until_ms).toLocaleString()}`
        : "",
    ),
    h(
      "div",
      { className: "actions" },
      h(
        "button",
        { id: "move", onclick: () => move(map.name, range, { from: entry.shard, shards, said }) },
        "Move…",
      ),
      h(
        "button",
        { id: "isolate", onclick: () => isolate(map.name, range, { from: entry.shard, shards, said }) },
        "Isolate…",
      ),
      states.map((state) =>
        h(
          "button",
          {
            className: state === "offline" ? "danger" : "",
            onclick: () => change(`${words[state]}?`, { set_state: { range, state } }, state === "offline"),
          },
          words[state],
        ),
      ),
      entry.lock
        ? h("button", { onclick: () => change("Break the lock?", { unlock: { range } }) }, "Break the lock")
        : null,
    ),
    said,
  );
}
