// A PostgreSQL server for a test: on a free port, in an own folder, gone afterwards.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";

const ROOT = "/usr/lib/postgresql";

function binary(name) {
  const versions = existsSync(ROOT) ? readdirSync(ROOT).sort((a, b) => Number(b) - Number(a)) : [];
  return versions.map((version) => join(ROOT, version, "bin", name)).find(existsSync) ?? name;
}

// PostgreSQL refuses to run as root.
const own = process.getuid() === 0 ? ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] : [];
const command = (name, ...rest) => [...own, binary(name), ...rest];

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// A server with these databases; `url` tells where one of them is.
export async function postgres(databases) {
  const folder = mkdtempSync(join(tmpdir(), "polyshard-console-pg-"));
  if (own.length > 0) execFileSync("chown", ["postgres:postgres", folder]);
  const run = ([program, ...rest]) => execFileSync(program, rest, { stdio: ["ignore", "ignore", "inherit"] });
  run(command("initdb", "-D", join(folder, "data"), "-A", "trust", "-U", "postgres", "--no-sync"));
  const port = await freePort();
  const settings = { listen_addresses: "127.0.0.1", port, unix_socket_directories: "", fsync: "off" };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const [program, ...rest] = command("postgres", "-D", join(folder, "data"), ...flags);
  const server = spawn(program, rest, { stdio: "ignore" });
  const ended = once(server, "exit");
  const url = (database) => `postgres://postgres@127.0.0.1:${port}/${database}`;
  async function stop() {
    server.kill("SIGQUIT");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  }
  for (let left = 600; ; left -= 1) {
    const client = new pg.Client({ connectionString: url("postgres") });
    try {
      await client.connect();
      for (const name of databases) await client.query(`CREATE DATABASE ${name}`);
      await client.end();
      return { url, stop };
    } catch (error) {
      await client.end().catch(() => {});
      if (left === 0 || server.exitCode !== null) {
        await stop();
        throw error;
      }
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}
