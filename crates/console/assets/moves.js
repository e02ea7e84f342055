// Moves, isolation and rebalancing: the plan is shown first, and nothing is done before it is confirmed.

import { get, path, post } from "./api.js";
import { bytes, confirm, count, failure, h, number, put, rangeText, rate } from "./dom.js";

const MINUTE_MS = 60_000;

const loads = (part) => ({
  rows: part.datasets.reduce((sum, data) => sum + data.rows, 0),
  bytes: part.datasets.reduce((sum, data) => sum + data.bytes, 0),
});

const cell = (label, className, ...content) => h("td", { "data-label": label, className }, ...content);

// A table whose heads from `numbers` on are of numbers.
function table(id, heads, numbers, rows) {
  const head = (name, at) => h("th", { scope: "col", className: at >= numbers ? "num" : "" }, name);
  return h(
    "table",
    { className: "cards", id },
    h("thead", {}, h("tr", {}, heads.map(head))),
    h("tbody", {}, rows),
  );
}

function planTable(parts) {
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
  return table("plan", ["What", "From", "To", "Rows", "About"], 3, rows);
}

// Does it, and tells where to follow it, or what went wrong.
async function attempt(said, work) {
  try {
    await work();
  } catch (error) {
    if (!error.code) throw error;
    put(said, failure(error));
  }
}

const notice = (said, id, ...words) => put(said, h("div", { className: "notice", id }, ...words));
const follow = (id, words) => h("a", { href: `#/operations/${id}` }, words);
const field = (id, label, input) => h("label", { className: "field", htmlFor: id }, label, input);
const option = (value, words) => h("option", { value }, words);
const keepField = () => h("input", { type: "number", id: "keep", min: 0, max: 1440, value: 5, size: 5 });
const keepMs = (keep) => Number(keep.value) * MINUTE_MS;

// Asks where a range shall go, shows what that comes to, and begins it. `said` is where the outcome is told.
export async function move(map, range, { from, shards, said }) {
  const others = shards.filter((shard) => shard !== from);
  const target = h("select", { id: "target" }, others.map((shard) => option(shard, shard)));
  const keep = keepField();
  const asked = await confirm(
    `Move ${rangeText(range)} of ${map}`,
    [
      h("p", {}, "Requests go on while rows are copied; they wait for moments when the range is switched."),
      field("target", "To shard", target),
      field("keep", "Minutes in which it can be undone", keep),
    ],
    { word: "Show the plan" },
  );
  if (!asked) return;
  const body = { range, to: target.value, keep_ms: keepMs(keep) };
  await attempt(said, async () => {
    const plan = await post(path("maps", map, "moves"), { ...body, dry_run: true });
    if (plan.parts.length === 0) return notice(said, "even", "Everything is there already.");
    if (!(await confirm("The plan", [planTable(plan.parts)], { word: "Move it" }))) return;
    const begun = await post(path("maps", map, "moves"), body);
    const links = begun.parts
      .filter((part) => part.operation)
      .map((part) => follow(part.operation, `${part.from} → ${part.to} `));
    if (begun.procedure) links.push(follow(begun.procedure, `${rangeText(range)} in parts`));
    notice(said, "begun", "Begun: ", links);
  });
}

