// The page of the bench: one figure whose drawing follows a training, and the same as a table.

import { chart, clamp, digits, element, fromLink, grouped, heading, legend, mount, segment, text, toLink } from "../src/kit.js";
import { angles } from "./formula.js";
import { drawn, EVERY, lacksVectors, MARKS, MULTIPLES, RATE, SIZES } from "./shared.js";
import { GUESS } from "./tasks.js";
import GREY from "./bench.json"; // by task: the methods with the usual settings, here and in chapter 17
import WORKER from "./worker.txt";

export { WORKER };

const METHODS = { own: "a bias that I draw", none: "nothing", alibi: "ALiBi", t5: "T5’s buckets", shaw: "Shaw, keys only", rope: "RoPE", formula: "angles that I write", sinusoidal: "added sinusoids" };
const SHORT = { none: "nothing", alibi: "ALiBi", t5: "T5", shaw: "Shaw", rope: "RoPE", sinusoidal: "sinusoids" }; // at the ends of curves
const TASK_NAMES = { back: "3-back", recall: "recall" };
const ASKED = {
  back: "The model names the token three places back",
  recall: "One token of each text is a mark: ever after, the model names the token that followed it",
};
const HIGHEST = 8; // of what is drawn
const HIGH = 3; // of the losses that are shown, in nats
const is = (...methods) => (state) => methods.includes(state.method);
const SETTINGS = [ // what is said of a method's settings, where they are not the usual ones
  [is("alibi"), "steep", (v) => `slopes × ${digits(v)}`],
  [is("t5"), "buckets", (v) => `${v} buckets`],
  [is("t5"), "reach", (v) => `to distance ${v}`],
  [is("shaw"), "clip", (v) => `clipped at ${v}`],
  [is("rope", "sinusoidal"), "base", (v) => `base ${v}`],
  [is("sinusoidal"), "gain", (v) => `× ${digits(v)}`],
  [(state) => state.task !== "back", "task", (v) => TASK_NAMES[v]],
];
const PAIRS = ["above", "value", "below", "position"]; // colours

const runs = []; // the newest first, and behind it the one before
let started = 0;
let worker = null;
let redraw = () => {};
let note = ""; // what is said of a link, until something is set

const named = (setting) => `${METHODS[setting.method][0].toUpperCase()}${described(setting).slice(1)}`;
const described = (setting) => [setting.method === "formula" ? `angles ${setting.formula}` : METHODS[setting.method], ...SETTINGS.filter(([fits, key]) => fits(setting) && setting[key] !== bench.start[key]).map(([, key, say]) => say(setting[key])), `seed ${setting.seed}`].join(", ");
const percent = (share) => `${Math.round(100 * share)} %`;
const when = ({ learned, taken }) => (learned ? `learned after ${learned} steps` : `not within ${taken} so far`);

// What is wrong with a formula, in words; nothing if all is well.
function problem({ method, formula }) {
  try {
    if (method === "formula") angles(formula, SIZES.longest, SIZES.d / 2);
  } catch ({ message }) {
    return `Your formula, ${message}.`;
  }
  return "";
}

// What chapter 17 measured for a method that it has, at the training length and at the longest.
function chapter(setting) {
  const { task, method } = setting;
  const found = GREY.tasks[task][method]?.long;
  if (!found) return "";
  const [near, far] = [found.shares[0], found.shares.at(-1)].map((ends) => `${range(ends).replace("–", " to ")} %`);
  const usual = SETTINGS.every(([fits, key]) => key === "task" || !fits(setting) || setting[key] === bench.start[key]);
  const model = method === "shaw" ? "vectors for the values, too" : usual ? "same model" : "usual settings";
  return ` Chapter 17 (same task, ${model}): ${near} and ${far} after ${grouped(found.steps)} steps (${found.seeds} seeds, learning rate ${found.rate}, here ${RATE}).`;
}

