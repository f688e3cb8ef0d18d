// What the figures share: controls, a place to draw, a state that a link can hold.

import { axisBottom, axisLeft } from "d3-axis";
import { drag } from "d3-drag";
import { scaleLinear, scaleLog } from "d3-scale";
import { pointer, select } from "d3-selection";
import { abs, atan2, cos, exp, floor, max, min, round, sin } from "./positions.js";

export const NARROW = 560; // pixels; below, panels stand under each other
let made = 0;

export function element(name, attributes = {}, parent = null, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  parent?.append(node);
  return node;
}

const div = (kind, parent) => element("div", { class: kind }, parent);
function push(words, parent, act) {
  const button = element("button", { type: "button" }, parent, words);
  button.addEventListener("click", act);
  return button;
}

const focus = (node) => node.focus({ preventScroll: true });

// A number as it is written: a true minus, no minus before nothing.
export function digits(value, places = 2) {
  const text = value.toFixed(places);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "\u2212");
}
export const whole = (value) => digits(value, 0);
const near = (value) => String(Number(value.toPrecision(2))).replace("-", "\u2212");
export const clamp = (value, low, high) => min(high, max(low, value));
// Somebody's own words keep their direction to themselves, whichever is that of the line.
const isolated = (words) => `\u2068${words}\u2069`;
const signsOf = (word) => [...new Intl.Segmenter().segment(word)].map((each) => each.segment);
export const shortened = (word, most = 12) => (signsOf(word).length > most ? `${signsOf(word).slice(0, most - 1).join("")}…` : word);
export const quoted = (word) => `“${isolated(shortened(word, 20))}”`;
export const grouped = (value) => round(value).toLocaleString("en-US");
export const added = (terms) => terms.join(" + ").replaceAll("+ −", "− ") || "0";
// Keep the places of some tokens within the text.
export const within = (count, ...names) => (state) => {
  for (const name of names) state[name] = clamp(round(state[name]), 0, count(state) - 1);
};

// Controls ----------------------------------------------------------------------------------
// Each makes its elements once and returns a function that writes the state into them.

const same = (value) => value;
const limit = (bound, state) => (typeof bound === "function" ? bound(state) : bound);

// The place of a control with its label, and the id that this names.
function labelled(kind, label, parent) {
  const id = `live-${++made}`;
  const box = div(`live-control ${kind}`, parent);
  element("label", { for: id }, box, label);
  return [box, id];
}

function rangeControl(control, parent, state, set) {
  const { key, label, step = 1, to = same, from = same, text = String, play, also } = control;
  const with_ = (value) => ({ [key]: value, ...also?.(value, state) });
  const [box, id] = labelled(control.kin ?? "", label, parent);
  const shown = element("output", { for: id }, box);
  const line = div("live-slider", box);
  const least = element("small", { "aria-hidden": "true" }, line);
  const input = element("input", { type: "range", id, step }, line);
  const most = element("small", { "aria-hidden": "true" }, line);
  input.addEventListener("input", () => set(with_(to(Number(input.value)))));
  if (play) {
    const button = push("▶ Play", box, () => turn(!beat));
    let beat;
    const turn = (on) => {
      clearInterval(beat);
      beat = on && setInterval(() => (state[key] < limit(control.max, state) && box.isConnected ? set(with_(state[key] + 1)) : turn()), 300);
      button.textContent = on ? "■ Stop" : "▶ Play";
    };
  }
  return () => {
    for (const [end, place] of [["min", least], ["max", most]]) {
      const bound = limit(control[end], state);
      input[end] = bound;
      place.textContent = text(to(bound), { ...state, ...with_(to(bound)) });
    }
    input.value = from(state[key]);
    shown.textContent = text(state[key], state);
    input.setAttribute("aria-valuetext", shown.textContent);
  };
}

