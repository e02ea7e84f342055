// Operations: changes and moves under way, with what can be done about them, and history.

import { get, path, post } from "../api.js";
import { ago, confirm, failure, h, number, put } from "../dom.js";
import { last, live } from "../live.js";

// What an operator may do to an operation, if the server offers it.
const ACTIONS = {
  pause: { word: "Pause", when: (op) => op.state === "running" },
  resume: { word: "Resume", when: (op) => op.state === "running" || op.state === "paused" },
  cancel: { word: "Cancel", when: (op) => op.state === "running" || op.state === "paused", danger: true },
  undo: { word: "Undo", when: (op) => op.state === "running" || op.state === "done", danger: true },
};
const KNOWN = ["id", "kind", "map", "state", "step", "started_ms", "message"];

export default async function operations(into, [id], { signal }) {
  const [answer, document] = await Promise.all([get("/v1/operations"), get("/v1/openapi.json")]);
  const offered = Object.keys(ACTIONS).filter((action) => document.paths[`/v1/operations/{id}/${action}`]);
  into.append(h("div", { className: "head" }, h("h1", {}, "Operations")));
  if (id) return single(into, id, offered, signal);
  const body = h("tbody");
  const none = h("p", { className: "dim" }, "Nothing was changed yet.");
  function draw(list) {
    none.hidden = list.length > 0;
    put(body, ...list.map(row));
  }
  draw(answer.operations);
  live.addEventListener(
    "tick",
    ({ detail }) => {
      if (detail.operations) draw(detail.operations);
    },
    { signal },
  );
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
            ["Operation", "Map", "State", "Step", "Began", "Why"].map((name) =>
              h("th", { scope: "col" }, name),
            ),
          ),
        ),
        body,
      ),
    ),
    none,
    h(
      "p",
      { className: "small dim" },
      "Unfinished operations first look the same after a crash: whoever takes over carries ",
      "them on or rolls them back by itself.",
    ),
  );
}

const chip = (state) =>
  h(
    "span",
    {
      className: `chip ${
        { running: "warn", done: "good", rolled_back: "dim", failed: "bad", cancelled: "dim" }[state] ?? "dim"
      }`,
    },
    state.replace("_", " "),
  );

function row(op) {
  const cell = (label, ...content) => h("td", { "data-label": label }, ...content);
  return h(
    "tr",
    {},
    cell("operation", h("a", { href: `#/operations/${op.id}` }, op.kind.replaceAll("_", " "))),
    cell("map", op.map ?? "–"),
    cell("state", chip(op.state)),
    cell("step", op.step.replaceAll("_", " ")),
    cell("began", ago(op.started_ms)),
    cell("why", op.message ?? ""),
  );
}

async function single(into, id, offered, signal) {
  const box = h("div");
  const said = h("div", { "aria-live": "polite" });
  async function act(op, action) {
    const { word, danger } = ACTIONS[action];
    if (
      !(await confirm(
        `${word} this operation?`,
        [h("p", {}, `${op.kind} of map ${op.map ?? "–"}, now ${op.step}.`)],
        { word, danger },
      ))
    )
      return;
    try {
      await post(path("operations", id, action), {});
      put(said, h("div", { className: "notice" }, `${word}: asked for.`));
      draw(await get(path("operations", id)));
    } catch (error) {
      put(said, failure(error));
    }
  }
  function draw(op) {
    const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
    const more = Object.entries(op)
      .filter(([name]) => !KNOWN.includes(name))
      .flatMap(([name, value]) =>
        value !== null && typeof value === "object" && !Array.isArray(value)
          ? Object.entries(value).map(([inner, one]) => [`${name} ${inner}`, one])
          : [[name, value]],
      );
    put(
      box,
      h(
        "dl",
        { className: "facts panel", id: "operation" },
        fact("kind", op.kind.replaceAll("_", " ")),
        fact("map", op.map ?? "–"),
        fact("state", chip(op.state)),
        fact("step", op.step.replaceAll("_", " ")),
        fact("began", `${new Date(op.started_ms).toLocaleString()}`),
        more.map(([name, value]) =>
          fact(
            name.replaceAll("_", " "),
            typeof value === "number"
              ? number(value)
              : typeof value === "string"
                ? value
                : JSON.stringify(value),
          ),
        ),
        op.message ? fact("why", op.message) : null,
        fact("id", h("code", {}, op.id)),
      ),
      h(
        "div",
        { className: "actions" },
        offered
          .filter((action) => ACTIONS[action].when(op))
          .map((action) =>
            h(
              "button",
              { className: ACTIONS[action].danger ? "danger" : "", onclick: () => act(op, action) },
              ACTIONS[action].word,
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
  void last;
}
