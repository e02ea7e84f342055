// Shards: how large, how busy, how quick, what to look at.

import { get } from "../api.js";
import { spark } from "../charts.js";
import { colour } from "../colours.js";
import { bytes, count, h, micros, number, rate, stateChip, put } from "../dom.js";
import { live } from "../live.js";

// Sizes, warnings and the last hour change slowly.
const READ_AGAIN_MS = 30_000;
// Rows shown at first: laying out hundreds of them is felt with every click.
const LISTED = 100;

const COLUMNS = [
  { name: "Shard", by: (shard) => shard.shard },
  { name: "Requests/s", by: (shard) => -shard.requests_per_s, num: true },
  { name: "p50", by: (shard) => -(shard.p50_us ?? 0), num: true },
  { name: "p99", by: (shard) => -(shard.p99_us ?? 0), num: true },
  { name: "Errors/s", by: (shard) => -shard.errors_per_s, num: true },
  { name: "In use", by: (shard) => -shard.inside, num: true },
  { name: "Size", by: (shard) => -(shard.bytes ?? 0) },
  { name: "Entries", by: (shard) => -shard.ranges, num: true },
  { name: "Place", by: (shard) => `${shard.region ?? "~"} ${shard.tier ?? ""}` },
  { name: "Last hour", by: (shard) => -(shard.minutes.at(-1) ?? 0) },
  { name: "Look at", by: (shard) => -shard.warnings.length },
];

export default async function shards(into, _rest, { signal }) {
  let traffic = await get("/v1/traffic");
  let order = COLUMNS[0];
  const body = h("tbody");
  const filter = h("input", {
    type: "search",
    placeholder: "name, region, tier",
    "aria-label": "Filter shards",
  });
  const sums = h("dl", { className: "facts panel" });
  const warned = h("div");
  const rows = new Map();
  let whole = false;
  const showAll = () => {
    whole = true;
    draw();
  };
  const more = h("p", { id: "more" }, h("span"), h("button", { type: "button", onclick: showAll }, "Show all"));

  function draw() {
    const wanted = filter.value.toLowerCase();
    const shown = traffic.shards.filter((shard) =>
      `${shard.shard} ${shard.region ?? ""} ${shard.tier ?? ""}`.toLowerCase().includes(wanted),
    );
    shown.sort((a, b) => {
      const [one, other] = [order.by(a), order.by(b)];
      return one < other ? -1 : one > other ? 1 : a.shard.localeCompare(b.shard, "en", { numeric: true });
    });
    const listed = whole ? shown : shown.slice(0, LISTED);
    body.replaceChildren(...listed.map((shard) => rowOf(shard).element));
    more.hidden = listed.length === shown.length;
    more.firstChild.textContent = `${number(listed.length)} of ${count(shown.length, "shard")} in this order. `;
    sum();
    const looked = traffic.shards.filter((shard) => shard.warnings.length > 0);
    put(
      warned,
      looked.length === 0
        ? ""
        : h(
            "div",
            { className: "notice warn" },
            `${looked.length} of ${traffic.shards.length} shards need a look: `,
            looked
              .slice(0, 8)
              .map((shard) => `${shard.shard} ${shard.warnings[0]}`)
              .join("; "),
            looked.length > 8 ? " …" : "",
          ),
    );
  }

  // Rows are kept, and made anew only when something has changed that ticks do not tell: with hundreds of shards,
  // sorting is felt otherwise.
  function rowOf(shard) {
    const { state, reachable, bytes, bytes_max, ranges, region, tier, minutes, warnings } = shard;
    const slow = JSON.stringify([state, reachable, bytes, bytes_max, ranges, region, tier, minutes, warnings]);
    let row = rows.get(shard.shard);
    if (row?.slow !== slow) {
      row = { ...makeRow(shard), slow };
      rows.set(shard.shard, row);
    }
    row.tick(shard);
    return row;
  }

  function sum() {
    const all = (field) => traffic.shards.reduce((total, shard) => total + (shard[field] ?? 0), 0);
    const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    put(
      sums,
      fact("shards", number(traffic.shards.length)),
      fact("requests/s", rate(all("requests_per_s"))),
      fact("errors/s", rate(all("errors_per_s"))),
      fact("in use", number(all("inside"))),
      fact("size", bytes(all("bytes"))),
      ...traffic.doors.map((door) => fact(`${door.door} door`, count(door.connections, "connection"))),
    );
  }

  const heads = COLUMNS.map((column) => {
    const button = h(
      "button",
      {
        type: "button",
        "aria-pressed": String(column === order),
        onclick: () => {
          order = column;
          for (const other of heads) other.firstChild.setAttribute("aria-pressed", String(other === head));
          draw();
        },
      },
      column.name,
    );
    const head = h("th", { scope: "col", className: column.num ? "num" : "" }, button);
    return head;
  });
  filter.addEventListener("input", draw);
  draw();
  into.append(
    h("div", { className: "head" }, h("h1", {}, "Shards"), filter),
    sums,
    warned,
    h(
      "div",
      { className: "scroll" },
      h("table", { className: "cards", id: "shards" }, h("thead", {}, h("tr", {}, heads)), body),
    ),
    more,
    h(
      "p",
      { className: "small dim" },
      "As this server process sees them; rates and times are of the last ten seconds.",
    ),
  );

  live.addEventListener(
    "tick",
    ({ detail }) => {
      const told = new Map(detail.shards.map((shard) => [shard.shard, shard]));
      for (const shard of traffic.shards) {
        Object.assign(shard, told.get(shard.shard));
        rows.get(shard.shard)?.tick(shard);
      }
      sum();
    },
    { signal },
  );
  const again = setInterval(async () => {
    try {
      traffic = await get("/v1/traffic", { signal });
      draw();
    } catch {
      // The live stream says it when the server is away.
    }
  }, READ_AGAIN_MS);
  signal.addEventListener("abort", () => clearInterval(again));
}

