// Shardlets: those that get the most requests, those that have the most data, and everything that belongs to one.

import { get, path } from "../api.js";
import { colour } from "../colours.js";
import { ago, bytes, count, failure, h, keyText, number, rangeText, rate, stateChip, put } from "../dom.js";
import { live } from "../live.js";
import { isolate, move } from "../moves.js";

export default async function shardlets(into, [map, key], { status, signal }) {
  const shown =
    map && key !== undefined ? await one(map, key, status) : [...(await hot(signal)), ...large(into, signal)];
  into.append(
    h("div", { className: "head" }, h("h1", {}, "Shardlets"), search(status.maps, map, key)),
    ...shown.filter(Boolean),
  );
}

function search(maps, map, key) {
  const choose = h(
    "select",
    { "aria-label": "Map" },
    maps.map((one) => h("option", { value: one.name, selected: one.name === map }, one.name)),
  );
  const field = h("input", { type: "search", placeholder: "key", "aria-label": "Key", value: key ?? "" });
  return h(
    "form",
    {
      className: "row",
      role: "search",
      onsubmit: (event) => {
        event.preventDefault();
        if (field.value)
          location.hash = `#/shardlets/${encodeURIComponent(choose.value)}/${encodeURIComponent(field.value)}`;
      },
    },
    choose,
    field,
    h("button", { className: "main", disabled: maps.length === 0 }, "Open"),
  );
}

const cell = (label, className, ...content) => h("td", { "data-label": label, className }, ...content);

function square(shard) {
  const swatch = h("span", { className: "swatch" });
  swatch.style.background = colour(shard);
  return swatch;
}

function link({ map, key }) {
  const name = keyText(key);
  return h("a", { href: `#/shardlets/${encodeURIComponent(map)}/${encodeURIComponent(name)}` }, name);
}

function table(id, heads, body) {
  return h(
    "div",
    { className: "scroll" },
    h(
      "table",
      { className: "cards", id },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map(([name, kind]) => h("th", { scope: "col", className: kind ?? "" }, name)),
        ),
      ),
      body,
    ),
  );
}

async function hot(signal) {
  const body = h("tbody");
  const none = h("p", { className: "dim" }, "No requests that name a key have come lately.");
  function draw(list) {
    none.hidden = list.length > 0;
    put(
      body,
      ...list.map((one) => {
        return h(
          "tr",
          {},
          cell("key", "", link(one)),
          cell("map", "", one.map),
          cell("shard", "", square(one.shard ?? ""), one.shard ?? "–"),
          cell("requests/s", "num", rate(one.requests_per_s)),
        );
      }),
    );
  }
  draw((await get("/v1/hot?limit=50")).shardlets);
  live.addEventListener("tick", ({ detail }) => draw(detail.hot), { signal });
  const heads = [["Key"], ["Map"], ["Shard"], ["Requests/s", "num"]];
  return [
    h("h2", {}, "The hottest"),
    table("hot", heads, body),
    none,
    h("p", { className: "small dim" }, "Every eighth request is looked at, and older ones weigh less."),
  ];
}

// The largest, read after the page is shown: counting them may take seconds.
function large(into, signal) {
  const body = h("tbody");
  const said = h("p", { className: "small dim", id: "large-said" }, "Counting…");
  into.addEventListener("shown", async () => {
    let answer;
    try {
      answer = await get("/v1/large?limit=50", { signal });
    } catch (error) {
      if (error.name !== "AbortError") put(said, failure(error));
      return;
    }
    put(
      body,
      answer.shardlets.map((one) =>
        h(
          "tr",
          {},
          cell("key", "", one.key === null ? `all keys in bucket ${number(one.bucket)}` : link(one)),
          cell("map", "", one.map),
          cell("shard", "", square(one.shard), one.shard),
          cell("rows", "num", `${one.sampled ? "about " : ""}${number(one.rows)}`),
          cell("about", "num", bytes(one.bytes)),
        ),
      ),
    );
    put(
      said,
      answer.shardlets.length === 0 ? "No rows that a map places were found. " : "",
      `Counted ${ago(answer.at_ms)}, and again when that is a minute old. Bytes are estimated from some rows; `,
      "rows that are marked with “about”, from a sample of a table with more than a million of them.",
    );
    const missing = answer.left_out.map((one) =>
      h("li", {}, `${one.shard}${one.dataset ? ` ${one.dataset}` : ""}: ${one.why}`),
    );
    const more = answer.left_out_more ?? 0;
    if (more > 0) missing.push(h("li", {}, `and ${more} more`));
    if (missing.length > 0) {
      const all = answer.left_out.length + more;
      said.after(h("details", {}, h("summary", {}, `Not counted: ${all}`), h("ul", {}, missing)));
    }
  });
  const heads = [["Key"], ["Map"], ["Shard"], ["Rows", "num"], ["Bytes, about", "num"]];
  return [h("h2", {}, "The largest"), table("large", heads, body), said];
}

