import { Home, proxy, run, here } from "./lib.mjs";
const [req, out] = process.argv.slice(2);
const home = await Home.make(); const p = await proxy(); p.to.token = await home.token("c");
const node = await home.node("--allow-host", `127.0.0.1:${p.port}`, "--allow-host", `localhost:${p.port}`); p.to.host = node.host;
const r = await run(process.execPath, [here+"/node_modules/@modelcontextprotocol/conformance/dist/index.js","server","--url",`http://127.0.0.1:${p.port}/mcp`,"--requirements",req,"-o",out], {ms:160000});
await node.stop(); process.exit(0);
