// What the suites share: homes, nodes, the proxy that adds a token, clients of both eras, and a
// runner that goes on after a failure and closes with one line.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { Client as NewClient, StreamableHTTPClientTransport as NewHttp } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewStdio } from "@modelcontextprotocol/client/stdio";

export const here = dirname(fileURLToPath(import.meta.url));
export const root = resolve(here, "../..");
export const binary = resolve(process.env.STEAD ?? join(root, "target/debug/stead"));

/** The newest revision with a handshake, and the one without. */
export const LEGACY = "2025-11-25";
export const MODERN = "2026-07-28";

/** How long any one wait may take: a debug build on a busy machine. */
export const PATIENCE = 30_000;

// What a suite started and made; nothing of it outlives the suite.
const children = new Set();
const folders = new Set();

process.on("exit", () => {
  for (const child of children) child.kill("SIGKILL");
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

export function folder() {
  const made = mkdtempSync(join(tmpdir(), "stead-agents-"));
  folders.add(made);
  return made;
}

/** Starts a process that ends with the suite at the latest. */
export function start(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  children.add(child);
  child.on("exit", () => children.delete(child));
  child.on("error", () => children.delete(child));
  return child;
}

/** Runs a process to its end, within `ms`. */
export function run(command, args, { env, ms = PATIENCE, echo = false } = {}) {
  return new Promise((done, failed) => {
    const child = start(command, args, { env: { ...process.env, ...env } });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (data) => {
      stdout += data;
      if (echo) process.stdout.write(data);
    });
    child.stderr.on("data", (data) => {
      stderr += data;
      if (echo) process.stderr.write(data);
    });
    const timer = setTimeout(() => {
      child.kill("SIGKILL");
      failed(new Error(`${command} ${args.join(" ")} took longer than ${ms} ms\n${stdout}\n${stderr}`));
    }, ms);
    child.on("error", failed);
    child.on("close", (code) => {
      clearTimeout(timer);
      done({ code, stdout, stderr });
    });
  });
}

/** The promise's outcome, or an error that says what was waited for. */
export function within(promise, what, ms = PATIENCE) {
  let timer;
  const late = new Promise((_, failed) => {
    timer = setTimeout(() => failed(new Error(`waited ${ms} ms for ${what}`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** A home with a workspace of Ada's and the project `demo`. */
export class Home {
  static async make() {
    const home = new Home();
    home.path = join(folder(), "home");
    await home.text("init", "--member", "Ada", "--project", "demo");
    return home;
  }

  run(args, options) {
    return run(binary, ["--home", this.path, ...args], options);
  }

  async text(...args) {
    const { code, stdout, stderr } = await this.run(args);
    assert.equal(code, 0, `stead ${args.join(" ")}: ${stdout}${stderr}`);
    return stdout;
  }

  async data(...args) {
    return JSON.parse(await this.text("--json", ...args)).data;
  }

  /** A credential for a client over HTTP. */
  async token(name, ...args) {
    return (await this.data("agent", "add", name, ...args)).token;
  }

  /** A name for a client over stdio. */
  async local(name, ...args) {
    await this.data("agent", "add", name, "--local", ...args);
    return name;
  }

  async node(...args) {
    const child = start(binary, ["--home", this.path, "node", "run", ...args], {
      env: { ...process.env, RUST_LOG: "warn" },
    });
    let log = "";
    const address = await within(
      new Promise((done, failed) => {
        const read = (data) => {
          log += data;
          const found = /listens at (http:\/\/[^\s]+)/.exec(log);
          if (found) done(found[1]);
        };
        child.stdout.on("data", read);
        child.stderr.on("data", read);
        child.on("exit", (code) => failed(new Error(`the node ended with ${code}: ${log}`)));
      }),
      "the node to listen",
    );
    const ended = new Promise((done) => child.on("exit", done));
    return {
      url: `${address}/mcp`,
      host: address.replace("http://", ""),
      stop: async () => {
        child.kill("SIGTERM");
        await within(ended, "the node to end");
      },
    };
  }
}

/**
 * A proxy that adds a token and passes everything else through as it came, so that a suite without
 * tokens meets the real server: its Host and Origin too.
 */
export async function proxy() {
  const to = { host: "", token: "" };
  const server = http.createServer((request, response) => {
    const headers = {};
    for (let at = 0; at < request.rawHeaders.length; at += 2) {
      const name = request.rawHeaders[at].toLowerCase();
      if (name !== "connection") headers[name] = request.rawHeaders[at + 1];
    }
    if (to.token) headers.authorization = `Bearer ${to.token}`;
    const [hostname, port] = to.host.split(":");
    const onward = http.request(
      { hostname, port, path: request.url, method: request.method, headers, setHost: false, agent: false },
      (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        response.flushHeaders();
        answer.pipe(response);
        answer.on("error", () => response.destroy());
      },
    );
    onward.on("error", (error) => {
      if (!response.headersSent) response.writeHead(502);
      response.end(String(error));
    });
    // A client that goes takes its stream along.
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  });
  server.requestTimeout = 0;
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    to,
    port: server.address().port,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** The four ways in which a client reaches the board. */
export const WAYS = [
  { era: LEGACY, over: "stdio" },
  { era: LEGACY, over: "http" },
  { era: MODERN, over: "stdio" },
  { era: MODERN, over: "http" },
];

/**
 * A client of a real library: SDK 1.x for the older era, SDK 2 for the newer. `who` is
 * `{home, agent}` over stdio and `{url, token}` over HTTP.
 */
export async function connect({ era, over }, who, options = {}) {
  const modern = era === MODERN;
  const about = { name: options.name ?? "suite", version: "1.0.0" };
  const client = modern
    ? new NewClient(about, { versionNegotiation: { mode: { pin: MODERN } } })
    : new OldClient(about, { capabilities: {} });
  let transport;
  if (over === "stdio") {
    const Stdio = modern ? NewStdio : OldStdio;
    transport = new Stdio({
      command: binary,
      args: ["--home", who.home.path, "mcp", "--agent", who.agent, ...(options.args ?? [])],
      env: { PATH: process.env.PATH },
      stderr: "pipe",
    });
  } else {
    const Http = modern ? NewHttp : OldHttp;
    transport = new Http(new URL(who.url), {
      requestInit: { headers: { authorization: `Bearer ${who.token}` } },
    });
  }
  let negotiated;
  // The older library tells its transport alone which revision was agreed on.
  const set = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    negotiated = version;
    set?.(version);
  };
  await within(client.connect(transport), `a client to connect over ${over} in ${era}`);
  return new Agent(client, modern, transport, negotiated);
}

export class Agent {
  constructor(client, modern, transport, negotiated) {
    Object.assign(this, { client, modern, transport, negotiated, updates: [], waiting: [] });
    const heard = (note) => {
      this.updates.push(note.params.uri);
      for (const look of this.waiting) look();
    };
    if (modern) client.setNotificationHandler("notifications/resources/updated", heard);
    else client.setNotificationHandler(ResourceUpdatedNotificationSchema, heard);
  }

  /** A call's whole result: `{content, structuredContent, isError}`. */
  call(name, args) {
    return within(this.client.callTool({ name, arguments: args }), `${name} ${JSON.stringify(args).slice(0, 100)}`);
  }

  /** The structure of a call that must succeed; what its text says must be the same. */
  async ok(name, args) {
    const result = await this.call(name, args);
    const text = result.content[0].text;
    assert.ok(!result.isError, `${name} was refused: ${text}`);
    assert.deepEqual(JSON.parse(text), result.structuredContent, "text and structure differ");
    assert.ok(Buffer.byteLength(text) <= 10_240, `${name} answered ${Buffer.byteLength(text)} bytes`);
    return result.structuredContent;
  }

  /** The refusal of a call: `{text, error}`, which must both name the code. */
  async refused(name, args, code) {
    const result = await this.call(name, args);
    const text = result.content[0].text;
    assert.ok(result.isError, `${name} ${JSON.stringify(args)} was not refused: ${text.slice(0, 300)}`);
    const error = result.structuredContent.error;
    assert.equal(error.code, code, text);
    assert.ok(text.startsWith(`${code}: `), text);
    assert.ok(error.message && error.hint, text);
    return { text, error };
  }

  async read(uri) {
    const { contents } = await within(this.client.readResource({ uri }), `reading ${uri}`);
    assert.equal(contents[0].mimeType, "application/json");
    return JSON.parse(contents[0].text);
  }

  /** Watches addresses; answers which were accepted. */
  async watch(...uris) {
    if (!this.modern) {
      for (const uri of uris) await within(this.client.subscribeResource({ uri }), `subscribing to ${uri}`);
      return uris;
    }
    this.listening = await within(this.client.listen({ resourceSubscriptions: uris }), "a subscription");
    return this.listening.honoredFilter.resourceSubscriptions ?? [];
  }

  /** Waits until a change of an address was told after the first `seen` notes. */
  told(uri, seen = 0) {
    return within(
      new Promise((done) => {
        const look = () => {
          if (this.updates.slice(seen).includes(uri)) done();
        };
        this.waiting.push(look);
        look();
      }),
      `news of ${uri}; heard: ${this.updates.slice(seen)}`,
    );
  }

  async close() {
    await within(Promise.resolve(this.listening?.close()), "a subscription to end");
    await within(this.client.close(), "a client to close");
  }
}

/** Runs a suite's checks one after the other, goes on after a failure, and ends the process. */
export class Suite {
  constructor(name) {
    this.name = name;
    this.passed = 0;
    this.failed = [];
    this.skipped = [];
  }

  async check(title, body) {
    try {
      await within(Promise.resolve().then(body), title, 180_000);
      this.passed += 1;
      if (process.env.VERBOSE) console.log(`  ok    ${title}`);
    } catch (error) {
      this.failed.push(title);
      console.log(`  FAILED ${title}\n${error?.stack ?? error}`.replaceAll("\n", "\n    "));
    }
  }

  skip(title, why) {
    this.skipped.push(title);
    console.log(`  skipped ${title}: ${why}`);
  }

  close(more = "") {
    const skipped = this.skipped.length ? `, ${this.skipped.length} skipped` : "";
    const said = more ? `; ${more}` : "";
    console.log(`${this.name}: ${this.passed} passed, ${this.failed.length} failed${skipped}${said}`);
    process.exit(this.failed.length ? 1 : 0);
  }
}
