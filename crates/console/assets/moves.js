// Moves and rebalancing: the plan is shown first, and nothing is done before it is confirmed.

import { get, path, post } from "./api.js";
import { bytes, confirm, failure, h, number, put, rangeText } from "./dom.js";

const MINUTE_MS = 60_000;

const loads = (part) => ({
  rows: part.datasets.reduce((sum, data) => sum + data.rows, 0),
  bytes: part.datasets.reduce((sum, data) => sum + data.bytes, 0),
});

function planTable(parts) {
  const cell = (label, className, ...content) => h("td", { "data-label": label, className }, ...content);
  const rows = parts.map((part) => {
    const load = loads(part);
    return h(
      "tr",
      {},
      cell("what", "", h("code", {}, rangeText(part.range))),
      cell("from", "", part.from),
      cell("to", "", part.to),
      cell("rows", "num", number(load.rows)),
      cell("bytes", "num", bytes(load.bytes)),
    );
  });
  const heads = ["What", "From", "To", "Rows", "About"];
  const head = (name, at) => h("th", { scope: "col", className: at > 2 ? "num" : "" }, name);
  return h(
    "table",
    { className: "cards", id: "plan" },
    h("thead", {}, h("tr", {}, heads.map(head))),
    h("tbody", {}, rows),
  );
}

// Asks where a range shall go, shows what that comes to, and begins it. `said` is where the outcome is told.
export async function move(map, range, { from, shards, said }) {
  const target = h(
    "select",
    { id: "target", "aria-label": "To shard" },
    shards.filter((shard) => shard !== from).map((shard) => h("option", { value: shard }, shard)),
  );
  const keep = h("input", { type: "number", id: "keep", min: 0, max: 1440, value: 5, size: 5 });
  const asked = await confirm(
    `Move ${rangeText(range)} of ${map}`,
    [
      h("p", {}, "Requests go on while rows are copied; they wait for moments when the range is switched."),
      h("label", { className: "field", htmlFor: "target" }, "To shard", target),
      h("label", { className: "field", htmlFor: "keep" }, "Minutes in which it can be undone", keep),
    ],
    { word: "Show the plan" },
  );
  if (!asked) return;
  const body = { range, to: target.value, keep_ms: Number(keep.value) * MINUTE_MS };
  try {
    const plan = await post(path("maps", map, "moves"), { ...body, dry_run: true });
    if (plan.parts.length === 0)
      return put(said, h("div", { className: "notice" }, "Everything is there already."));
    if (!(await confirm("The plan", [planTable(plan.parts)], { word: "Move it" }))) return;
    const begun = await post(path("maps", map, "moves"), body);
    put(said, begunNotice(begun.parts));
  } catch (error) {
    if (!error.code) throw error;
    put(said, failure(error));
  }
}

function begunNotice(parts) {
  const links = parts
    .filter((part) => part.operation)
    .map((part) => h("a", { href: `#/operations/${part.operation}` }, `${part.from} → ${part.to} `));
  return h("div", { className: "notice", id: "begun" }, "Begun: ", links);
}

// Shows how uneven a map is and what would even it out, and begins it.
export async function rebalance(map, said) {
  try {
    const plan = await get(path("maps", map, "balance"));
    if (plan.moves.length === 0) {
      return put(
        said,
        h("div", { className: "notice", id: "even" }, "The rows are spread evenly enough; nothing to do."),
      );
    }
    const shards = plan.shards.map((shard) =>
      h("li", {}, `${shard.shard}: ${number(shard.rows)} rows now, ${number(shard.rows_after)} after`),
    );
    const moves = plan.moves.map((one) => ({ ...one, datasets: [{ rows: one.rows, bytes: 0 }] }));
    const lines = [h("ul", { className: "small" }, shards), planTable(moves)];
    if (!(await confirm(`Rebalance ${map}`, lines, { word: `Begin ${plan.moves.length} moves` }))) return;
    const parts = [];
    for (const one of plan.moves) {
      const begun = await post(path("maps", map, "moves"), { range: one.range, to: one.to });
      parts.push(...begun.parts);
      put(said, begunNotice(parts));
    }
  } catch (error) {
    if (!error.code) throw error;
    put(said, failure(error));
  }
}
