// A colour for each shard, the same on every page, and the theme.

const THEME = "polyshard-theme";
const order = ["auto", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
export const themes = new EventTarget();

export function theme() {
  return localStorage.getItem(THEME) ?? "auto";
}
export const isDark = () => theme() === "dark" || (theme() === "auto" && dark.matches);

export function applyTheme() {
  const chosen = theme();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  themes.dispatchEvent(new Event("change"));
}
export function nextTheme() {
  localStorage.setItem(THEME, order[(order.indexOf(theme()) + 1) % order.length]);
  applyTheme();
}
dark.addEventListener("change", applyTheme);

const numbers = new Map();
// Colours are given in the order of names, so that they stay as shards come and go at the end.
export function know(shards) {
  for (const shard of [...shards].sort()) if (!numbers.has(shard)) numbers.set(shard, numbers.size);
}
export function colour(shard) {
  if (!numbers.has(shard)) numbers.set(shard, numbers.size);
  const number = numbers.get(shard);
  // Steps of the golden angle keep neighbours apart; lightness changes with every round.
  const hue = (255 + number * 137.508) % 360;
  const round = Math.floor(number / 12) % 3;
  const lightness = isDark() ? [0.68, 0.55, 0.8][round] : [0.6, 0.72, 0.46][round];
  // Equal steps of this space look equally light, whatever the hue.
  return `oklch(${lightness} 0.125 ${hue})`;
}
