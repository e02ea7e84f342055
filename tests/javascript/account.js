// The account of the tests, and where its doors are; `npm test` opens them.

import assert from "node:assert/strict";

export const ACCOUNT = "devstoreaccount1";
// The emulators' key, which Microsoft publishes.
export const KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

export function door(name) {
  const url = process.env[`POLYSHARD_${name.toUpperCase()}_URL`];
  assert.ok(url, "the doors are opened by 'npm test'");
  return url;
}

export async function all(iterator) {
  const found = [];
  for await (const item of iterator) found.push(item);
  return found;
}