function choiceControl({ key, label, options }, parent, state, set) {
  const name = `live-${++made}`;
  const box = element("fieldset", { class: "live-control live-choice" }, parent);
  element("legend", {}, box, label);
  const row = element("div", {}, box);
  const inputs = Object.entries(options).map(([value, words]) => {
    const option = element("label", {}, row);
    const input = element("input", { type: "radio", name, value }, option);
    element("span", {}, option, words);
    input.addEventListener("change", () => set({ [key]: value }));
    return input;
  });
  return () => inputs.forEach((input) => (input.checked = input.value === String(state[key])));
}

function selectControl({ key, label, options, also }, parent, state, set) {
  const [box, id] = labelled("", label, parent);
  const input = element("select", { id }, box);
  for (const [value, words] of Object.entries(options)) element("option", { value }, input, words);
  input.addEventListener("change", () => set({ [key]: input.value, ...also?.(input.value, state) }));
  return () => (input.value = state[key]);
}

function textControl({ key, label, most = 120 }, parent, state, set) {
  const [box, id] = labelled("live-text", label, parent);
  const kind = { type: "text", dir: "auto", id, maxlength: most, spellcheck: "false", autocomplete: "off" };
  const input = element("input", kind, box);
  input.addEventListener("input", () => set({ [key]: input.value }));
  return () => {
    if (input.value !== state[key]) input.value = state[key];
  };
}

function switchControl({ key, label }, parent, state, set) {
  const box = element("label", { class: "live-control live-switch" }, parent);
  const input = element("input", { type: "checkbox" }, box);
  element("span", {}, box, label);
  input.addEventListener("change", () => set({ [key]: input.checked }));
  return () => (input.checked = state[key]);
}

const CONTROLS = {
  range: rangeControl,
  choice: choiceControl,
  select: selectControl,
  text: textControl,
  switch: switchControl,
};

