// The whole story of a board that agents share, told by real client libraries: both eras of the
// protocol, over stdio and over HTTP.

import assert from "node:assert/strict";
import { connect, Home, LEGACY, MODERN, Suite, WAYS } from "./lib.mjs";

const suite = new Suite("story");
const home = await Home.make();
const node = await home.node();
await home.data("member", "add", "Grace", "--email", "grace@example.com");

const names = (list) => list.map((entry) => entry.slug).sort();

for (const way of WAYS) {
  const label = `${way.over}, ${way.era}`;
  const word = `${way.over}${way.era.slice(0, 4)}`;
  const who = async (name) =>
    way.over === "stdio" ? { home, agent: await home.local(name) } : { url: node.url, token: await home.token(name) };
  const project = `p-${word}`;
  await home.data("project", "add", project);
  const one = await connect(way, await who(`one-${word}`));
  const two = await connect(way, await who(`two-${word}`));
  const check = (title, body) => suite.check(`${label}: ${title}`, body);

  const create = async (title, more = {}) =>
    (await one.ok("task_mutate", { action: "create", projectId: project, title, ...more })).task;

  await check("the era is the one that was asked for", async () => {
    assert.equal(one.negotiated ?? one.client.getNegotiatedProtocolVersion(), way.era);
    assert.equal(one.client.getServerVersion().name, "stead");
    const { tools } = await one.client.listTools();
    assert.deepEqual(
      tools.map((tool) => tool.name),
      ["task_get", "task_mutate", "task_search"],
    );
    for (const { annotations } of tools) {
      const hints = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];
      for (const hint of hints) assert.equal(typeof annotations[hint], "boolean");
    }
    assert.match(one.client.getInstructions(), /delegate of Ada/);
  });

  await check("search, get, move; another is first; its fresh task is in the refusal; retry", async () => {
    const made = await create("Fix the login loop", { body: "The whole story", priority: "high" });
    const found = await one.ok("task_search", { projectId: project, q: "login loop" });
    assert.equal(found.tasks.length, 1);
    assert.equal(found.tasks[0].id, made.id);
    assert.equal(found.tasks[0].revision, made.revision, "a summary is enough to move");
    const { task } = await one.ok("task_get", { id: made.id });
    assert.equal(task.body, "The whole story");
    const first = await two.ok("task_mutate", { action: "move", id: made.id, revision: task.revision, status: "in_progress" });
    const move = { action: "move", id: made.id, revision: task.revision, status: "review" };
    const { text, error } = await one.refused("task_mutate", move, "STALE_WRITE");
    assert.equal(error.current.id, made.id);
    assert.equal(error.current.status, "in_progress");
    assert.equal(error.current.revision, first.task.revision);
    assert.ok(text.includes(first.task.revision), "the text alone has the revision too");
    assert.match(text.split("\n")[0], /ready -> in_progress/);
    assert.equal(error.changed[0].by.name, `two-${word}`);
    assert.deepEqual(error.overlap, ["status"]);
    const again = await one.ok("task_mutate", { ...move, revision: error.current.revision });
    assert.equal(again.task.status, "review");
    assert.equal(again.task.updatedBy.name, `one-${word}`);
    assert.equal(again.task.updatedBy.memberName, "Ada");
  });

  await check("one sprint of a project is active at a time", async () => {
    const sprint = async (name) =>
      (await one.ok("task_mutate", { action: "sprint_create", projectId: project, name, goal: "Ship it" })).sprint;
    const [first, second] = [await sprint("First"), await sprint("Second")];
    assert.equal(first.status, "planned");
    const task = await create("In a sprint");
    const assigned = await one.ok("task_mutate", { action: "sprint_assign", id: task.id, revision: task.revision, sprintId: first.id });
    assert.equal(assigned.task.sprintId, first.id);
    const stale = { action: "sprint_assign", id: task.id, revision: task.revision, sprintId: null };
    await one.refused("task_mutate", stale, "STALE_WRITE");
    const active = await one.ok("task_mutate", { action: "sprint_activate", sprintId: first.id });
    assert.equal(active.sprint.status, "active");
    const { text, error } = await two.refused("task_mutate", { action: "sprint_activate", sprintId: second.id }, "ALREADY_ACTIVE");
    assert.ok(JSON.stringify(error).includes(first.id) && text.includes(first.id), "the incumbent is named");
    const inSprint = await one.ok("task_search", { projectId: project, sprint: "active" });
    assert.deepEqual(inSprint.tasks.map((row) => row.id), [task.id]);
    assert.equal(inSprint.sprints.find((entry) => entry.id === first.id).status, "active");
    const without = await one.ok("task_search", { projectId: project, sprint: "none" });
    assert.ok(!without.tasks.some((row) => row.id === task.id));
    const done = await one.ok("task_mutate", { action: "sprint_complete", sprintId: first.id });
    assert.equal(done.sprint.status, "completed");
    await one.ok("task_mutate", { action: "sprint_activate", sprintId: second.id });
    await one.ok("task_mutate", { action: "sprint_complete", sprintId: second.id });
  });

  await check("an unknown project is refused with the real ones, and none is made", async () => {
    const before = names((await home.data("project", "list")).projects);
    for (const [tool, args] of [
      ["task_search", { projectId: "nowhere" }],
      ["task_mutate", { action: "create", projectId: "nowhere", title: "x" }],
      ["task_mutate", { action: "sprint_create", projectId: "nowhere", name: "x" }],
      ["task_mutate", { action: "claim", projectId: "nowhere" }],
    ]) {
      const { text, error } = await one.refused(tool, args, "UNKNOWN_PROJECT");
      assert.deepEqual([...error.knownProjects].sort(), before);
      for (const slug of before) assert.ok(text.includes(slug), "the text alone names them too");
    }
    assert.deepEqual(names((await home.data("project", "list")).projects), before);
  });

  await check("a payload may be nested, as an object and as text, and never contradicts", async () => {
    const fields = { projectId: project, title: "Nested", tags: ["a"] };
    const { task } = await one.ok("task_mutate", { action: "create", payload: fields });
    assert.equal(task.title, "Nested");
    const move = { id: task.id, revision: task.revision, status: "in_progress", by: "codex" };
    const moved = await one.ok("task_mutate", { action: "move", payload: JSON.stringify(move) });
    assert.equal(moved.task.status, "in_progress");
    assert.equal(moved.task.updatedBy.label, "codex");
    const twice = { action: "update", id: task.id, revision: moved.task.revision, title: "A", payload: { title: "B" } };
    const { error } = await one.refused("task_mutate", twice, "INVALID_ARGUMENT");
    assert.equal(error.field, "title");
  });

  await check("a missing and an unknown field are refused with what is accepted", async () => {
    const task = await create("Strict");
    const missing = await one.refused("task_mutate", { action: "move", id: task.id, status: "done" }, "INVALID_ARGUMENT");
    assert.equal(missing.error.field, "revision");
    const extra = { action: "move", id: task.id, revision: task.revision, status: "done", colour: "red" };
    const { text, error } = await one.refused("task_mutate", extra, "INVALID_ARGUMENT");
    assert.equal(error.field, "colour");
    assert.ok(error.accepted.includes("status") && text.includes('"status"'));
    const action = await one.refused("task_mutate", { action: "destroy", id: task.id }, "INVALID_ARGUMENT");
    assert.ok(action.error.accepted.includes("create"));
    const search = await one.refused("task_search", { project }, "INVALID_ARGUMENT");
    assert.ok(search.error.accepted.includes("projectId"));
    assert.equal((await one.ok("task_get", { id: task.id })).task.revision, task.revision);
    const sloppy = await one.ok("task_search", { projectId: project, limit: "3", status: '["ready"]', q: null });
    assert.ok(sloppy.tasks.length <= 3);
  });

  await check("the workspace is a resource with supervisor, role, capabilities, people and projects", async () => {
    const { resources } = await one.client.listResources();
    assert.ok(resources.some((resource) => resource.uri === "stead://workspace"));
    const { workspaces } = await one.read("stead://workspace");
    assert.equal(workspaces.length, 1);
    const [{ workspace, delegation, members, projects }] = workspaces;
    for (const field of ["id", "name", "slug"]) assert.equal(typeof workspace[field], "string");
    assert.equal(delegation.supervisor.displayName, "Ada");
    assert.equal(typeof delegation.supervisor.userId, "string");
    assert.equal(typeof delegation.advice, "string");
    for (const capability of ["tasks:read:all", "tasks:create", "tasks:assign"]) {
      assert.ok(delegation.capabilities.includes(capability), capability);
    }
    const grace = members.find((member) => member.displayName === "Grace");
    assert.equal(grace.email, "grace@example.com");
    assert.equal(grace.responsibilityRole, "contributor");
    assert.equal(typeof grace.userId, "string");
    assert.ok(projects.some((entry) => entry.slug === project && typeof entry.name === "string"));
    const assigned = await create("For Grace", { assignee: grace.email });
    assert.ok(JSON.stringify(assigned.assignee).includes("Grace"));
  });

  await check("a role that changes shows in the next read and refuses nothing", async () => {
    const role = async () => (await one.read("stead://workspace")).workspaces[0].delegation.responsibilityRole;
    assert.equal(await role(), "lead");
    await home.data("member", "set", "Ada", "--role", "observer");
    try {
      assert.equal(await role(), "observer");
      const task = await create("By an observer's delegate");
      await one.ok("task_mutate", { action: "move", id: task.id, revision: task.revision, status: "done" });
      assert.ok((await one.ok("task_search", { projectId: project, status: ["any"] })).tasks.length > 0);
    } finally {
      await home.data("member", "set", "Ada", "--role", "lead");
    }
  });

  await check("a client hears of another's change of a sprint and of a task that it watches", async () => {
    const task = await create("Watched");
    const other = await create("Not watched");
    const address = { task: `stead://task/${task.id}`, sprint: `stead://project/${project}/sprint` };
    const accepted = await one.watch(address.task, address.sprint);
    assert.deepEqual([...accepted].sort(), [address.task, address.sprint].sort());
    await two.ok("task_mutate", { action: "update", id: other.id, revision: other.revision, title: "Quiet" });
    await two.ok("task_mutate", { action: "comment", id: task.id, body: "Here is what I found" });
    await one.told(address.task);
    const seen = one.updates.length;
    const { sprint } = await two.ok("task_mutate", { action: "sprint_create", projectId: project, name: "Watched", goal: "" });
    await one.told(address.sprint, seen);
    const before = one.updates.length;
    await two.ok("task_mutate", { action: "sprint_activate", sprintId: sprint.id });
    await one.told(address.sprint, before);
    assert.equal((await one.read(address.sprint)).sprint.status, "active");
    assert.ok(!one.updates.some((uri) => uri.includes(other.id)), "only what was asked for is told");
    await two.ok("task_mutate", { action: "sprint_complete", sprintId: sprint.id });
  });

  await check("what cannot be watched is refused", async () => {
    if (way.era === LEGACY) {
      await assert.rejects(one.watch("stead://workspace"), (error) => {
        assert.equal(error.code, -32602);
        assert.match(error.message, /cannot be subscribed/);
        assert.ok(error.data.accepted.length > 0);
        return true;
      });
    } else {
      const accepted = await two.watch("stead://workspace");
      assert.deepEqual(accepted, [], "the acknowledgement says what was not accepted");
    }
  });

  await one.close();
  await two.close();
}

await node.stop();
suite.close();
