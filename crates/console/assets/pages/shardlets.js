// Shardlets: those that get the most requests, and everything that belongs to one.

import { get, path } from "../api.js";
import { colour } from "../colours.js";
import { failure, h, keyText, number, rangeText, rate, stateChip, put } from "../dom.js";
import { live } from "../live.js";
import { isolate, move } from "../moves.js";

export default async function shardlets(into, [map, key], { status, signal }) {
  const shown = map && key !== undefined ? await one(map, key, status) : await hot(signal);
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

async function hot(signal) {
  const body = h("tbody");
  const none = h("p", { className: "dim" }, "No requests that name a key have come lately.");
  function draw(list) {
    none.hidden = list.length > 0;
    put(
      body,
      ...list.map((one) => {
        const square = h("span", { className: "swatch" });
        square.style.background = colour(one.shard ?? "");
        const name = keyText(one.key);
        const cell = (label, className, ...content) =>
          h("td", { "data-label": label, className }, ...content);
        return h(
          "tr",
          {},
          cell(
            "key",
            "",
            h("a", { href: `#/shardlets/${encodeURIComponent(one.map)}/${encodeURIComponent(name)}` }, name),
          ),
          cell("map", "", one.map),
          cell("shard", "", square, one.shard ?? "–"),
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
    h(
      "div",
      { className: "scroll" },
      h(
        "table",
        { className: "cards", id: "hot" },
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
    ),
    none,
    h(
      "p",
      { className: "small dim" },
      "Requests through this server process; every eighth is looked at, and older ones ",
      "weigh less. How large a shardlet is, is counted when it is opened.",
    ),
  ];
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
  const rows = datasets.map((data) =>
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
      : h(
          "table",
          { className: "cards", id: "datasets" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "Dataset"),
              h("th", { scope: "col", className: "num" }, "Rows"),
              h("th", { scope: "col" }, ""),
            ),
          ),
          h("tbody", {}, rows),
        ),
  ];
}
