// Query: SQL across shards, with the route and the times. It needs the SQL door.

import { get, post } from "../api.js";
import { count, failure, h, micros, put } from "../dom.js";

const KEPT = "polyshard-query";

export default async function query(into, _rest, { status }) {
  into.append(h("div", { className: "head" }, h("h1", {}, "Query")));
  const document = await get("/v1/openapi.json");
  if (!document.paths["/v1/query"]) {
    const door = status.doors.sql;
    into.append(
      h(
        "div",
        { className: "notice", id: "no-query" },
        door
          ? [
              "SQL is served to PostgreSQL clients: ",
              h("code", {}, `psql ${door}`),
              ". This server cannot run statements for the console.",
            ]
          : "Running SQL here needs the SQL door, which this server does not have open.",
      ),
    );
    return;
  }
  if (!status.doors.sql) {
    into.append(
      h(
        "div",
        { className: "notice", id: "no-query" },
        "Running SQL here needs the SQL door, which is not open. ",
        "Set ",
        h("code", {}, "sql.listen"),
        " and start the server again.",
      ),
    );
    return;
  }
  const text = h("textarea", {
    spellcheck: false,
    "aria-label": "SQL",
    id: "sql",
    value: sessionStorage.getItem(KEPT) ?? "SELECT 1",
  });
  const answer = h("div", { "aria-live": "polite" });
  const go = h("button", { className: "main" }, "Run");
  const timed = h("input", { type: "checkbox", id: "timed" });
  async function run() {
    sessionStorage.setItem(KEPT, text.value);
    go.disabled = true;
    try {
      const times = timed.checked ? await explained(text.value) : null;
      put(answer, result(await post("/v1/query", { sql: text.value }), times));
    } catch (error) {
      if (!error.code) throw error;
      put(answer, failure(error));
    } finally {
      go.disabled = false;
    }
  }
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  into.append(
    h(
      "form",
      {
        onsubmit: (event) => {
          event.preventDefault();
          run();
        },
      },
      text,
      h(
        "div",
        { className: "actions" },
        go,
        h("span", { className: "small dim" }, "or Ctrl+Enter"),
        h("label", { className: "small check" }, timed, "and what each shard took (a query then runs twice)"),
      ),
    ),
    answer,
    await tables((name) => {
      text.value = `SELECT * FROM ${name.split(".").map(quoted).join(".")} LIMIT 20`;
      text.focus();
    }),
  );
}

// What there is to ask: a click writes a first statement.
async function tables(choose) {
  // Without the catalog there is no list, and statements can be run all the same.
  const known = await get("/v1/tables").then(
    (answer) => answer.tables,
    () => null,
  );
  if (known === null) return h("p", { className: "dim" }, "The list of tables cannot be read now.");
  if (known.length === 0) return h("p", { className: "dim" }, "There are no tables yet.");
  const rows = known.map((one) =>
    h(
      "tr",
      {},
      h(
        "td",
        { "data-label": "table" },
        h("button", { type: "button", className: "link", onclick: () => choose(one.table) }, one.table),
      ),
      h("td", { "data-label": "placed" }, placed(one)),
    ),
  );
  const heads = ["Table", "Placed"].map((name) => h("th", { scope: "col" }, name));
  return h(
    "details",
    { open: known.length <= 10, id: "tables" },
    h("summary", {}, count(known.length, "table")),
    h("table", { className: "cards" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
  );
}

const quoted = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

function placed({ placement, map, key, shard }) {
  if (placement === "sharded") return `by ${key}, in map ${map}`;
  return placement === "local" ? `on ${shard} alone` : "on every shard";
}

// The route with the time that each shard took; nothing for what is no single query, or cannot be timed. It runs the
// query, which may call a function that writes: that is taken back, so that it happens once.
async function explained(sql) {
  if (!/^\s*(select|values|table)\b/i.test(sql) || /;\s*\S/.test(sql)) return null;
  const single = sql.replace(/[;\s]+$/, "");
  try {
    const { results } = await post("/v1/query", { sql: `BEGIN; EXPLAIN ANALYZE ${single}\n; ROLLBACK` });
    const told = results.find((one) => one.columns.length > 0);
    return told ? told.rows.map(([line]) => line) : null;
  } catch (error) {
    if (!error.code) throw error;
    return null;
  }
}

function result(given, times) {
  const route = times ?? given.route;
  const plan =
    route.length === 0
      ? null
      : h(
          "details",
          { open: true, id: "route" },
          h("summary", {}, "Route"),
          h("pre", { className: "panel mono" }, route.join("\n")),
          times && !times.some((line) => /\d ms\b/.test(line))
            ? h("p", { className: "small dim" }, "Embedded shards are read together: only the whole is timed.")
            : null,
        );
  const results = given.results.map((one) => {
    if (one.columns.length === 0) return h("p", {}, one.tag);
    return h(
      "div",
      {},
      h(
        "div",
        { className: "scroll" },
        h(
          "table",
          { className: "result" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              one.columns.map((name) => h("th", { scope: "col" }, name)),
            ),
          ),
          h(
            "tbody",
            {},
            one.rows.map((row) =>
              h(
                "tr",
                {},
                row.map((value) =>
                  h("td", {}, value === null ? h("span", { className: "dim" }, "NULL") : value),
                ),
              ),
            ),
          ),
        ),
      ),
      h("p", { className: "small dim" }, `${one.tag}${one.cut ? ", of which the first are shown" : ""}`),
    );
  });
  return h(
    "div",
    {},
    h("p", { className: "small dim" }, `${micros(given.took_us)}, ${count(given.results.length, "answer")}`),
    plan,
    results,
  );
}
