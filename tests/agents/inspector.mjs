// The protocol's inspector with its strictest reading of our schemas: over stdio and over HTTP, in
// both eras, without a finding.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { binary, folder, here, Home, run, Suite } from "./lib.mjs";

const suite = new Suite("inspector");
const tool = join(here, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
const home = await Home.make();
const node = await home.node();
const agent = await home.local("local");
const token = await home.token("inspector");
await home.data("create", "Inspect me", "-p", "demo");

// Where the inspector keeps what it remembers: nowhere that lasts.
const env = { HOME: folder(), MCP_INSPECTOR_SECRET_STORE: "memory" };
const config = join(folder(), "servers.json");
const servers = {
  stdio: { type: "stdio", command: binary, args: ["--home", home.path, "mcp", "--agent", agent] },
  http: { type: "streamable-http", url: node.url, headers: { Authorization: `Bearer ${token}` } },
};
writeFileSync(config, JSON.stringify({ mcpServers: servers }));

async function inspect(server, era, ...args) {
  const line = [tool, "--cli", "--config", config, "--server", server, "--protocol-era", era, "--format", "json", ...args];
  const { code, stdout, stderr } = await run(process.execPath, line, { env });
  assert.equal(code, 0, `${args.join(" ")} ended with ${code}: ${stdout}${stderr}`);
  const said = stderr.split("\n").filter((line) => /warning|error|portab/i.test(line));
  assert.deepEqual(said, [], "findings");
  const answer = JSON.parse(stdout);
  return answer.result ?? answer;
}

for (const server of ["stdio", "http"]) {
  for (const era of ["legacy", "modern"]) {
    const check = (title, body) => suite.check(`${server}, ${era}: ${title}`, body);
    await check("tools/list", async () => {
      const { tools } = await inspect(server, era, "--method", "tools/list", "--strict");
      assert.deepEqual(tools.map(({ name }) => name), ["task_get", "task_mutate", "task_search"]);
    });
    await check("resources/list", async () => {
      const { resources } = await inspect(server, era, "--method", "resources/list");
      assert.ok(resources.some(({ uri }) => uri === "stead://workspace"));
    });
    await check("prompts/list", async () => {
      const { prompts } = await inspect(server, era, "--method", "prompts/list");
      assert.deepEqual(prompts.map(({ name }) => name).sort(), ["hand_over", "resolve_conflict", "start_work"]);
    });
    await check("tools/call", async () => {
      const call = ["--method", "tools/call", "--tool-name", "task_search", "--tool-arg", "projectId=demo"];
      const result = await inspect(server, era, ...call);
      assert.ok(!result.isError);
      assert.equal(result.structuredContent.tasks[0].title, "Inspect me");
    });
  }
}

await node.stop();
suite.close();