// Whether anything is set otherwise than in a run, so that it cannot go on as it stands here.
const since = ({ setting }, state) => JSON.stringify({ ...setting, ...state }) !== JSON.stringify(setting);

function words(state) {
  const wrong = problem(state) || note;
  if (wrong) return wrong;
  const [run] = runs;
  if (!run) return `Press Train: ${TASK_NAMES[state.task]} with ${described({ ...state, task: "back" })}. ${ASKED[state.task]}, in texts of 32 tokens; then it is asked in longer ones.`;
  if (run.failed) return "This browser starts no worker from a page, or stopped it, so nothing can be trained here.";
  const { seen, setting } = run;
  if (!seen) return `${named(setting)}: the first steps are on their way.`;
  if (run.going) return `${named(setting)} is training: ${seen.learned ? when(seen) : "not learned so far"}.`;
  const [near, far] = [0, MULTIPLES.length - 1].map((i) => percent(seen.accuracies[i]));
  const found = `${named(setting)}, after ${grouped(seen.taken)} steps: ${near} right at 32 tokens (${seen.learned ? when(seen) : "not learned so far"}), ${far} at 512; guessing has ${percent(GUESS)}.`;
  if (since(run, state)) return `${found} Since then something was set otherwise: Train begins anew.`;
  return `${found}${seen.done ? chapter(setting) : " It pauses: Continue goes on."}`;
}

// Rows of a table: a name, cells, and what became of it.
function fill(body, rows) {
  body.replaceChildren(...rows.map(([name, ...cells]) => {
    const row = element("tr");
    element("th", { scope: "row" }, row, name);
    for (const cell of cells) element("td", {}, row, cell);
    return row;
  }));
}
const whole = (share) => `${Math.round(100 * share)}`;
const range = ([low, high]) => (whole(low) === whole(high) ? whole(low) : `${whole(low)}–${whole(high)}`);
const ranRows = () => ["this run", "before"].map((place, i) => {
  const { setting, seen } = runs[i] ?? {};
  return seen ? [`${place}: ${described(setting)}`, ...seen.accuracies.map(whole), when(seen)] : [`${place}: none yet`, ...MULTIPLES.map(() => "–"), "–"];
});
const greyRows = (state) => Object.entries(GREY.tasks[state.task]).flatMap(([method, { here, small, long, learned }]) => [
  [METHODS[method], ...here.map(range), learned.count ? `${learned.count} of ${GREY.seeds}, after ${[...new Set([learned.first, learned.last])].join("–")} steps` : `none of ${GREY.seeds} within ${bench.start.steps}`],
  ["chapter 17, short training", ...small.shares.map(range), `${grouped(small.steps)} steps`],
  ["chapter 17, long training", ...long.shares.map(range), `${grouped(long.steps)} steps`],
]);

// Names beside the ends of curves, each as near to its own as the others leave room.
function nameEnds(drawing, { X, Y }, ends) {
  const gap = 14;
  const x = X(MULTIPLES.length - 1);
  const sorted = ends.map(([name, kind, share]) => ({ name, kind, at: Y(share) })).sort((a, b) => a.at - b.at);
  let above = -Infinity;
  for (const each of sorted) above = each.y = Math.max(each.at, above + gap);
  let below = Y(0) + gap;
  for (const each of sorted.reverse()) below = each.y = Math.min(each.y, below - gap);
  for (const { name, kind, at, y } of sorted) {
    segment(drawing, "grey pale", x + 3, at, x + 11, y);
    text(drawing, x + 13, y + 4, name, { at: "start", kind });
  }
}

