// Archives: what is in a folder or object store instead of on a shard, and the rules by which it goes there.

import { get, path, post } from "../api.js";
import { ago, bytes, confirm, count, failure, h, number, put, rangeText } from "../dom.js";
import { live } from "../live.js";

// What an archive's state means to somebody who looks for rows.
const STATES = {
  writing: { kind: "warn", says: "being written; the rows are on their shard" },
  written: { kind: "warn", says: "whole; the rows are being deleted from their shard" },
  archived: { kind: "good", says: "the rows are here only" },
  restored: { kind: "dim", says: "the rows are on a shard again, and still here" },
};

const cell = (label, className, ...content) => h("td", { "data-label": label, className }, ...content);

// A table whose heads with a `*` before them are of numbers.
function table(id, heads, body) {
  const head = (name) =>
    h("th", { scope: "col", className: name.startsWith("*") ? "num" : "" }, name.replace("*", ""));
  return h(
    "div",
    { className: "scroll" },
    h("table", { className: "cards", id }, h("thead", {}, h("tr", {}, heads.map(head))), body),
  );
}

export default async function archives(into, _rest, { status, signal }) {
  const shards = status.shards.map((shard) => shard.id);
  const said = h("div", { "aria-live": "polite" });
  const [list, rules] = [h("tbody"), h("tbody")];
  const sums = h("dl", { className: "facts panel" });
  const noArchives = h(
    "p",
    { className: "dim" },
    "No archives. 'polyshard archive run MAP --range FROM..TO --to PLACE' makes one.",
  );
  const noRules = h(
    "p",
    { className: "dim" },
    "No rules. 'polyshard archive rule add MAP --older-than 13months --to PLACE' records one.",
  );

  async function attempt(work) {
    try {
      await work();
    } catch (error) {
      if (!error.code) throw error;
      put(said, failure(error));
    }
  }

  async function load() {
    const [all, ruled] = await Promise.all([get("/v1/archives", { signal }), get("/v1/archive-rules", { signal })]);
    noArchives.hidden = all.archives.length > 0;
    noRules.hidden = ruled.rules.length > 0;
    put(list, all.archives.map(archiveRow));
    put(rules, ruled.rules.map(ruleRow));
    const gone = all.archives.filter((one) => one.state === "archived");
    const sum = (field) => gone.reduce((total, one) => total + one[field], 0);
    const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    put(
      sums,
      fact("archives", number(all.archives.length)),
      fact("rows in archives only", number(sum("rows"))),
      fact("their size", bytes(sum("bytes"))),
      fact("rules", number(ruled.rules.length)),
    );
  }

  function archiveRow(one) {
    const { kind, says } = STATES[one.state] ?? { kind: "dim", says: "" };
    const chip = h("span", { className: `chip ${kind}`, title: says }, one.state);
    const button = h("button", { type: "button", onclick: () => attempt(() => restore(one)) }, "Restore");
    return h(
      "tr",
      {},
      cell("archive", "together", h("strong", {}, one.name)),
      cell("map", "", one.map),
      cell("range", "", h("code", {}, rangeText(one.range))),
      cell("state", "", chip),
      cell("rows", "num", number(one.rows)),
      cell("size", "num", bytes(one.bytes)),
      cell("begun", "together", ago(one.began_ms)),
      cell("at", "wide small", one.at),
      cell("", "", one.state === "archived" || one.state === "written" ? button : ""),
    );
  }

  // Asks where the rows shall go, and begins to put them back.
  async function restore(one) {
    const others = shards.filter((shard) => shard !== one.shard);
    const option = (value, words) => h("option", { value }, words);
    const target = h(
      "select",
      { id: "target" },
      option("", `${one.shard}, where they were`),
      others.map((shard) => option(shard, shard)),
    );
    const asked = await confirm(
      `Restore ${one.name}`,
      [
        h("p", {}, `${count(one.rows, "row")} of ${rangeText(one.range)} of map ${one.map} come back. Nobody sees any `,
          "of them before all are there. The archive stays until it is forgotten."),
        h("p", { className: "small" }, h("code", {}, `polyshard archive restore ${one.name}`), " does the same."),
        h("label", { className: "field", htmlFor: "target" }, "Onto shard", target),
      ],
      { word: "Restore it" },
    );
    if (!asked) return;
    const begun = await post(path("archives", one.name, "restore"), target.value ? { to: target.value } : {});
    tell(begun.procedure, `restore ${one.name}`);
    await load();
  }

  function tell(id, words) {
    put(
      said,
      h("div", { className: "notice", id: "begun" }, "Begun: ", h("a", { href: `#/operations/${id}` }, words)),
    );
  }

  function ruleRow(one) {
    const { rule } = one;
    const what = {
      archive: () => `archive to ${rule.then.to}`,
      drop: () => "drop",
      tier: () => `move to tier ${rule.then.tier}`,
    }[rule.then.do]();
    const due = one.due.map(rangeText);
    const next = one.next_ms <= Date.now() ? "as soon as it may" : new Date(one.next_ms).toLocaleString();
    const button = h(
      "button",
      { type: "button", onclick: () => attempt(() => runRule(one, what)) },
      "What would it take?",
    );
    return h(
      "tr",
      {},
      cell("map", "", h("strong", {}, one.map)),
      cell("which", "", `by ${rule.by}, older than ${rule.older_than}`),
      cell("what", "", what),
      cell("when", "", `every ${rule.every}${rule.at ? ` at ${rule.at} UTC` : ""}`),
      cell("last", "together", one.last_ms ? ago(one.last_ms) : "never"),
      cell("next", "together", next),
      cell(
        "due",
        "wide small",
        one.failed ? h("span", { className: "chip bad", title: one.failed }, "not carried out") : "",
        due.length === 0 ? "nothing" : due.slice(0, 3).join("; "),
        due.length > 3 ? ` … (${due.length})` : "",
      ),
      cell("", "", button),
    );
  }

  // Shows what a rule would take now and why, and carries it out if that is confirmed.
  async function runRule(one, what) {
    const plan = await post(path("archive-rules", one.id, "run"), { dry_run: true });
    if (plan.parts.length === 0) {
      put(said, h("div", { className: "notice", id: "even" }, `${plan.steps.join("; ")}.`));
      return;
    }
    const rows = plan.parts.map((part) =>
      h(
        "tr",
        {},
        cell("what", "", h("code", {}, rangeText(part.range))),
        cell("shard", "", part.shard),
        cell("why", "small dim", part.why ?? ""),
        cell("rows", "num", number(part.rows)),
        cell("about", "num", bytes(part.bytes)),
      ),
    );
    const lines = [
      h("p", {}, `Old ranges of map ${one.map}: ${what}.`),
      table("plan", ["What", "Shard", "Why", "*Rows", "*About"], h("tbody", {}, rows)),
    ];
    const danger = one.rule.then.do === "drop";
    if (!(await confirm("The rule would take", lines, { word: "Carry it out", danger }))) return;
    const begun = await post(path("archive-rules", one.id, "run"), {});
    if (begun.procedure) tell(begun.procedure, `${count(begun.parts.length, "range")} of ${one.map}`);
    await load();
  }

  await load();
  into.append(
    h("div", { className: "head" }, h("h1", {}, "Archives")),
    sums,
    said,
    table("archives", ["Archive", "Map", "Range", "State", "*Rows", "*Size", "Begun", "At", ""], list),
    noArchives,
    h("h2", {}, "Rules"),
    table("rules", ["Map", "Which", "What", "When", "Last", "Next", "Would take now", ""], rules),
    noRules,
    h(
      "p",
      { className: "small dim" },
      "Archived keys are offline; whoever asks for one is told the archive's name. Rules are carried out within the ",
      "quiet hours of the configuration; by hand at any time.",
    ),
  );

  // Something has begun, gone on or ended since: what is listed here may have changed with it.
  let shown = null;
  live.addEventListener(
    "tick",
    ({ detail }) => {
      if (!detail.operations) return;
      const seen = detail.operations.map((op) => `${op.id} ${op.state} ${op.step}`).join();
      // The live stream says it when the server is away.
      if (seen !== shown) load().catch(() => {});
      shown = seen;
    },
    { signal },
  );
}
