// Runs the tests of this folder against the program, on shards of either engine, with and without TLS.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const ACCOUNT = "devstoreaccount1";
// Each engine and each transport; every pair of them where there is time.
const VARIANTS = process.env.POLYSHARD_LONG
  ? [["sqlite", "plain"], ["sqlite", "tls"], ["postgres", "plain"], ["postgres", "tls"]]
  : [["sqlite", "tls"], ["postgres", "plain"]];

async function run(command, args, options) {
  const [code] = await once(spawn(command, args, { stdio: "inherit", ...options }), "exit");
  return code;
}

async function withDoors(engine, transport, work) {
  const binary = join(ROOT, "target/debug/examples/doors");
  const program = spawn(binary, [engine, transport], { cwd: ROOT, stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(program, "exit");
  const line = await Promise.race([once(createInterface(program.stdout), "line"), ended.then(() => undefined)]);
  if (!line) throw new Error("the program does not start");
  try {
    return await work(JSON.parse(line[0]));
  } finally {
    program.stdin.end();
    const [code] = await ended;
    if (code !== 0) throw new Error(`the program ended with ${code}`);
  }
}

// Of the whole workspace, with an example: the features of the tests' own build, so that nothing is compiled twice.
const build = ["build", "--quiet", "--workspace", "--bin", "polyshard", "--example", "doors"];
if (await run("cargo", build, { cwd: ROOT })) process.exit(1);
const files = readdirSync(new URL(".", import.meta.url)).filter((name) => name.endsWith(".test.js"));
let failed = false;
for (const [engine, transport] of VARIANTS) {
  console.log(`-- ${engine} shards, ${transport}`);
  await withDoors(engine, transport, async (doors) => {
    const env = {
      ...process.env,
      POLYSHARD_BLOB_URL: `${doors.blob}/${ACCOUNT}`,
      POLYSHARD_DOCUMENT_URL: doors.document,
      POLYSHARD_QUEUE_URL: `${doors.queue}/${ACCOUNT}`,
      POLYSHARD_TABLE_URL: `${doors.table}/${ACCOUNT}`,
      POLYSHARD_SQL_URL: `postgres://polyshard:polyshard@${doors.sql}/polyshard`,
    };
    // What every client of that process trusts: the clients stay as they are.
    if (doors.certificate) env.NODE_EXTRA_CA_CERTS = doors.certificate;
    env.POLYSHARD_TLS = transport === "tls" ? "on" : "off";
    const cwd = fileURLToPath(new URL(".", import.meta.url));
    failed = Boolean(await run("node", ["--test", "--test-reporter=dot", ...files], { cwd, env })) || failed;
  });
}
process.exit(failed ? 1 : 0);