// A question before anything moves, which may be skipped. What was predicted then stands beside
// what is, in the place of the question, so that nothing jumps.
function prediction(figure, parent, state, set) {
  const { asks } = figure;
  const { question, options, pictures, marks, level, of, then } = asks;
  const seen = (patch) => figure.numbers({ ...figure.start, ...patch });
  const curve = (patch) => marks.map((x) => of(seen(patch), x));
  const drawn = pictures?.(seen) ?? [];
  const most = max(...drawn.flat(2).map(abs));
  const box = div("live-predict", parent);
  const ask = element("div", { role: "group", "aria-label": question, tabindex: -1 }, box);
  const told = element("p", { tabindex: -1 }, box);
  const guess = { marks };
  let wanted; // the state of a link that asked first
  let said; // the prediction, and below what happens, as they were told last
  let known;

  function show(answer, node) {
    const rows = drawn[answer];
    if (rows) cells(attributes(select(node).append("svg"), { width: 50, height: 50, "aria-hidden": true }), 1, 1, Array(2).fill(48 / rows.length), rows, most);
    node.append(options?.[answer] ?? (answer === guess.mine ? "dashed" : answer.map((value, i) => `${near(value)} at ${whole(marks[i])}`).join(", ")));
  }
  function tell(answer) {
    told.replaceChildren();
    [said, known] = [answer, asks.right]; // null as long as a training has not answered
    for (const [name, which] of [["Your prediction: ", answer], ["What happens: ", marks ? curve(then) : known]]) {
      if (which === null) continue; // nobody said
      const line = element("span", {}, told);
      element("strong", {}, line, name);
      show(which, line);
    }
    told.append(element("br"), asks.why);
  }
  // The state in which it is asked; a sentence and a pair may be others, unless the answer speaks of them.
  const base = () => {
    const own = ["sentence", "query", "key"].filter((key) => key in state && !(key in then));
    return { ...figure.start, ...Object.fromEntries(own.map((key) => [key, state[key]])) };
  };
  const asked = () => ({ ...base(), ...then });
  const answered = (answer) => {
    tell(answer);
    box.classList.add("told");
    guess.asking = false;
  };
  const choose = (answer) => {
    set(asked());
    answered(answer);
    focus(told);
  };
  element("strong", {}, ask, "Predict: ");
  element("span", {}, ask, `${question} `);
  const row = element("span", {}, ask);
  options?.forEach((_, i) => show(i, push("", row, () => choose(i))));
  if (marks) {
    element("span", { class: "value" }, row, "Drag the pink points below, then");
    guess.check = push("Check", row, () => choose(guess.mine));
  }
  push("Skip", row, () => {
    box.hidden = true;
    guess.asking = false;
    set(wanted);
    parent.nextSibling.querySelector("input, select").focus();
  });
  guess.again = () => {
    Object.assign(guess, { asking: true, led: false, mine: marks?.map(() => level) });
    wanted = null;
    if (marks) guess.check.disabled = true;
    tell(asks.right ?? guess.mine ?? 0);
    box.hidden = false;
    guess.leave();
  };
  // A link to the very state that is asked about asks first: the answer leads there, and so does "Skip".
  guess.onlyAsks = (next) => {
    guess.led = guess.asking && toLink(next, { ...figure.start, ...then });
    if (!guess.asking || guess.led) return next;
    wanted = next;
    focus(ask);
    return figure.start;
  };
  // What is asked speaks of the state at the start, and what is told of the one that was asked
  // about: in another one neither is right. But a slider on the way to a curve that is asked for
  // would show it: there it is hidden, and asked for still. On a phone what rests folds, and what
  // the finger is on stays where it is. Returns whether it is asked or told.
  guess.leave = () => {
    const top = () => parent.nextSibling.getBoundingClientRect().top;
    const before = top();
    const moved = toLink(state, base());
    const nearer = (key) => state[key] !== figure.start[key] && then[key] !== figure.start[key];
    guess.hides = guess.asking && marks && !guess.led && Object.keys(then).some(nearer);
    const there = !toLink(state, asked());
    // Whoever moves to the very state that is asked about is told, with no prediction.
    if (known !== asks.right) tell(said);
    if (guess.asking && there && known !== null && !guess.hides) {
      answered(null);
      guess.mine = null;
    }
    box.inert = guess.asking ? moved && !guess.hides : !there;
    box.classList.toggle("told", !guess.asking && there);
    if (top() !== before) scrollBy({ top: top() - before, behavior: "instant" });
    return !box.inert;
  };
  return guess;
}

// Sliders over the powers of two, and of ten to two digits.
export const doubled = { kind: "range", from: Math.log2, to: (v) => 2 ** v };
export const power = { kind: "range", step: 0.1, from: Math.log10, to: (v) => Number((10 ** v).toPrecision(2)) };

// One slider for two positions that keep their distance.
export const exact = (value) => digits(value, Number.isInteger(value) ? 0 : 1);
export const together = (a, b, last) => ({
  kind: "range", key: a, knob: true, min: (s) => max(0, s[a] - s[b]), max: (s) => last - max(0, s[b] - s[a]),
  text: (v, s) => `${exact(v)} and ${exact(s[b])}`, also: (v, s) => ({ [b]: round(10 * (s[b] + v - s[a])) / 10 }),
});

// A state in a link -------------------------------------------------------------------------

export function toLink(state, start) {
  const changed = Object.entries(state).filter(([key, value]) => String(value) !== String(start[key]));
  return `${new URLSearchParams(changed)}`;
}

