// The page of the bench: one figure whose drawing follows a training, and the same as a table.

import { chart, circle, clamp, digits, element, fromLink, heading, mount, text } from "../src/kit.js";
import { drawn, MARKS, SIZES } from "./model.js";
import { EVERY, MULTIPLES } from "./trainer.js";
import GREY from "./bench.json";
import WORKER from "./worker.txt";

export { WORKER };

const METHODS = { own: "a bias that I draw", none: "nothing", alibi: "ALiBi", t5: "T5’s buckets", shaw: "Shaw, keys only", rope: "RoPE", sinusoidal: "added sinusoids" };
const HIGHEST = 8; // of what is drawn
const is = (...methods) => (state) => methods.includes(state.method);
const SETTINGS = [ // what is said of a method's settings, where they are not the usual ones
  [is("alibi"), "steep", (v) => `slopes × ${digits(v)}`],
  [is("t5"), "buckets", (v) => `${v} buckets`],
  [is("t5"), "reach", (v) => `to distance ${v}`],
  [is("shaw"), "clip", (v) => `clipped at ${v}`],
  [is("rope", "sinusoidal"), "base", (v) => `base ${v}`],
  [is("sinusoidal"), "gain", (v) => `× ${digits(v)}`],
];

const runs = []; // the newest first, and behind it the one before
let started = 0;
let worker = null;
let redraw = () => {};

const named = (setting) => `${METHODS[setting.method][0].toUpperCase()}${described(setting).slice(1)}`;
const described = (setting) => [METHODS[setting.method], ...SETTINGS.filter(([fits, key]) => fits(setting) && setting[key] !== bench.start[key]).map(([, key, say]) => say(setting[key])), `seed ${setting.seed}`].join(", ");
const percent = (share) => `${Math.round(100 * share)} %`;
const when = ({ learned, taken }) => (learned ? `learned after ${learned} steps` : `not within ${taken} so far`);

function words(state) {
  const [run] = runs;
  if (!run) return `Press Train: 3-back with ${described(state)}. The model names the token three places back, in texts of 32 tokens; then it is asked in longer ones.`;
  if (run.failed) return "This browser starts no worker from a page, so nothing can be trained here.";
  const { seen } = run;
  if (!seen) return `${named(run.setting)}: the first steps are on their way.`;
  const slow = seen.vectors ? "" : " Without WebAssembly’s vectors this takes several times as long.";
  if (run.going) return `${named(run.setting)} is training: ${seen.learned ? when(seen) : "not learned so far"}.${slow}`;
  const share = percent(seen.accuracies[MULTIPLES.length - 1]);
  const more = seen.done ? (seen.learned ? "" : " Continue trains as long again.") : " It pauses: Continue goes on.";
  return `${named(run.setting)}: ${when(seen)}. In texts 16 times as long ${share} of its tokens are right; guessing has 6 %.${more}${slow}`;
}

// The runs and the grey curves, for eyes and for who listens.
function fill(table) {
  const rows = [
    ...runs.filter(({ seen }) => seen).map(({ setting, seen }, i) => [`${i ? "before" : "this run"}: ${described(setting)}`, seen.accuracies, seen]),
    ...Object.entries(GREY).map(([method, { accuracies, learned }]) => [METHODS[method], accuracies, { learned, taken: bench.start.steps }]),
  ];
  table.replaceChildren(...rows.map(([name, accuracies, { learned, taken }]) => {
    const row = element("tr");
    element("th", { scope: "row" }, row, name);
    for (const share of accuracies) element("td", {}, row, `${Math.round(100 * share)}`);
    element("td", {}, row, learned ? `after ${learned} steps` : `not within ${taken}`);
    return row;
  }));
}

