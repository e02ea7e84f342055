// Small helpers for pages: elements, numbers in words, questions. Text is always set as text, never as markup.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

// Replaces what is inside; nothings are left out.
export function put(element, ...children) {
  element.replaceChildren(
    ...children.flat().filter((child) => child !== null && child !== undefined && child !== ""),
  );
}

export const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

// How many of something, in words.
export const count = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;

export function rate(value) {
  if (!value) return "0";
  return value >= 100 ? number(Math.round(value)) : value.toFixed(value >= 10 ? 1 : 2);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function micros(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${value} µs`;
  return value < 1e6 ? `${(value / 1000).toFixed(value < 1e4 ? 2 : 1)} ms` : `${(value / 1e6).toFixed(2)} s`;
}

export function ago(ms, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - ms) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : new Date(ms).toLocaleString();
}

export function rangeText(range) {
  if (!range) return "–";
  if (range.key !== undefined) return keyText(range.key);
  if (range.buckets) {
    const segment = range.segment === undefined ? "" : `${keyText(range.segment) || "…"} · `;
    const [from, to] = range.buckets;
    return `${segment}${to - from === 1 ? `bucket ${from}` : `buckets ${from} – ${to - 1}`}`;
  }
  return `${range.from === null ? "…" : keyText(range.from)} up to ${range.to === null ? "…" : keyText(range.to)}`;
}

export function keyText(key) {
  return key === null || key === undefined ? "" : typeof key === "string" ? key : JSON.stringify(key);
}

export const stateChip = (state) =>
  h(
    "span",
    { className: `chip ${{ online: "good", read_only: "warn", offline: "bad" }[state] ?? "dim"}` },
    state.replace("_", "-"),
  );

export function failure(error) {
  return h(
    "div",
    { className: "notice bad", role: "alert" },
    h("strong", {}, error.message),
    error.remedy ? h("div", {}, `What to do: ${error.remedy}`) : null,
  );
}

// Asks before something is done; `lines` says what will happen. Resolves to whether it was confirmed.
export function confirm(title, lines, { word = "Do it", no = "Cancel", danger = false } = {}) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-label": title },
      h("h2", { style: undefined }, title),
      lines,
      h(
        "form",
        { method: "dialog", className: "actions" },
        h("button", { value: "yes", className: danger ? "danger" : "main" }, word),
        h("button", { value: "no" }, no),
      ),
    );
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