// Only what the figure knows is taken, and only of its type and within its controls' bounds.
export function fromLink(text, figure) {
  const state = { ...figure.start };
  for (const [key, value] of new URLSearchParams(text)) {
    const known = Object.hasOwn(figure.start, key) ? figure.start[key] : undefined;
    if (typeof known === "boolean") state[key] = value === "true";
    if (typeof known === "string") state[key] = value.slice(0, 120);
    const values = value.split(",").map(Number);
    if (!values.every(Number.isFinite)) continue;
    if (typeof known === "number") state[key] = values[0];
    if (Array.isArray(known) && values.length === known.length) {
      state[key] = values.map((each) => clamp(each, -10, 10));
    }
  }
  for (const control of figure.controls) {
    const { kind, key, min, max, step = 1, options, to = same, from = same } = control;
    if (options && key && !Array.isArray(state[key]) && !Object.hasOwn(options, state[key])) state[key] = figure.start[key];
    if (kind !== "range") continue;
    const at = Number.isFinite(from(state[key])) ? from(state[key]) : from(figure.start[key]);
    const near = Number((round(at / step) * step).toPrecision(12));
    state[key] = to(clamp(near, limit(min, state), limit(max, state)));
  }
  figure.settle?.(state);
  return state;
}

// The figure --------------------------------------------------------------------------------