function makeRow(shard) {
  const cell = (label, className, ...content) => h("td", { "data-label": label, className }, ...content);
  const square = h("span", { className: "swatch" });
  square.style.background = colour(shard.shard);
  const busy = cell("requests/s", "num");
  const [half, most] = [cell("p50", "num"), cell("p99", "num")];
  const errors = cell("errors/s", "num");
  const inside = cell("in use", "num");
  function tick(now) {
    busy.textContent = rate(now.requests_per_s);
    half.textContent = micros(now.p50_us);
    most.textContent = micros(now.p99_us);
    errors.textContent = rate(now.errors_per_s);
    inside.textContent =
      now.connections === null || now.connections === undefined
        ? number(now.inside)
        : `${number(now.inside)} (${sessions(now)})`;
  }
  tick(shard);
  const away = shard.reachable === false ? h("span", { className: "chip bad" }, "away") : null;
  const element = h(
    "tr",
    {},
    cell(
      "",
      "wide",
      h("strong", {}, square, shard.shard),
      " ",
      stateChip(shard.state),
      " ",
      away,
      h("span", { className: "small dim" }, ` ${shard.engine}`),
    ),
    busy,
    half,
    most,
    errors,
    inside,
    cell("size", "", size(shard)),
    cell("entries", "num", number(shard.ranges)),
    cell("place", "", [shard.region, shard.tier].filter(Boolean).join(" · ")),
    cell("last hour", "", lastHour(shard)),
    cell("look at", "wide small", shard.warnings.join("; ")),
  );
  return { element, tick };
}

// Each minute of the last hour, and the last seconds.
function lastHour(shard) {
  if (shard.minutes.length === 0) return h("span", { className: "small dim" }, "after a minute");
  const values = [...shard.minutes, shard.requests_per_s];
  return spark(values, `Requests a second of ${shard.shard} in the last hour`);
}

function sessions({ connections, connections_max: most }) {
  return most ? `${number(connections)} of ${number(most)} sessions` : `${number(connections)} sessions`;
}

function size(shard) {
  if (!shard.bytes_max || shard.bytes === null) return bytes(shard.bytes);
  const part = Math.min(1, shard.bytes / shard.bytes_max);
  const fill = h("i");
  fill.style.width = `${(part * 100).toFixed(1)}%`;
  return h(
    "span",
    {},
    h("span", { className: part >= 0.8 ? "bar near" : "bar" }, fill),
    ` ${bytes(shard.bytes)} of ${bytes(shard.bytes_max)}`,
  );
}