// Gives a range a shard of its own: asks which, shows the steps, and begins them.
export async function isolate(map, range, { from, shards, said }) {
  const others = shards.filter((shard) => shard !== from);
  const target = h(
    "select",
    { id: "target" },
    option("", "an empty one, or a new one"),
    others.map((shard) => option(shard, shard)),
  );
  const keep = keepField();
  const asked = await confirm(
    `Isolate ${rangeText(range)} of ${map}`,
    [
      h("p", {}, "It gets a shard to itself, and a rule keeps everything else away from there."),
      field("target", "On shard", target),
      field("keep", "Minutes in which the move can be undone", keep),
    ],
    { word: "Show the plan" },
  );
  if (!asked) return;
  const body = { range, keep_ms: keepMs(keep), ...(target.value ? { to: target.value } : {}) };
  await attempt(said, async () => {
    const plan = await post(path("maps", map, "isolate"), { ...body, dry_run: true });
    const lines = [
      h("ol", { id: "steps" }, plan.steps.map((step) => h("li", {}, step))),
      plan.parts.length > 0 ? planTable(plan.parts) : null,
    ];
    if (!(await confirm("The plan", lines.filter(Boolean), { word: "Isolate it" }))) return;
    const begun = await post(path("maps", map, "isolate"), body);
    notice(said, "begun", "Begun: ", follow(begun.procedure, `isolate ${rangeText(range)}`));
  });
}

function shardTable(shards) {
  const change = (label, before, after, form) =>
    cell(label, "num", before === after ? form(before) : `${form(before)} → ${form(after)}`);
  const rows = shards.map((shard) =>
    h(
      "tr",
      {},
      cell("shard", "", shard.shard),
      change("rows", shard.rows, shard.rows_after, number),
      change("bytes", shard.bytes, shard.bytes_after, bytes),
      change("requests/s", shard.requests_per_s, shard.requests_per_s_after, rate),
    ),
  );
  return table("after", ["Shard", "Rows", "About", "Requests/s"], 1, rows);
}

function moveTable(moves) {
  const rows = moves.map((one) =>
    h(
      "tr",
      {},
      cell("what", "", h("code", {}, rangeText(one.range))),
      cell("from", "", one.from),
      cell("to", "", one.to),
      cell("why", "small dim", one.why),
      cell("rows", "num", number(one.rows)),
      cell("bytes", "num", bytes(one.bytes)),
    ),
  );
  return table("plan", ["What", "From", "To", "Why", "Rows", "About"], 4, rows);
}

// Asks what to even out, or which shard to empty; shows what that comes to, and begins it.
export async function rebalance(map, shards, said) {
  const by = h(
    "select",
    { id: "by" },
    option("load", "load: requests and bytes"),
    option("requests", "requests"),
    option("bytes", "bytes"),
    option("rows", "rows"),
  );
  const drain = h(
    "select",
    { id: "drain" },
    option("", "none: even out all"),
    shards.map((shard) => option(shard, shard)),
  );
  const { rules } = await get("/v1/rules");
  const heeded = rules.filter((rule) => rule.map === map).map((rule) => h("li", {}, rule.says));
  const fields = [
    field("by", "Even out", by),
    field("drain", "Empty a shard", drain),
    h("p", { className: "small" }, heeded.length > 0 ? "Rules that are heeded:" : "This map has no rules."),
    h("ul", { className: "small", id: "rules" }, heeded),
  ];
  if (!(await confirm(`Rebalance ${map}`, fields, { word: "Show the plan" }))) return;
  const query = `?by=${by.value}${drain.value ? `&drain=${encodeURIComponent(drain.value)}` : ""}`;
  await attempt(said, async () => {
    const plan = await get(path("maps", map, "balance") + query);
    const notes = (plan.notes ?? []).map((note) => h("p", { className: "small" }, note));
    if (plan.by_itself) notes.push(h("p", { className: "small dim" }, `By itself: ${plan.by_itself}.`));
    if (plan.moves.length === 0) {
      return notice(said, "even", "It is spread evenly enough; nothing to do.", notes);
    }
    const lines = [shardTable(plan.shards), moveTable(plan.moves), ...notes];
    const word = `Begin ${count(plan.moves.length, "move")}`;
    if (!(await confirm(`Rebalance ${map}`, lines, { word }))) return;
    const begun = await post(path("maps", map, "rebalance") + query);
    if (!begun.procedure) return notice(said, "even", "It has become even meanwhile; nothing to do.");
    notice(said, "begun", "Begun: ", follow(begun.procedure, `${count(begun.moves.length, "move")} of ${map}`));
  });
}