// Put a figure into an element; return a function that gives it another state, and returns the one before.
export function mount(place, figure, given, { link = null, changed = () => {} } = {}) {
  const state = { ...figure.start, ...given };
  const root = element("div", { class: "live-figure", role: "group", "aria-label": figure.title });
  const tasks = div("live-tasks", root);
  const knob = div("live-controls", root);
  const [lines, more] = figure.lines; // of the words at most, on a desk and on a phone
  const words = element("p", { class: "live-words", style: `--lines:${lines};--more:${more}` }, root);
  const stage = div("live-stage", root);
  const rest = element("details", { class: "live-more" }, root);
  const others = figure.controls.filter((control) => !control.knob);
  const summary = element("summary", {}, rest);
  const panel = div("live-controls", rest);
  const tools = div("live-tools", root);
  const spoken = element("p", { class: "live-spoken", role: "status" }, root);
  const svg = select(stage).append("svg");
  const drawing = svg.append("g").attr("aria-hidden", "true");
  const handles = svg.append("g");
  const sheet = figure.sheet && div("live-sheet", stage); // words instead of a drawing
  const slow = matchMedia("(prefers-reduced-motion: reduce)");
  let waiting = 0;
  let since = 0; // milliseconds, when the frame that is waited for was asked for
  let speech = 0;
  const said = () => figure.words(state).replaceAll(" %", "\u00a0%");
  // The name of a control out of sight, and what it was set to, where that is not as at the start.
  const setTo = ({ key, label, text = String, options }) => {
    const value = state[key];
    return String(value) === String(figure.start[key]) ? label : `${label}: ${isolated({ true: "yes", false: "no" }[value] ?? options?.[value] ?? shortened(text(value, state), 24))}`;
  };
  let at = []; // what glides: on its way from where it was to where the state has it

  const soon = () => {
    since = Date.now();
    waiting = requestAnimationFrame(update);
  };

  function set(patch) {
    Object.assign(state, patch);
    figure.settle?.(state);
    if (!guess.asking) guess.mine = null;
    if (!waiting) soon();
    clearTimeout(speech);
    speech = setTimeout(() => (spoken.textContent = said()), 600);
    changed({ ...state });
  }

  const guess = prediction(figure, tasks, state, set);
  const controls = figure.controls.map((control) => {
    const home = control.knob ? knob : panel;
    const write = CONTROLS[control.kind](control, home, state, set);
    const box = home.lastElementChild;
    return () => {
      box.hidden = control.enabled && !control.enabled(state);
      write();
    };
  });
  const drawn = new Map();

  // A point that is dragged with pointer or finger, or moved with the arrow keys. It is made once
  // and only moved afterwards, or it would lose the focus.
  function handle(name, { x, y, label, text, now, least, most, move, step, shape = "circle", size = 12, kind = "ink" }) {
    let known = drawn.get(name);
    if (!known) {
      const node = put(handles, shape, "", { tabindex: 0, role: "slider" });
      known = { node, now: {} };
      node.call(
        drag()
          .container(svg.node())
          .on("start", (event) => {
            focus(node.node());
            known.now.move(event.x, event.y);
          })
          .on("drag", (event) => known.now.move(event.x, event.y)),
      );
      node.on("keydown", (event) => {
        const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e6, 0], End: [1e6, 0], PageUp: [0, -5], PageDown: [0, 5] }[event.key] ?? [];
        if (right === undefined) return;
        event.preventDefault();
        if (waiting) update(); // a key that comes before the frame moves on from the one before it
        known.now.step(right, down, event.shiftKey);
      });
      drawn.set(name, known);
    }
    known.now = { move, step };
    known.used = true;
    const { node } = known;
    node.attr("class", `live-handle live-handle-${shape} ${kind}`);
    attributes(node, shape === "circle" ? { cx: x, cy: y, r: size } : { x, y, width: size, height: size, style: `stroke-width: ${max(4, 24 - size)}px` });
    attributes(node, { "aria-label": label, "aria-valuetext": text, "aria-valuenow": now, "aria-valuemin": least, "aria-valuemax": most });
  }

  // A part of the picture that is switched by pressing it. Like a handle, it is made once.
  function pressable(name, { label, on, press, ...place }) {
    const node = drawn.get(name)?.node ?? put(handles, "rect", "live-handle live-toggle ink", { tabindex: 0, role: "button" });
    drawn.set(name, { node, used: true });
    attributes(node, { ...place, "aria-label": label, "aria-pressed": on });
    node.on("click", press).on("keydown", (event) => {
      if (!/^( |Enter)$/.test(event.key)) return;
      event.preventDefault();
      press();
    });
  }

  // The curve that is predicted, with a handle at each of its marks until it is told.
  function dragged({ X, Y, curve, veil }) {
    const { mine, marks, asking, hides } = guess;
    const [least, most] = Y.domain();
    if (hides) veil("hidden until Check");
    curve(marks.map((x, i) => [x, mine[i]]), "value dashed");
    if (asking) marks.forEach((place, i) => {
      const [x, y] = [X(place), Y(mine[i])];
      const to = (value) => {
        mine[i] = clamp(value, least, most);
        guess.check.disabled = false;
        set({});
      };
      shape(drawing, "line value", `M${x - 5},${y - 17}l5,-5l5,5m0,34l-5,5l-5,-5`);
      handle(`guess${i}`, {
        kind: "value", x, y, now: mine[i].toFixed(3), least, most, label: `predicted at ${whole(place)}`, text: near(mine[i]),
        move: (_, y) => to(Y.invert(y)), step: (right, down) => to(mine[i] + ((right - down) * (most - least)) / 40),
      });
    });
  }

  function update() {
    cancelAnimationFrame(waiting);
    waiting = 0;
    const left = exp((since - Date.now()) / 90); // of the way, in whatever frames
    const goal = figure.glides?.(state) ?? [];
    at = goal.map((value, i) => (slow.matches || !(abs(value - at[i]) > 0.004) ? value : value + (at[i] - value) * left));
    if (at.some((value, i) => value !== goal[i])) soon();
    const width = min(760, round(stage.clientWidth) || 700);
    const narrow = width < NARROW;
    const open = guess.leave();
    controls.forEach((write) => write());
    drawing.selectAll("*").remove();
    drawn.forEach((each) => (each.used = false));
    const height = figure.height(narrow, width);
    attributes(svg, { width, height, viewBox: `0 0 ${width} ${height}` });
    if (sheet) {
      sheet.replaceChildren();
      sheet.style.height = `${figure.sheet[Number(narrow)]}px`;
    }
    const panel = figure.draw({ drawing, handle, pressable, svg, state, set, width, height, narrow, sheet, at });
    if (guess.mine && open) dragged(panel);
    drawn.forEach((each, name) => {
      if (each.used) return;
      each.node.remove();
      drawn.delete(name);
    });
    words.textContent = said();
    summary.textContent = `More: ${others.filter((control) => control.enabled?.(state) !== false).map(setTo).join(" · ")}`;
    if (link) address.href = link(toLink(fromLink(toLink(state, figure.start), figure), figure.start));
  }

  push("Start again", tools, () => {
    set({ ...figure.start });
    guess.again();
  });
  if (document.fullscreenEnabled) push("Whole window", tools, () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()));
  const address = link && element("a", {}, tools, "Link to this state");

  place.append(root);
  figure.settle?.(state);
  guess.again();
  update();
  let last = stage.clientWidth;
  new ResizeObserver(() => {
    if (stage.clientWidth === last) return;
    last = stage.clientWidth;
    update();
  }).observe(stage);
  return (next, asks) => {
    const before = { ...state };
    Object.assign(state, asks ? guess.onlyAsks(next) : next);
    figure.settle?.(state);
    if (toLink(state, before)) {
      soon();
      update();
    }
    return before;
  };
}

