// Operations: changes and moves under way, with what can be done about them, and history.

import { get, path, post } from "../api.js";
import { ago, bytes, confirm, failure, h, number, put, rangeText } from "../dom.js";
import { live } from "../live.js";

// What is made of several changes and moves: they go on from where they are, or are given up as a whole.
const PROCEDURES = [
  "isolate",
  "rebalance",
  "drain",
  "adopt",
  "offline move",
  "move in parts",
  "archive",
  "archive restore",
  "move old",
  "repair",
];
// Characters of a range in a title: keys may be long.
const WORDS_MAX = 40;
const isProcedure = (op) => PROCEDURES.includes(op.kind);
// The step of the move that is being made; of a procedure it stands behind its own.
const moveStep = (op) => (isProcedure(op) ? /\((\w+)\)$/.exec(op.step)?.[1] : op.step);
// Before these a range has not left its shard.
const EARLY = ["staging", "preparing", "copying", "catching_up", "fencing"];
// What an operator may want of a move, and when that can be.
const WISHES = {
  pause: {
    word: "Pause",
    when: (op) => op.state === "running" && !op.paused && (isProcedure(op) || EARLY.includes(op.step)),
  },
  resume: {
    word: "Resume",
    when: (op) => op.state === "running" && op.paused,
  },
  cancel: {
    word: "Cancel",
    danger: true,
    when: (op) => op.state === "running" && (EARLY.includes(moveStep(op)) || (isProcedure(op) && !moveStep(op))),
  },
  undo: { word: "Undo", danger: true, when: (op) => op.state === "running" && op.step === "keeping" },
  clean: { word: "Clean up now", when: (op) => op.state === "running" && op.step === "keeping" },
};

export default async function operations(into, [id], { signal }) {
  into.append(h("div", { className: "head" }, h("h1", {}, "Operations")));
  if (id) return single(into, id, signal);
  const answer = await get("/v1/operations");
  const body = h("tbody");
  const none = h("p", { className: "dim" }, "Nothing was changed yet.");
  function draw(list) {
    none.hidden = list.length > 0;
    put(body, list.map(row));
  }
  draw(answer.operations);
  live.addEventListener("tick", ({ detail }) => detail.operations && draw(detail.operations), { signal });
  const heads = ["Operation", "Map", "State", "Step", "Progress", "Began", "Why"];
  into.append(
    h(
      "div",
      { className: "scroll" },
      h(
        "table",
        { className: "cards", id: "operations" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        body,
      ),
    ),
    none,
    h(
      "p",
      { className: "small dim" },
      "An operation outlives the process that drives it: after a crash another one carries it on, or rolls it back.",
    ),
  );
}

const KINDS = { running: "warn", done: "good", rolled_back: "dim" };
function chip(op) {
  const word = (op.paused || op.progress?.paused) && op.state === "running" ? "paused" : op.state.replace("_", " ");
  return h("span", { className: `chip ${KINDS[op.state] ?? "dim"}` }, word);
}

function bar(op) {
  if (!op.progress) return "";
  const { copied_rows: copied, total_rows: total } = op.progress;
  const label = `${number(copied)} of ${number(total)} rows copied`;
  return h(
    "span",
    {},
    total + copied > 0 ? h("progress", { max: Math.max(total, copied), value: copied, "aria-label": label }) : null,
    h("span", { className: "small dim line" }, behind(op)),
  );
}

// How far the copy is behind while it runs, and for how long requests were held once they were.
function behind({ state, progress }) {
  if (progress.pause_ms !== undefined && progress.pause_ms !== null) return `held ${number(progress.pause_ms)} ms`;
  return state === "running" && progress.lag_rows > 0 ? `${number(progress.lag_rows)} rows behind` : "";
}

function title(op) {
  const kind = op.kind.replaceAll("_", " ");
  const [first, second] = op.ranges ?? [];
  const words = first ? rangeText(first) : "";
  const what = first ? ` ${words.slice(0, WORDS_MAX)}${second || words.length > WORDS_MAX ? " …" : ""}` : "";
  return op.from && op.to ? `${kind}${what} ${op.from} → ${op.to}` : `${kind}${what}`;
}

function row(op) {
  const cell = (label, ...content) => h("td", { "data-label": label }, ...content);
  const together = (label, ...content) => h("td", { "data-label": label, className: "together" }, ...content);
  return h(
    "tr",
    {},
    together("operation", h("a", { href: `#/operations/${op.id}` }, title(op))),
    cell("map", op.map ?? "–"),
    cell("state", chip(op)),
    cell("step", op.step.replaceAll("_", " ")),
    cell("progress", bar(op)),
    together("began", ago(op.started_ms)),
    h("td", { "data-label": "why", className: "wide" }, op.message ?? ""),
  );
}

const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));

