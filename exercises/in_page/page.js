// An exercise in the page: an editor, a Python that checks, and an answer that is kept.
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { Prec } from "@codemirror/state";
import { drawSelection, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

const HOME = new URL(".", import.meta.url);
const HELD = 1e6; // characters of an answer that are kept
const places = new Map(); // exercise -> its place in the page

// --- Python --------------------------------------------------------------------------------------

let worker = null;
let waiting = null; // the exercise whose answer is being checked
let timer = 0;
let since = 0; // when the answer began to run
let left = 0; // milliseconds that all its calls may still take
let lacks = []; // what Python in the page has not: pairs of a title and names
const limits = new Map(); // exercise -> seconds that an answer may take

function start() {
  if (worker) return;
  worker = new Worker(new URL("worker.js", HOME), { type: "module" });
  worker.onmessage = ({ data }) => hear(data);
  worker.onerror = (event) => hear({ failed: event.message ?? "its worker did not start" });
}

function end() {
  clearTimeout(timer);
  worker?.terminate();
  worker = null;
  waiting = null;
}

function hear({ received, name, seconds, busy, found, failed, begun, lacking }) {
  if (received !== undefined) for (const place of places.values()) place.progress(received);
  if (lacking) lacks = lacking;
  if (seconds !== undefined) {
    limits.set(name, seconds);
    if (name === waiting) left = 1000 * seconds;
    places.get(name).ready();
  }
  if (busy !== undefined) {
    clearTimeout(timer);
    if (busy) [since, timer] = [performance.now(), setTimeout(stop, left)];
    else left -= performance.now() - since;
  }
  if (found) {
    waiting = null;
    places.get(name).show(found);
  }
  if (failed !== undefined) {
    end();
    const words = begun ? "Python broke off" : "Python could not be loaded: is the network there?";
    for (const place of places.values()) {
      place.say(`${words} (${failed}) Check begins afresh; your answer is still here.`, "stopped");
    }
  }
}

function stop() {
  const [name, limit] = [waiting, limits.get(waiting)];
  end();
  places.get(name).say(
    `Stopped: your answer ran for more than ${limit} seconds. Does a loop never end? ` +
      "Or is a tensor large? Those are much slower here than in the notebook. " +
      "Python begins afresh, and your answer is still here.", "stopped");
  start();
  worker.postMessage({ name });
}

// Return whether the answer is being checked now; one is at a time.
function check(name, source) {
  if (waiting) return false;
  waiting = name;
  start();
  worker.postMessage({ name, source });
  return true;
}

// --- what is kept in this browser ----------------------------------------------------------------

const key = (name) => `practice:${name}`;

function kept(name) {
  try {
    return localStorage.getItem(key(name));
  } catch {
    return null;
  }
}

function keep(name, text) {
  try {
    if (text === null) localStorage.removeItem(key(name));
    else if (text.length > HELD) return false;
    else localStorage.setItem(key(name), text);
    return true;
  } catch {
    return false;
  }
}

// --- the page ------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...inside) {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...inside);
  return made;
}

function style() {
  if (document.getElementById("practice-style")) return null;
  const link = element("link", { id: "practice-style", rel: "stylesheet" });
  const came = new Promise((done) => (link.onload = link.onerror = done));
  link.href = new URL("page.css", HOME);
  document.head.append(link);
  return came;
}