const hasCurve = is("own", "alibi");
let shown = "own";
export const bench = {
  title: "A model that trains in this page",
  start: {
    method: "own", curve: [0, -0.5, -1, -1.5, -2, -2.5, -3, -3.5, -4, -4.5, -5, -6], beyond: "goes", heads: "alike",
    steep: 1, buckets: 16, reach: 16, clip: 16, base: 10000, gain: 1, seed: 1, steps: 400,
  },
  numbers: ({ method, ...rest }) => ({ added: [...Array(MARKS[MARKS.length - 1] + 1).keys()].map((distance) => (method === "own" ? drawn(rest, distance) : -rest.steep * distance / 4)) }),
  asks: {
    question: "RoPE learns 3-back in texts of 32 tokens. Of texts of 512 it names …",
    options: ["all tokens", "about half", "about one in sixteen"], right: 2,
    then: { method: "rope" },
    why: "That is no more than guessing. Press Train and see it, then look for a bias that keeps it.",
  },
  lines: [2, 4],
  controls: [
    { kind: "select", key: "method", label: "Positions by", options: METHODS, knob: true },
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
    if (top) {
      const { added } = bench.numbers(state);
      const marks = { xs: [0, MARKS.length - 1], xValues: [...MARKS.keys()], xFormat: (i) => `${MARKS[i]}` };
      const title = state.method === "own" ? "added to every score: draw it" : "added to every score by the steepest head";
      const panel = chart(drawing, { x: 46, y: 26, width: width - 66, height: 130, ...marks, ys: [-HIGHEST, HIGHEST], xLabel: "tokens back", title });
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
    const half = narrow ? width - 58 : (width - 128) / 2;
    const ticks = { xValues: MULTIPLES.map((_, i) => i), xFormat: (i) => `${SIZES.trained * MULTIPLES[i]}` };
    const right = chart(drawing, { x: 46, y: top + 26, width: half, height: 200, xs: [0, 4], ys: [0, 1.02], ...ticks, xLabel: "tokens in the text", title: "share of tokens named", yValues: [0, 0.25, 0.5, 0.75, 1], yFormat: percent });
    for (const [method, { accuracies }] of Object.entries(GREY)) right.curve(accuracies.map((share, i) => [i, share]), `grey ${method === state.method ? "dashed" : "pale"}`);
    const steps = Math.max(state.steps, ...runs.map(({ seen }) => seen?.taken ?? 0));
    const loss = chart(drawing, { x: narrow ? 46 : half + 112, y: top + (narrow ? 306 : 26), width: half, height: 200, xs: [0, steps], ys: [0, 3], xLabel: "steps", title: "loss in nats", ticks: [4, 4] });
    [...runs.keys()].reverse().forEach((i) => {
      const { seen } = runs[i];
      const kind = i ? "key dashed" : "query strong";
      if (!seen) return;
      right.curve(seen.accuracies.map((share, k) => [k, share]), kind);
      if (!i) seen.accuracies.forEach((share, k) => right.point(k, share, "query"));
      loss.curve(seen.losses.map((value, k) => [EVERY * (k + 1), Math.min(3, value)]), kind);
      if (seen.learned) loss.upright(seen.learned, kind);
      const pace = `${seen.taken} steps, ${Math.round(seen.taken / seen.seconds)} a second`;
      text(drawing, loss.X(steps), loss.Y(2.72) + 16 * i, i ? "before" : pace, { at: "end", kind: `tinted ${i ? "key" : "query"}` }).attr("style", "fill: var(--c)");
    });
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
  const follow = mount(place.querySelector(".live"), bench, {}, { link, changed: (now) => (Object.assign(state, now), settled()) });
  const row = element("div", { class: "bench-buttons" }, place.querySelector(".live-controls"));
  const [train, pause] = ["Train", "Pause"].map((label) => element("button", { type: "button" }, row, label));
  const whole = element("table", { class: "bench-table" }, place.querySelector(".live"));
  element("caption", {}, whole, "Of 100 tokens so many are named, by the length of the text. Below the runs: the grey curves.");
  const head = element("tr", {}, element("thead", {}, whole));
  for (const words of ["", ...MULTIPLES.map((multiple) => `${SIZES.trained * multiple}`), "learned"]) element(words ? "th" : "td", words ? { scope: "col" } : {}, head, words);
  const table = element("tbody", {}, whole);
  function settled() {
    const [run] = runs;
    pause.disabled = !run || run.failed;
    pause.textContent = run && !run.going ? "Continue" : "Pause";
    fill(table);
  }
  train.addEventListener("click", () => {
    const [last] = runs;
    runs.splice(0, 2, { id: (started += 1), setting: { ...state }, seen: null, going: true }, ...(last?.seen ? [last] : []));
    send({ id: started, setting: runs[0].setting, go: true });
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
    Object.assign(state, fromLink(changed, bench));
    follow(state);
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