const hasCurve = is("own", "alibi", "formula");
let shown = "rope";
export const bench = {
  title: "A model that trains in this page",
  start: {
    task: "back", formula: "m / 10000^(j/4)", method: "rope", curve: [0, -0.5, -1, -1.5, -2, -2.5, -3, -3.5, -4, -4.5, -5, -6], beyond: "goes", heads: "alike",
    steep: 1, buckets: 16, reach: 16, clip: 16, base: 10000, gain: 1, seed: 1, steps: 400,
  },
  numbers: ({ method, ...rest }) => ({ added: [...Array(MARKS[MARKS.length - 1] + 1).keys()].map((distance) => (method === "own" ? drawn(rest, distance) : -rest.steep * distance / 4)) }),
  asks: {
    question: "RoPE learns 3-back in texts of 32 tokens. Of texts of 512 it names …",
    options: ["all tokens", "about half", "about one in sixteen"],
    get right() {
      return runs.some(({ setting, seen }) => seen?.taken >= setting.steps && !toLink(setting, bench.start)) ? 2 : null;
    },
    then: {},
    get why() {
      return bench.asks.right ? "That is no more than guessing. Look for a bias that keeps it." : "Press Train: the run answers.";
    },
  },
  lines: [3, 5],
  controls: [
    { kind: "choice", key: "task", label: "Task", options: TASK_NAMES, knob: true },
    { kind: "select", key: "method", label: "Positions by", options: METHODS, knob: true },
    { kind: "text", key: "formula", label: "angle of pair j (0 to 3) at place m, in radians", knob: true, enabled: is("formula") },
    { kind: "choice", key: "heads", label: "the four heads get", options: { alike: "the curve", halved: "1, ½, ¼, ⅛ of it" }, enabled: is("own") },
    { kind: "choice", key: "beyond", label: "beyond 32 the curve", options: { goes: "goes on", stays: "stays" }, enabled: is("own") },
    { kind: "range", key: "steep", label: "slopes, times ALiBi’s", min: 0, max: 16, step: 0.25, text: (v) => digits(v), enabled: is("alibi") },
    { kind: "range", key: "buckets", label: "buckets", min: 4, max: 32, step: 2, enabled: is("t5") },
    { kind: "range", key: "reach", label: "the last bucket ends at distance", min: 4, max: 128, enabled: is("t5") },
    { kind: "range", key: "clip", label: "distances are clipped at", min: 1, max: 32, enabled: is("shaw") },
    { kind: "range", key: "base", label: "base", min: 0.5, max: 6, step: 0.25, to: (v) => Math.round(10 ** v), from: Math.log10, enabled: is("rope", "sinusoidal") },
    { kind: "range", key: "gain", label: "size, times that of the tokens", min: 0.25, max: 4, step: 0.25, text: (v) => digits(v), enabled: is("sinusoidal") },
    { kind: "range", key: "seed", label: "seed", min: 1, max: 99 },
    { kind: "range", key: "steps", label: "steps at once", min: 200, max: 2000, step: 200 },
  ],
  settle(state) {
    state.reach = Math.max(state.reach, state.buckets / 2 + 1);
    shown = state.method;
  },
  height: (narrow) => (narrow ? 550 : 272) + (hasCurve({ method: shown }) ? 210 : 0),
  words,
  draw({ drawing, handle, state, set, width, narrow }) {
    redraw = () => set({});
    const top = hasCurve(state) ? 210 : 0;
    if (state.method === "formula") {
      const panel = chart(drawing, { x: 46, y: 26, width: width - 66, height: 130, xs: [0, SIZES.trained], ys: [-1, 1], ticks: [8, 4], xLabel: "place m" });
      legend(heading(drawing, 46, 16, "cosine of the angle of pair "), PAIRS.map((kind, j) => [kind, ` ${j}`]));
      const turns = problem(state) ? [] : angles(state.formula, SIZES.trained + 1, PAIRS.length);
      PAIRS.forEach((kind, j) => turns.length && panel.curve(turns.map((row, m) => [m, Math.cos(row[j])]), kind));
    } else if (top) {
      const { added } = bench.numbers(state);
      const marks = { xs: [0, MARKS.length - 1], xValues: [...MARKS.keys()], xFormat: (i) => `${MARKS[i]}` };
      const title = state.method === "own" ? "added to every score: draw it" : "added to every score by the steepest head";
      const panel = chart(drawing, { x: 46, y: 26, width: width - 66, height: 130, ...marks, ys: [-HIGHEST, HIGHEST], xLabel: "tokens back (not evenly spaced)", title });
      panel.curve(MARKS.map((mark, i) => [i, clamp(added[mark], -HIGHEST, HIGHEST)]), "value strong");
      if (state.method === "own") MARKS.forEach((mark, i) => {
        const to = (value) => set({ curve: state.curve.map((each, k) => (k === i ? Math.round(4 * clamp(value, -HIGHEST, HIGHEST)) / 4 : each)) });
        handle(`mark${i}`, {
          kind: "value", size: narrow ? 8 : 10, x: panel.X(i), y: panel.Y(state.curve[i]), now: state.curve[i], least: -HIGHEST, most: HIGHEST,
          label: `added ${mark} tokens back`, text: digits(state.curve[i]),
          move: (_, y) => to(panel.Y.invert(y)), step: (right, down, fast) => to(state.curve[i] + (right - down) * (fast ? 2 : 0.5)),
        });
      });
    }
    const half = narrow ? width - 130 : (width - 182) / 2;
    const ticks = { xValues: MULTIPLES.map((_, i) => i), xFormat: (i) => `${SIZES.trained * MULTIPLES[i]}` };
    const right = chart(drawing, { x: 46, y: top + 26, width: half, height: 200, xs: [0, 4], ys: [0, 1.02], ...ticks, xLabel: "tokens in the text", title: "share of tokens right", yValues: [0, 0.25, 0.5, 0.75, 1], yFormat: percent });
    const ends = []; // of the curves: a name, its colour, and the share there
    const kept = (shares, words, line, label) => {
      right.curve(shares.map((share, i) => [i, share]), line).append("title").text(`${words}: ${percent(shares[0])} right at 32 tokens, ${percent(shares.at(-1))} at 512`);
      ends.push([words.split(":")[0], label, shares.at(-1)]);
    };
    for (const [method, { middle }] of Object.entries(GREY.tasks[state.task])) {
      const chosen = method === state.method;
      if (chosen && !runs[0]?.seen) continue; // it would answer before the run does
      kept(middle, `${SHORT[method]}: median of ${GREY.seeds} seeds after ${bench.start.steps} steps`, `grey ${chosen ? "dashed" : "pale"}`, `grey word ${chosen ? "on" : "tinted"}`);
    }
    const steps = Math.max(state.steps, ...runs.map(({ seen }) => seen?.taken ?? 0));
    const loss = chart(drawing, { x: narrow ? 46 : half + 166, y: top + (narrow ? 306 : 26), width: narrow ? width - 58 : half, height: 200, xs: [0, steps], ys: [0, HIGH], xLabel: "steps", title: "loss in nats", ticks: [4, 4] });
    [...runs.keys()].reverse().forEach((i) => {
      const { seen } = runs[i];
      const kind = i ? "key dashed" : "query strong";
      if (!seen) return;
      kept(seen.accuracies, `${i ? "before" : "this run"}: ${described(runs[i].setting)}`, kind, i ? "key tinted word" : "query name word");
      if (!i) seen.accuracies.forEach((share, k) => right.point(k, share, "query"));
      loss.curve(seen.losses.map((value, k) => [EVERY * (k + 1), Math.min(HIGH, value)]), kind);
      if (seen.learned) loss.upright(seen.learned, kind);
      const pace = `${seen.taken} steps, ${Math.round(seen.taken / seen.seconds)} a second`;
      text(drawing, loss.X(steps), loss.Y(0.91 * HIGH) + 16 * i, i ? "before" : pace, { at: "end", kind: `tinted ${i ? "key" : "query"}` }).attr("style", "fill: var(--c)");
    });
    nameEnds(drawing, right, ends);
    return right;
  },
};

