// Many clients at once: nobody sees another's answers, nobody gets another's task, nobody who may
// not come in does, and whoever does not read slows nobody.

import assert from "node:assert/strict";
import http from "node:http";
import { connect, Home, LEGACY, MODERN, Suite, within } from "./lib.mjs";

const suite = new Suite("crowd");
const home = await Home.make();
const node = await home.node();
const token = await home.token("crowd");
const all = (count, body) => Promise.all(Array.from({ length: count }, (_, index) => body(index)));

/** A request as nobody's library would send it; the answer's status and text. */
function raw({ method = "POST", headers = {}, body, url = node.url, paused = false }) {
  const { hostname, port, pathname } = new URL(url);
  return within(
    new Promise((done, failed) => {
      const request = http.request({ hostname, port, path: pathname, method, headers, agent: false, setHost: !headers.host });
      request.on("error", failed);
      request.on("response", (response) => {
        if (paused) {
          // Nothing is read from here on: what comes stays in the buffers of the socket.
          response.pause();
          response.socket.pause();
          response.on("error", () => {});
          done({ status: response.statusCode, headers: response.headers, end: () => request.destroy() });
          return;
        }
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (data) => (text += data));
        response.on("end", () => done({ status: response.statusCode, headers: response.headers, text }));
      });
      request.end(body === undefined ? undefined : JSON.stringify(body));
    }),
    `${method} of ${JSON.stringify(body ?? null).slice(0, 80)}`,
  );
}