async function one(map, key, status) {
  let found;
  try {
    found = await get(`${path("maps", map, "shardlet")}?key=${encodeURIComponent(key)}`);
  } catch (error) {
    if (!error.code) throw error;
    return [failure(error)];
  }
  const { located, bucket, datasets, uncounted } = found;
  const said = h("div", { "aria-live": "polite" });
  const { kind } = status.maps.find((one) => one.name === map) ?? {};
  const whole =
    { list: { key: located.key }, hash: { buckets: [bucket, bucket + 1] } }[kind] ?? located.range;
  const word = { list: "Move this shardlet…", hash: `Move bucket ${bucket}…` }[kind] ?? "Move its entry…";
  const shards = status.shards.map((shard) => shard.id);
  const fact = (name, ...value) => h("div", {}, h("dt", {}, name), h("dd", {}, ...value));
  // Those that hold nothing of it may be many, as with a queue for each tenant.
  const empty = datasets.filter((data) => data.rows === 0);
  const held = datasets.filter((data) => data.rows !== 0);
  const rows = held.map((data) =>
    h(
      "tr",
      {},
      h("td", { "data-label": "dataset" }, h("code", {}, data.dataset)),
      h(
        "td",
        { "data-label": "rows", className: "num" },
        data.rows === null ? "–" : data.rows >= 100_000 ? "100,000 or more" : number(data.rows),
      ),
      h(
        "td",
        { "data-label": "of", className: "small dim" },
        data.of_key ? "of this key" : `of all keys in bucket ${number(bucket)}`,
      ),
    ),
  );
  return [
    h("h2", {}, h("code", {}, keyText(located.key)), ` in ${map}`),
    h(
      "dl",
      { className: "facts panel" },
      fact("shard", located.shard),
      fact("state", stateChip(located.state)),
      fact("entry", rangeText(located.range)),
      bucket === null ? null : fact("bucket", number(bucket)),
      fact("epoch", number(located.epoch)),
      fact(
        "on the map",
        h(
          "a",
          { href: `#/maps/${encodeURIComponent(map)}/${encodeURIComponent(keyText(located.key))}` },
          "Show",
        ),
      ),
    ),
    h(
      "div",
      { className: "actions" },
      h(
        "button",
        { id: "move", onclick: () => move(map, whole, { from: located.shard, shards, said }) },
        word,
      ),
      h(
        "button",
        { id: "isolate", onclick: () => isolate(map, whole, { from: located.shard, shards, said }) },
        "Isolate…",
      ),
    ),
    said,
    h("h2", {}, "What belongs to it"),
    uncounted ? h("div", { className: "notice warn" }, `The rows could not be counted: ${uncounted}`) : null,
    datasets.length === 0
      ? h(
          "p",
          { className: "dim" },
          "No dataset is placed by this map yet. ",
          h("code", {}, "polyshard bind"),
          " binds one.",
        )
      : null,
    held.length > 0
      ? table("datasets", [["Dataset"], ["Rows", "num"], [""]], h("tbody", {}, rows))
      : datasets.length > 0
        ? h("p", { className: "dim", id: "datasets" }, "Nothing is stored under this key.")
        : null,
    empty.length === 0
      ? null
      : h(
          "details",
          {},
          h("summary", {}, `${count(empty.length, "dataset")} of this map without a row of it`),
          h("ul", {}, empty.map((data) => h("li", {}, h("code", {}, data.dataset)))),
        ),
  ];
}