function send(message) {
  if (!worker) {
    worker = new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" })));
    worker.onerror = () => tell({ failed: true, going: false });
    worker.onmessage = ({ data: { id, seen } }) => id === runs[0].id && tell({ seen, going: runs[0].going && !seen.done });
  }
  worker.postMessage(message);
}
function tell(news) {
  Object.assign(runs[0], news);
  redraw();
}

function start() {
  const place = document.getElementById("bench");
  const state = { ...bench.start };
  const link = (changed) => `#bench${changed && "?"}${changed}`;
  const follow = mount(place.querySelector(".live"), bench, {}, { link, changed: (now) => {
    if (toLink(now, bench.start)) note = "";
    Object.assign(state, now);
    settled();
  } });
  const controls = place.querySelector(".live-controls");
  const row = element("div", { class: "bench-buttons" }, controls);
  const [train, pause] = ["Train", "Pause"].map((label) => element("button", { type: "button" }, row, label));
  const slow = lacksVectors() && element("p", { class: "bench-slow" }, controls);

  function table(parent, caption) {
    const made = element("table", { class: "bench-table" }, parent);
    element("caption", {}, made, caption);
    const head = element("tr", {}, element("thead", {}, made));
    for (const words of ["", ...MULTIPLES.map((multiple) => `${SIZES.trained * multiple}`), "learned"]) element(words ? "th" : "td", words ? { scope: "col" } : {}, head, words);
    return element("tbody", {}, made);
  }
  const figure = place.querySelector(".live");
  const ran = table(figure, "Of 100 tokens so many are named, by the length of the text.");
  const more = element("details", { class: "live-more" }, figure);
  element("summary", {}, more, `The grey curves: seeds 1 to ${GREY.seeds} of each method, ${bench.start.steps} steps, and chapter 17’s two trainings`);
  const known = table(more, "Of 100 tokens so many are named, from the lowest seed to the highest. The curves are the medians.");
  function settled() {
    const [run] = runs;
    train.disabled = Boolean(problem(state));
    pause.disabled = !run || run.failed || (!run.going && since(run, state));
    pause.textContent = run && !run.going ? "Continue" : "Pause";
    fill(ran, ranRows());
    fill(known, greyRows(state));
    const minutes = Math.max(1, Math.round(state.steps * GREY.plain.seconds / 60));
    if (slow) slow.textContent = `This browser has no WebAssembly with vectors: training takes about ${GREY.plain.times} times as long (${grouped(state.steps)} steps: about ${minutes} minute${minutes > 1 ? "s" : ""}, on a phone more).`;
  }
  train.addEventListener("click", () => {
    const [last] = runs;
    note = "";
    runs.splice(0, 2, { id: (started += 1), setting: { ...state }, seen: null, going: true }, ...(last?.seen ? [last] : []));
    send({ id: started, setting: state, go: true });
    redraw();
  });
  pause.addEventListener("click", () => {
    const going = !runs[0].going;
    send({ go: going });
    tell({ going });
  });
  const go = () => {
    const [anchor, changed] = location.hash.slice(1).split("?");
    if (anchor !== "bench" || changed === undefined) return;
    const given = new URLSearchParams(changed);
    if (!given.has("method") && given.has("curve")) given.set("method", "own"); // as links said when one began with a drawing
    const known = Object.hasOwn(TASK_NAMES, given.get("task") ?? "back");
    note = known ? "" : "The link asks for a task that the bench does not have. This is how the bench opens: press Train.";
    Object.assign(state, known ? fromLink(`${given}`, bench) : bench.start);
    follow(state);
    settled();
    redraw();
    place.scrollIntoView();
  };
  settled();
  go();
  addEventListener("hashchange", go);
}

if (typeof document !== "undefined" && document.getElementById) {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
}