const MIME = { accept: "application/json, text/event-stream", "content-type": "application/json" };
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const modernMeta = {
  "io.modelcontextprotocol/protocolVersion": MODERN,
  "io.modelcontextprotocol/clientCapabilities": {},
  "io.modelcontextprotocol/clientInfo": { name: "raw", version: "1" },
};
const modern = (id, method, params, headers = {}) => ({
  headers: { ...MIME, "mcp-protocol-version": MODERN, "mcp-method": method, ...(params.name ? { "mcp-name": params.name } : {}), ...headers },
  body: { jsonrpc: "2.0", id, method, params: { ...params, _meta: modernMeta } },
});
const legacy = (id, method, params, headers = {}) => ({
  headers: { ...MIME, ...headers },
  body: { jsonrpc: "2.0", ...(id === null ? {} : { id }), method, params },
});
const hello = { protocolVersion: LEGACY, capabilities: {}, clientInfo: { name: "raw", version: "1" } };
const message = (text) => JSON.parse(/^data: (\{.*)$/m.exec(text)?.[1] ?? text);

await suite.check("50 clients with the same request ids each get their own answers", async () => {
  const clients = await all(50, (index) =>
    connect({ era: index % 2 ? MODERN : LEGACY, over: "http" }, { url: node.url, token }),
  );
  const ids = new Set();
  await all(50, async (index) => {
    const client = clients[index];
    for (let turn = 0; turn < 3; turn += 1) {
      // A word that begins no other: a search takes the beginnings of words too.
      const word = `only${String(index).padStart(2, "0")}${turn}`;
      const title = `Of ${word}`;
      const { task } = await client.ok("task_mutate", { action: "create", projectId: "demo", title });
      assert.equal(task.title, title);
      const [read, found] = await Promise.all([
        client.ok("task_get", { id: task.id }),
        client.ok("task_search", { projectId: "demo", q: word, status: ["any"] }),
      ]);
      assert.equal(read.task.title, title);
      assert.deepEqual(found.tasks.map((row) => row.id), [task.id]);
      ids.add(task.id);
    }
  });
  assert.equal(ids.size, 150);
  // Without a library, so that every id there is the same.
  await all(50, async (index) => {
    const title = `raw ${index}`;
    const call = modern(1, "tools/call", { name: "task_mutate", arguments: { action: "create", projectId: "demo", title } }, bearer(token));
    const { status, text } = await raw(call);
    assert.equal(status, 200, text);
    const { id, result } = message(text);
    assert.equal(id, 1);
    assert.equal(result.structuredContent.task.title, title);
  });
  await Promise.all(clients.map((client) => client.close()));
});

await suite.check("whoever may not come in is refused, before anything is done", async () => {
  const abroad = await Home.make();
  const foreign = await abroad.token("foreign");
  const ping = (more) => raw({ ...modern(1, "tools/list", {}), ...more, headers: { ...modern(1, "tools/list", {}).headers, ...more } });
  const good = bearer(token);
  assert.equal((await ping(good)).status, 200);
  assert.equal((await ping({ ...good, origin: `http://${node.host}` })).status, 200);
  for (const origin of ["http://evil.example", "https://evil.example", "null", `http://${node.host}.evil.example`, "http://localhost:1"]) {
    assert.equal((await ping({ ...good, origin })).status, 403, `Origin ${origin}`);
  }
  for (const host of ["evil.example", `evil.example:${node.host.split(":")[1]}`, "localhost", "127.0.0.1:1"]) {
    assert.equal((await ping({ ...good, host })).status, 403, `Host ${host}`);
  }
  const missing = await ping({});
  assert.equal(missing.status, 401);
  assert.match(missing.headers["www-authenticate"], /^Bearer/);
  for (const wrong of ["", "x", "stead_00000000000000000000000000000000", foreign]) {
    assert.equal((await ping(bearer(wrong))).status, 401, "a token that is not known here");
  }
  assert.equal((await ping({ authorization: `Basic ${Buffer.from(`x:${token}`).toString("base64")}` })).status, 401);
  // The scheme's name has no case.
  assert.equal((await ping({ authorization: `bearer ${token}` })).status, 200);
  for (const path of ["/mcp/bridge", "/mcp/nothing"]) {
    const { status } = await raw({ method: "GET", url: node.url.replace("/mcp", path) });
    assert.equal(status, 401, path);
  }
});

await suite.check("a revoked credential is refused at the next call, in every session", async () => {
  const name = "revoked";
  const theirs = await home.token(name);
  const agents = await Promise.all(
    [LEGACY, MODERN].map((era) => connect({ era, over: "http" }, { url: node.url, token: theirs })),
  );
  const opened = await raw(legacy(1, "initialize", hello, bearer(theirs)));
  const session = { "mcp-session-id": opened.headers["mcp-session-id"] };
  assert.equal((await raw(legacy(null, "notifications/initialized", {}, { ...bearer(theirs), ...session }))).status, 202);
  const list = (id) => raw(legacy(id, "tools/list", {}, { ...bearer(theirs), ...session }));
  assert.equal((await list(2)).status, 200);
  // A session belongs to its credential: its id opens it to nobody else.
  assert.equal((await raw(legacy(3, "tools/list", {}, { ...bearer(token), ...session }))).status, 404);
  const local = await connect({ era: LEGACY, over: "stdio" }, { home, agent: await home.local("revoked-local") });
  for (const agent of [...agents, local]) await agent.ok("task_search", { projectId: "demo" });
  await home.data("agent", "revoke", name);
  await home.data("agent", "revoke", "revoked-local");
  assert.equal((await list(4)).status, 401);
  for (const agent of agents) {
    await assert.rejects(agent.call("task_search", { projectId: "demo" }), /401|Unauthorized|token/i);
  }
  const { error } = await local.refused("task_search", { projectId: "demo" }, "FORBIDDEN");
  assert.match(error.message, /revoked/);
  await Promise.allSettled([...agents, local].map((agent) => agent.close()));
});

await suite.check("16 clients that claim the next task of 100 each get others", async () => {
  await home.data("project", "add", "race");
  const maker = await connect({ era: MODERN, over: "http" }, { url: node.url, token });
  const made = new Set();
  await all(10, async () => {
    for (let turn = 0; turn < 10; turn += 1) {
      const { task } = await maker.ok("task_mutate", { action: "create", projectId: "race", title: "Take me" });
      made.add(task.id);
    }
  });
  const clients = await all(16, async (index) =>
    connect({ era: index % 2 ? MODERN : LEGACY, over: "http" }, { url: node.url, token: await home.token(`racer-${index}`) }),
  );
  const taken = [];
  await all(16, async (index) => {
    for (;;) {
      const { task, why } = await clients[index].ok("task_mutate", { action: "claim", projectId: "race" });
      if (task === null) {
        assert.ok(why, "nothing to take says why");
        return;
      }
      assert.equal(task.status, "in_progress");
      assert.ok(JSON.stringify(task.lease).includes("expiresAt"));
      taken.push(task.id);
    }
  });
  assert.equal(taken.length, 100, "each was handed out");
  assert.deepEqual(new Set(taken), made, "and none twice");
  await Promise.all([maker, ...clients].map((client) => client.close()));
});

await suite.check("whoever watches and never reads slows nobody", async () => {
  await home.data("project", "add", "news");
  const maker = await connect({ era: MODERN, over: "http" }, { url: node.url, token });
  const tasks = [];
  for (let turn = 0; turn < 100; turn += 1) {
    const title = `News ${turn}`;
    tasks.push((await maker.ok("task_mutate", { action: "create", projectId: "news", title })).task);
  }
  const uris = tasks.map((task) => `stead://task/${task.id}`);

  const params = { notifications: { resourceSubscriptions: uris } };
  const listening = await all(4, (index) =>
    raw({ ...modern(index, "subscriptions/listen", params, bearer(token)), paused: true }),
  );
  for (const { status } of listening) assert.equal(status, 200);
  // In the older protocol: a session whose stream is open and never read, and one that never opens it.
  const deaf = [];
  for (const opens of [true, false]) {
    const opened = await raw(legacy(1, "initialize", hello, bearer(token)));
    const headers = { ...bearer(token), "mcp-session-id": opened.headers["mcp-session-id"] };
    await raw(legacy(null, "notifications/initialized", {}, headers));
    for (const uri of uris) assert.equal((await raw(legacy(2, "resources/subscribe", { uri }, headers))).status, 200);
    const stream = opens && (await raw({ method: "GET", headers: { ...MIME, ...headers }, paused: true }));
    deaf.push({ headers, stream });
  }

  // 4 clients, 20 calls each, every one of which changes 25 watched tasks: 2,000 pieces of news for
  // each of the six that do not read.
  const writers = await all(4, () => connect({ era: MODERN, over: "http" }, { url: node.url, token }));
  let completed = 0;
  await all(4, async (index) => {
    const mine = tasks.slice(index * 25, index * 25 + 25);
    for (let turn = 0; turn < 20; turn += 1) {
      const updates = mine.map(({ id, revision }) => ({ id, revision }));
      const answer = await writers[index].ok("task_mutate", { action: "update", rank: turn, updates });
      assert.deepEqual(answer.refused, []);
      const fresh = new Map(answer.moved.map((entry) => [entry.id, entry.revision]));
      for (const task of mine) task.revision = fresh.get(task.id);
      completed += 1;
    }
  });
  assert.equal(completed, 80, "every call was answered");
  // And those that do not read news still get answers of their own.
  for (const { headers } of deaf) {
    const { status, text } = await raw(legacy(9, "tools/call", { name: "task_search", arguments: { projectId: "news" } }, headers));
    assert.equal(status, 200);
    assert.equal(message(text).id, 9);
  }
  // Somebody who does read hears of it all the while.
  const uri = uris[0];
  assert.deepEqual(await maker.watch(uri), [uri]);
  await writers[0].ok("task_mutate", { action: "update", id: tasks[0].id, revision: tasks[0].revision, priority: "high" });
  await maker.told(uri);
  for (const { end } of listening) end();
  for (const { stream } of deaf) if (stream) stream.end();
  await Promise.all([maker, ...writers].map((client) => client.close()));
});

await suite.check("the node stops while streams are open", async () => {
  const watcher = await connect({ era: MODERN, over: "http" }, { url: node.url, token });
  await watcher.watch("stead://conflicts");
  await node.stop();
  await watcher.client.close().catch(() => {});
});

suite.close();
