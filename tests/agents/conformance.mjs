// The protocol's own conformance suite against the real binary, and against the fixture server on
// the same transport where that is given in $STEAD_FIXTURES. What fails must be in a baseline, and
// what is in a baseline must fail.

import assert from "node:assert/strict";
import { join } from "node:path";
import { existsSync } from "node:fs";
import { binary, folder, here, Home, LEGACY, MODERN, proxy, run, start, Suite, within } from "./lib.mjs";

const suite = new Suite("conformance");
const tool = join(here, "node_modules/@modelcontextprotocol/conformance/dist/index.js");
const tally = [];

async function conform(url, requirements, baseline) {
  const args = [tool, "server", "--url", url, "--requirements", requirements, "-o", folder()];
  args.push("--expected-failures", join(here, baseline));
  const { code, stdout, stderr } = await run(process.execPath, args, { ms: 170_000 });
  const all = stdout + stderr;
  if (process.env.VERBOSE || code !== 0) console.log(all);
  const total = /Total: (.*)/.exec(all)?.[1];
  tally.push(`${baseline.replace(/\.yml$/, "").replace("expected-", "")} ${total}`);
  assert.equal(code, 0, `${baseline}: the conformance suite ended with ${code}`);
}

async function board() {
  const home = await Home.make();
  const through = await proxy();
  through.to.token = await home.token("conformance");
  const hosts = [`127.0.0.1:${through.port}`, `localhost:${through.port}`];
  const node = await home.node(...hosts.flatMap((host) => ["--allow-host", host]));
  through.to.host = node.host;
  const url = `http://127.0.0.1:${through.port}/mcp`;
  for (const era of [LEGACY, MODERN]) {
    await suite.check(`the board, ${era}`, () => conform(url, era, `expected-${era}.yml`));
  }
  await node.stop();
  through.close();
}

async function fixtures(server) {
  const child = start(server, []);
  const url = await within(
    new Promise((done, failed) => {
      let out = "";
      child.stdout.on("data", (data) => {
        out += data;
        const found = /(http:\S+)/.exec(out);
        if (found) done(found[1]);
      });
      child.on("exit", (code) => failed(new Error(`the fixture server ended with ${code}`)));
    }),
    "the fixture server to listen",
  );
  for (const era of [LEGACY, MODERN]) {
    await suite.check(`the fixtures, ${era}`, () => conform(url, era, `expected-fixtures-${era}.yml`));
  }
  child.kill("SIGTERM");
}

const example = process.env.STEAD_FIXTURES ?? join(binary, "../examples/fixtures");
await board();
if (existsSync(example)) await fixtures(example);
else suite.skip("the fixtures", "build them first: cargo build -p stead-mcp --example fixtures");
suite.close(tally.join("; "));
