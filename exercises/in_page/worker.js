// Python in a thread of its own: the page stays quick, and can end it.
import { loadPyodide } from "./pyodide.mjs";

const plainFetch = self.fetch.bind(self);
const FOLDER = "/home/pyodide";
let received = 0;
let ready = false;

async function count(body) {
  const reader = body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    received += part.value.byteLength;
    postMessage({ received });
  }
}

// What comes is counted in a copy: of the browser's own answer it keeps what it compiles.
self.fetch = async (...asked) => {
  const answer = await plainFetch(...asked);
  if (!answer.ok) throw new Error(`${answer.url}: ${answer.status}`);
  count(answer.clone().body).catch(() => {});
  return answer;
};

async function begin() {
  const checks = fetch("checks.zip").then((answer) => answer.arrayBuffer());
  checks.catch(() => {}); // it is waited for below
  const python = await loadPyodide({ stdout: () => {}, stderr: () => {} });
  python.unpackArchive(await checks, "zip", { extractDir: FOLDER });
  python.runPython(`import sys; sys.path.insert(0, "${FOLDER}")`);
  const runner = python.pyimport("runner");
  ready = true;
  return { python, runner };
}

const begun = begin();
const known = new Map(); // exercise -> the seconds that an answer may take

function prepare(name) {
  if (!known.has(name)) {
    known.set(name, (async () => {
      const check = await (await fetch(`${name}.json`)).text();
      const { python } = await begun;
      python.FS.writeFile(`${FOLDER}/${name}.json`, check);
      return JSON.parse(check).seconds;
    })());
  }
  return known.get(name);
}

onmessage = async ({ data: { name, source } }) => {
  try {
    const seconds = await prepare(name);
    postMessage({ name, seconds });
    if (source === undefined) return;
    const { runner } = await begun;
    const found = runner.check(name, source, (busy) => postMessage({ busy }));
    postMessage({ name, found: found.toJs({ dict_converter: Object.fromEntries }) });
    found.destroy();
  } catch (error) {
    postMessage({ failed: String(error.message ?? error), begun: ready });
  }
};