// Open the place of an exercise; `button` stands in it, and goes.
export async function open(button) {
  const home = button.closest(".practice");
  const { exercise: name, start: first, size } = home.dataset;
  if (places.has(name)) return;
  const status = element("p", { className: "practice-status", role: "status" });
  const bar = element("progress", { max: Number(size), value: 0 });
  bar.setAttribute("aria-label", "Loading Python");
  const verdict = element("pre", { className: "practice-verdict", tabIndex: -1 });
  const printed = element("pre", { className: "practice-printed", hidden: true, tabIndex: 0 });
  printed.setAttribute("aria-label", "What your answer printed");
  let loaded = false;
  let saving = 0;
  const text = () => view.state.doc.toString();
  const set = (doc) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: doc } });
  const save = () => {
    const said = keep(name, text()) ? "" :
      "This browser does not keep your answer: its store is full or closed. Take it along.";
    if (said || status.textContent.startsWith("This browser")) status.textContent = said;
  };
  const place = {
    progress(received) {
      bar.value = received;
      const share = Math.min(100, Math.round((100 * received) / Number(size)));
      if (share === 100) bar.removeAttribute("value"); // how long the start takes nobody can say
      if (!loaded) status.textContent = share < 100 ? "Loading Python …" : "Starting Python …";
    },
    ready() {
      loaded = true;
      bar.hidden = true;
      list.replaceChildren(...lacks.map(([title, names]) =>
        element("li", {}, `${title}: `, element("code", {}, names.join(" ")))));
      if (waiting !== name) status.textContent = "Python is ready.";
    },
    say(words, kind) {
      verdict.className = `practice-verdict ${kind}`;
      verdict.textContent = words;
      status.textContent = "";
      run.disabled = false;
    },
    show(found) {
      place.say(found.said, found.right ? "right" : "wrong");
      printed.hidden = !found.printed;
      printed.textContent = found.printed;
    },
  };
  const go = () => {
    save();
    verdict.textContent = "";
    printed.hidden = true;
    run.disabled = check(name, text());
    if (!run.disabled) status.textContent = "Another answer is being checked; wait for it.";
    else status.textContent = loaded ? "Checking …" : "Loading Python …";
    return true;
  };
  const run = element("button", { type: "button", className: "practice-run sd-btn sd-btn-primary",
    onclick: go }, "Check");
  run.title = "Ctrl or ⌘ and Enter";
  const forget = () => {
    if (!confirm("Forget your answer to this exercise, and begin again?")) return;
    set(first);
    clearTimeout(saving);
    keep(name, null);
    status.textContent = "Forgotten.";
    verdict.textContent = printed.textContent = "";
    printed.hidden = true;
  };
  const download = () => {
    const link = element("a", { download: `${name}.py` });
    link.href = URL.createObjectURL(new Blob([text()], { type: "text/x-python" }));
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const copy = () => navigator.clipboard.writeText(text()).then(
    () => (status.textContent = "Copied: paste it over the answer's cell in the notebook."),
    () => (status.textContent = "The browser did not allow it; download it instead."));
  const buttons = element("div", { className: "practice-buttons" }, run,
    ...[["Copy for the notebook", copy], ["Download .py", download], ["Forget my answer, begin again", forget]]
      .map(([words, onclick]) => element("button", { type: "button", onclick,
        className: "sd-btn sd-btn-outline-primary" }, words)));
  const label = `Your answer: ${name}`;
  const hint = element("p", { className: "practice-hint", id: `practice-hint-${name}` },
    "Python's own library is here, and a small torch, for tensors without gradients. numpy, pe_lib " +
    "and what cells of the chapter define are not. (In the notebook, all of PyTorch and numpy are " +
    "there.) Tab indents; Escape, then Tab leaves the editor. Ctrl or ⌘ and Enter checks.");
  const list = element("ul", {}, element("li", {}, "Python is still loading; it knows."));
  const absent = element("details", { className: "practice-hint" },
    element("summary", {}, "What of PyTorch is not here"), list);
  const editor = element("div", { className: "practice-editor" });
  const view = new EditorView({
    doc: kept(name) ?? first,
    parent: editor,
    extensions: [
      Prec.highest(keymap.of([{ key: "Mod-Enter", run: go }])),
      keymap.of([indentWithTab, ...defaultKeymap, ...historyKeymap]),
      lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(),
      indentUnit.of("    "), EditorView.lineWrapping, python(), syntaxHighlighting(classHighlighter),
      EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": hint.id,
        spellcheck: "false", autocapitalize: "off" }),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        clearTimeout(saving);
        saving = setTimeout(save, 300);
      }),
    ],
  });
  places.set(name, place);
  start();
  worker.postMessage({ name });
  await style();
  home.replaceChildren(absent, editor, hint, buttons, bar, status, verdict, printed);
  verdict.setAttribute("role", "status");
  addEventListener("pagehide", () => saving && save());
  addEventListener("storage", (event) => { // another tab has written
    if (event.key === key(name) && event.newValue !== null && !view.hasFocus) set(event.newValue);
  });
  view.focus();
}