// Numbers in rows of a length.
export const inRows = (values, length) => Array.from({ length: values.length / length }, (_, i) => values.slice(i * length, (i + 1) * length));

// Drawing -----------------------------------------------------------------------------------

export function text(group, x, y, words, { at = "middle", kind = "", turn } = {}) {
  const node = put(group, "text", kind, { x, y, "text-anchor": at }).text(words);
  if (turn) node.attr("transform", `rotate(${turn},${x},${y})`);
  return node;
}

// A word that somebody typed, cut to the pixels that it has; its title is the whole.
export function fitted(group, x, y, word, room, looks) {
  const node = text(group, x, y, word, looks);
  for (let most = min(40, signsOf(word).length); most > 1 && node.node().getComputedTextLength() > room; most--) node.text(shortened(word, most));
  if (node.text() !== word) node.append("title").text(word);
}

// The looks of a label: that of a chosen query or key, or of the others.
export const named = (chosen, kind) => (chosen ? `name ${kind} word` : "");
export const heading = (group, x, y, words) => text(group, x, y, words, { at: "start", kind: "title" });

// A panel with axes. Returns its scales and what draws in it.
export function chart(group, { x, y, width, height, xs, ys, xLabel = "", yLabel = "", title = "", logY = false, ticks = [6, 5], xFormat = null, yFormat = null, xValues = null, yValues = null }) {
  const X = scaleLinear().domain(xs).range([x, x + width]);
  const Y = (logY ? scaleLog() : scaleLinear()).domain(ys).range([y + height, y]);
  const axis = (made, at, count, format, values, far) =>
    put(group, "g", "axis", { transform: `translate(${at})` }).call(made.ticks(count).tickFormat(format).tickValues(values).tickSizeInner(-far).tickPadding(6).tickSizeOuter(0));
  axis(axisBottom(X), [0, y + height], ticks[0], xFormat, xValues, height);
  axis(axisLeft(Y), [x, 0], ticks[1], yFormat, yValues, width);
  if (xLabel) text(group, x + width / 2, y + height + 34, xLabel);
  if (yLabel) text(group, x - 36, y + height / 2, yLabel, { turn: -90 });
  if (title) heading(group, x, y - 10, title);
  return {
    X,
    Y,
    curve: (points, kind) => shape(group, `line ${kind}`, `M${points.map(([at, value]) => [X(at), Y(value)]).join("L")}`),
    point: (at, value, kind, size = 4) => circle(group, `fill ${kind}`, X(at), Y(value), size),
    upright: (at, kind) => segment(group, kind, X(at), y, X(at), y + height),
    veil: (words) => {
      box(group, "veil", x, y, width, height);
      text(group, x + width / 2, y + 16, words);
    },
    level: (value, kind) => segment(group, kind, x, Y(value), x + width, Y(value)),
  };
}

