// The console itself: which page is shown, who is signed in, and what is said when the server is away.

import { Away, Unauthorized, get, setToken, token } from "./api.js";
import { applyTheme, know, nextTheme, theme, themes } from "./colours.js";
import { failure, h } from "./dom.js";
import * as events from "./live.js";
import archives from "./pages/archives.js";
import login from "./pages/login.js";
import maps from "./pages/maps.js";
import operations from "./pages/operations.js";
import query from "./pages/query.js";
import shardlets from "./pages/shardlets.js";
import shards from "./pages/shards.js";

const PAGES = { maps, shards, shardlets, operations, query, archives };
const TITLES = {
  maps: "Maps",
  shards: "Shards",
  shardlets: "Shardlets",
  operations: "Operations",
  query: "Query",
  archives: "Archives",
};
const root = document.getElementById("page");
const nav = document.getElementById("nav");
const away = document.getElementById("away");
const liveWord = document.getElementById("live");
const leave = document.getElementById("leave");
const themeButton = document.getElementById("theme");

// What the page now shown wants to be told when it is left.
let current = null;
let turn = 0;

function parts() {
  return location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
}

async function show() {
  const mine = ++turn;
  current?.abort();
  const [name, ...rest] = parts();
  const page = PAGES[name];
  if (!page) return location.replace("#/maps");
  const left = new AbortController();
  current = left;
  for (const link of nav.children) {
    if (link.dataset.page === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[name]} – Polyshard`;
  const into = h("div", { className: `page-${name}` });
  try {
    const [status, bearer] = await Promise.all([get("/v1/status"), get("/v1/whoami")]);
    leave.textContent = bearer.role === "admin" ? "Sign out" : `Sign out (${bearer.role} ${bearer.name})`;
    leave.title = bearer.role === "viewer" ? "A viewer looks on; changes take a token of a higher role." : "";
    know(status.shards.map((shard) => shard.id));
    await page(into, rest, { status, signal: left.signal });
    if (mine !== turn) return;
    root.replaceChildren(into);
    away.hidden = true;
    root.hidden = false;
    nav.hidden = false;
    leave.hidden = false;
    events.start();
    into.dispatchEvent(new Event("shown"));
  } catch (error) {
    if (mine !== turn || error.name === "AbortError") return;
    if (error instanceof Unauthorized) return signIn(Boolean(token()));
    if (error instanceof Away) return sayAway(error.message);
    root.replaceChildren(failure(error));
    root.hidden = false;
  }
}

function signIn(wrong) {
  events.stop();
  nav.hidden = true;
  leave.hidden = true;
  away.hidden = true;
  root.hidden = false;
  liveWord.textContent = "";
  liveWord.className = "";
  root.replaceChildren(
    login(wrong, (given) => {
      setToken(given);
      show();
    }),
  );
  root.querySelector("input").focus();
}

let awaySince = null;
function sayAway(reason) {
  awaySince ??= new Date();
  liveWord.textContent = "away";
  liveWord.className = "live off";
  root.hidden = true;
  away.hidden = false;
  away.replaceChildren(
    h("h1", {}, "The server is away"),
    h("p", {}, `${location.host} has not answered since ${awaySince.toLocaleTimeString()} (${reason}).`),
    h(
      "p",
      {},
      "Nothing is shown that may no longer be true. This page looks again every two seconds and comes back by ",
      "itself. Until then: is the process running, and does its log say why not?",
    ),
    h("button", { className: "main", onclick: show }, "Look now"),
  );
  events.start();
}

events.live.addEventListener("back", () => {
  liveWord.textContent = "live";
  liveWord.className = "live on";
  if (awaySince) {
    awaySince = null;
    show();
  }
});
events.live.addEventListener("away", ({ detail }) => sayAway(detail));
events.live.addEventListener("unauthorized", () => signIn(true));

themeButton.addEventListener("click", nextTheme);
themes.addEventListener("change", () => {
  themeButton.textContent = `Theme: ${theme()}`;
});
leave.addEventListener("click", () => {
  // Also where a token is entered for the user: he asked to leave.
  setToken("");
  signIn(false);
});
addEventListener("hashchange", async () => {
  await show();
  root.focus({ preventScroll: true });
});

nav.append(
  ...Object.entries(TITLES).map(([name, title]) => {
    const link = h("a", { href: `#/${name}` }, title);
    link.dataset.page = name;
    return link;
  }),
);
// Alt and a digit: the pages by keyboard.
addEventListener("keydown", (event) => {
  const link = nav.children[Number(event.key) - 1];
  if (event.altKey && link && !nav.hidden) {
    event.preventDefault();
    location.hash = link.hash;
  }
});
applyTheme();
show();