function progressFacts(progress) {
  const rows = (name, value) => fact(name, `${number(value)} rows`);
  const time = (name, ms) => (ms === undefined ? null : fact(name, `${number(ms)} ms`));
  return [
    fact("copied", `${number(progress.copied_rows)} of ${number(progress.total_rows)} rows`),
    fact("bytes", bytes(progress.copied_bytes)),
    rows("compared", progress.verified_rows),
    rows("behind", progress.lag_rows),
    rows("cleaned", progress.cleaned_rows),
    time("requests were held", progress.pause_ms),
    time("left, about", progress.left_ms),
  ];
}

async function single(into, id, signal) {
  const box = h("div");
  const said = h("div", { "aria-live": "polite" });
  async function wish(op, name) {
    const { word, danger } = WISHES[name];
    const lines = [h("p", {}, `${title(op)} of map ${op.map ?? "–"}, now ${op.step.replaceAll("_", " ")}.`)];
    // Two buttons that say Cancel would leave one guessing.
    const no = "Leave it as it is";
    if (!(await confirm(`${word} this operation?`, lines, { word, no, danger }))) return;
    try {
      await post(path("operations", id, "wish"), { wish: name });
      put(said, h("div", { className: "notice" }, `${word}: asked for.`));
      draw(await get(path("operations", id)));
    } catch (error) {
      if (!error.code) throw error;
      put(said, failure(error));
    }
  }
  function draw(op) {
    const moves = op.from || isProcedure(op);
    const wishes = moves ? Object.keys(WISHES).filter((name) => WISHES[name].when(op)) : [];
    put(
      box,
      h(
        "dl",
        { className: "facts panel", id: "operation" },
        fact("kind", op.kind.replaceAll("_", " ")),
        fact("map", op.map ?? "–"),
        op.ranges?.length ? fact("what", op.ranges.map(rangeText).join(", ")) : null,
        fact("state", chip(op)),
        fact("step", op.step.replaceAll("_", " ")),
        op.from ? fact("from", op.from) : null,
        op.to ? fact("to", op.to) : null,
        fact("began", new Date(op.started_ms).toLocaleString()),
        op.progress ? progressFacts(op.progress) : null,
        op.message ? fact("why", op.message) : null,
        fact("id", h("code", {}, op.id)),
      ),
      op.progress ? bar(op) : null,
      h(
        "div",
        { className: "actions" },
        wishes.map((name) =>
          h(
            "button",
            { className: WISHES[name].danger ? "danger" : "", onclick: () => wish(op, name) },
            WISHES[name].word,
          ),
        ),
      ),
    );
  }
  try {
    draw(await get(path("operations", id)));
  } catch (error) {
    if (!error.code) throw error;
    box.append(failure(error));
  }
  into.append(h("p", {}, h("a", { href: "#/operations" }, "All operations")), box, said);
  live.addEventListener(
    "tick",
    ({ detail }) => {
      const op = detail.operations?.find((one) => one.id === id);
      if (op) draw(op);
    },
    { signal },
  );
}
