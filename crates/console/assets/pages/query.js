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
  async function run() {
    sessionStorage.setItem(KEPT, text.value);
    go.disabled = true;
    try {
      put(answer, result(await post("/v1/query", { sql: text.value })));
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
      h("div", { className: "actions" }, go, h("span", { className: "small dim" }, "or Ctrl+Enter")),
    ),
    answer,
  );
}

function result(given) {
  const plan =
    given.route.length === 0
      ? null
      : h(
          "details",
          { open: true },
          h("summary", {}, "Route"),
          h("pre", { className: "panel mono" }, given.route.join("\n")),
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