// Set attributes; make something of a kind in a group.
export function attributes(node, values) {
  for (const [key, value] of Object.entries(values)) node.attr(key, value);
  return node;
}
const put = (group, name, kind, values) => attributes(group.append(name), { class: kind, ...values });
export const box = (group, kind, x, y, width, height) => put(group, "rect", kind, { x, y, width, height });
export const circle = (group, kind, cx, cy, r) => put(group, "circle", kind, { cx, cy, r });
export const segment = (group, kind, x1, y1, x2, y2) => put(group, "line", `line ${kind}`, { x1, y1, x2, y2 });
export const shape = (group, kind, d) => put(group, "path", kind, { d });
// Words in their own colours behind a title.
export function legend(node, entries) {
  for (const [kind, words] of entries) put(node, "tspan", kind, { style: "fill: var(--c)" }).text(words);
}

// A cell for each number in a frame, white at zero, the stronger the further from it; where rows
// and columns stand, if they are not in their order.
export function cells(group, x, y, [width, height], rows, most, down = null, across = null) {
  rows.forEach((row, i) => row.forEach((value, j) => {
    const strength = min(1, abs(value) / max(1e-9, most)).toFixed(3);
    box(group, `fill ${value < 0 ? "below" : "above"}`, x + width * (across?.[j] ?? j), y + height * (down?.[i] ?? i), width + 0.3, height + 0.3).attr("fill-opacity", strength);
  }));
  box(group, "frame", x, y, width * rows[0].length, height * rows.length);
}

// What the colours of cells mean: from `low` to `high`, in colours of `least` to 1.
export function scale(group, x, y, low, high, least = -1) {
  cells(group, x, y, [4, 8], [Array.from({ length: 15 }, (_, i) => least + ((1 - least) * i) / 14)], 1);
  text(group, x - 4, y + 8, low, { at: "end" });
  text(group, x + 64, y + 8, high, { at: "start" });
}

// Where one of some squares was pressed, in pixels from its corner; moves count with as many buttons held.
export function pressed(svg, corners, side, pick, when = "click", held = 0) {
  svg.on(when, (event) => {
    if (event.type !== "click" && (event.pointerType === "touch" || event.buttons < held)) return;
    const [px, py] = pointer(event, svg.node());
    for (const [x, y] of corners) if (px >= x && px < x + side && py >= y && py < y + side) pick(px - x, py - y);
  });
}

// The pair of a query and a key on squares of cells: pressed in any of them, dragged in the first.
export function pairs({ drawing, handle, svg, set, state: { query, key } }, corners, cell, count, text, { when, held, round } = {}) {
  const [[x, y]] = corners;
  const [half, by] = round ? [cell / 2, 8] : [0, 1];
  const to = (q, k) => set({ query: clamp(q, 0, count - 1), key: clamp(k, 0, count - 1) });
  const pick = (px, py) => to(floor(py / cell), floor(px / cell));
  if (!round) box(drawing, "line ink", x + cell * key, y + cell * query, cell, cell);
  handle("pair", {
    ...(round ? {} : { shape: "rect", size: cell }), x: x + cell * key + half, y: y + cell * query + half,
    now: key - query, least: 1 - count, most: count - 1, label: "query and key", text,
    move: (px, py) => pick(px - x, py - y), step: (right, down, fast) => to(query + down * (fast ? by : 1), key + right * (fast ? by : 1)),
  });
  pressed(svg, corners, cell * count, pick, when, held);
}

export function arrow(group, [x0, y0], [x1, y1], kind) {
  const ahead = atan2(y1 - y0, x1 - x0);
  const barb = (by) => [x1 - 10 * cos(ahead + by), y1 - 10 * sin(ahead + by)];
  shape(group, `line ${kind}`, `M${x0},${y0}L${x1},${y1}M${barb(0.5)}L${x1},${y1}L${barb(-0.5)}`);
}
