// Query: SQL across shards, with the route and the times. It needs the SQL door.

import { get, post } from "../api.js";
import { count, failure, h, micros, number, put } from "../dom.js";

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
        { "data-label": "table", className: "wide" },
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
    const answer = await post("/v1/query", { sql: `BEGIN; EXPLAIN ANALYZE ${single}\n; ROLLBACK` });
    const told = answer.results.find((one) => one.columns.length > 0);
    return told ? { lines: told.rows.map(([line]) => line), notices: answer.notices } : null;
  } catch (error) {
    if (!error.code) throw error;
    return null;
  }
}

// What EXPLAIN ANALYZE tells of each shard, and of what was done with all their parts: name, rows and milliseconds.
// A shard's own plan that is passed on as it is has no heading: the notice beside it names the shard.
function parts({ lines, notices }) {
  const only = notices.map((one) => one.match(/plan is of shard (\S+)/)?.[1]).find(Boolean);
  const found = [];
  let current = only ? { name: only, isShard: true } : null;
  if (current) found.push(current);
  for (const line of lines) {
    const shard = line.match(/^Shard (\S+):$/)?.[1];
    const whole = line.match(/^(Combine step|All shards together):$/)?.[1];
    if (shard || whole) {
      current = { name: shard ?? whole, isShard: shard !== undefined };
      found.push(current);
    }
    if (!current) continue;
    const ms = line.match(/Execution Time: ([\d.]+) ms/)?.[1];
    const rows = line.match(/^\s*Rows: (\d+)$/)?.[1] ?? line.match(/\(actual.* rows=([\d.]+)/)?.[1];
    if (ms !== undefined) current.ms = (current.ms ?? 0) + Number(ms);
    // Of a plan, what its first line gives is what comes of it.
    if (rows !== undefined && current.rows === undefined) current.rows = Math.round(Number(rows));
  }
  return found.filter((one) => one.ms !== undefined);
}

function bar(part) {
  const filled = h("i", {});
  filled.style.width = `${Math.max(2, Math.round(100 * part))}%`;
  return h("span", { className: "bar", "aria-hidden": "true" }, filled);
}

function timesTable(timed) {
  const found = parts(timed);
  if (found.length === 0) return h("p", { className: "small dim" }, "This cannot be timed shard by shard.");
  const longest = Math.max(...found.filter((one) => one.isShard).map((one) => one.ms), 0.001);
  const rows = found.map((one) =>
    h(
      "tr",
      { className: one.isShard ? "" : "whole" },
      h("td", { "data-label": "shard" }, one.name),
      h("td", { "data-label": "rows", className: "num" }, number(one.rows)),
      h("td", { "data-label": "took", className: "num" }, micros(Math.round(one.ms * 1000))),
      h("td", { className: "beside" }, one.isShard ? bar(one.ms / longest) : null),
    ),
  );
  const said = timed.lines.find((line) => line.startsWith("Measured "));
  return h(
    "div",
    {},
    h(
      "table",
      { className: "cards", id: "times" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Shard"),
          h("th", { scope: "col", className: "num" }, "Rows"),
          h("th", { scope: "col", className: "num" }, "Took"),
          h("th", { scope: "col" }, "Beside the slowest"),
        ),
      ),
      h("tbody", {}, rows),
    ),
    said ? h("p", { className: "small dim" }, said) : null,
  );
}

function result(given, timed) {
  const route = timed?.lines ?? given.route;
  const plan =
    route.length === 0
      ? null
      : h(
          "details",
          { open: true, id: "route" },
          h("summary", {}, "Route"),
          timed ? timesTable(timed) : null,
          h("pre", { className: "panel mono" }, route.join("\n")),
        );
  const notices = given.notices.map((one) => h("p", { className: "notice small" }, one));
  const results = given.results.map((one) => {
    if (one.columns.length === 0) return h("p", {}, one.tag);
    return h(
      "div",
      {},
      h(
        "div",
        // Reached by Tab, so that the arrows can scroll it.
        { className: "rows", tabIndex: 0, role: "region", "aria-label": "rows" },
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
    notices,
    plan,
    results,
  );
}
