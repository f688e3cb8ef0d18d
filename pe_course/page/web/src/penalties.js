// What ALiBi, KERPLE and FIRE take off a score, and the window that is left.

import { box, chart, clamp, digits, power, whole } from "./kit.js";
import { abs, alibi, alibiSlopes, fireRatio, kerpleLog, kerplePower, log, max, min, range, round, softmax } from "./positions.js";

const LENGTH = 128;
const THRESHOLD = 64; // FIRE measures queries nearer to the start as if they stood here
const HELD = 0.95;
const METHODS = { alibi: "ALiBi", kerple_log: "KERPLE, logarithmic", kerple_power: "KERPLE, power", fire: "FIRE" };

function numbers({ method, heads, head, r1, r2, c }) {
  const slopes = alibiSlopes(heads);
  const penalty = {
    alibi: (distance) => alibi(-distance, slopes[head - 1]),
    kerple_log: (distance) => kerpleLog(-distance, r1, r2),
    kerple_power: (distance) => kerplePower(-distance, r1, r2),
    fire: (distance) => -r1 * fireRatio(LENGTH - 1, LENGTH - 1 - distance, c, THRESHOLD),
  }[method];
  const penalties = range(LENGTH).map(penalty);
  const weights = softmax(penalties);
  let held = 0;
  const window = weights.findIndex((weight) => (held += weight) >= HELD) + 1;
  return { slopes, penalties, weights, window: window || LENGTH };
}

const strength = { ...power, min: -2, max: 1, text: (v) => digits(v, v < 0.1 ? 3 : 2) };

export const penalties = {
  title: "What is taken off a score, by distance",
  start: { method: "alibi", heads: 8, head: 3, r1: 1, r2: 1, c: 0.1 },
  numbers,
  lines: [2, 4],
  glides: (state) => numbers(state).penalties,
  controls: [
    { kind: "range", key: "heads", label: "heads", min: 1, max: 16, enabled: (s) => s.method === "alibi" },
    { kind: "range", key: "head", kin: "key", label: "head shown", min: 1, max: (s) => s.heads, enabled: (s) => s.method === "alibi" && s.heads > 1, knob: true },
    { key: "r1", label: "strength r₁", ...strength, max: 1.5, enabled: (s) => s.method !== "alibi", knob: true },
    { kind: "select", key: "method", label: "method", options: METHODS },
    { key: "r2", label: "shape r₂", ...strength, max: 0.3, enabled: (s) => s.method.startsWith("kerple") },
    { key: "c", label: "bend c", ...strength, enabled: (s) => s.method === "fire" },
  ],
  settle(state) {
    state.head = clamp(state.head, 1, state.heads);
  },
  height: (narrow) => (narrow ? 540 : 300),
  words(state) {
    const { slopes, penalties: taken, window } = numbers(state);
    const one = 1 / slopes[state.head - 1];
    const slope = abs(one - round(one)) < 1e-9 ? `1/${round(one)}` : digits(slopes[state.head - 1], 4);
    const rule = {
      alibi: `Head ${state.head} of ${state.heads}: each token further away costs ${slope}.`,
      kerple_log: `−${digits(state.r1)} · log(1 + ${digits(state.r2)} · distance).`,
      kerple_power: `−${digits(state.r1)} · distance to the power ${digits(state.r2)}.`,
      fire: `−${digits(state.r1)} times the share of the way to the start, bent by c = ${digits(state.c, 3)}.`,
    }[state.method];
    return `${rule} At distance 10 the penalty is ${digits(taken[10])}; the nearest ${window} of ${LENGTH} positions hold ${100 * HELD} % of the weight.`;
  },
  draw({ drawing, handle, state, set, width, narrow, at: taken }) {
    const { slopes, window } = numbers(state);
    const weights = softmax(taken);
    const half = narrow ? width - 58 : (width - 128) / 2;
    const lowest = state.method === "alibi" ? -66 : min(-1, taken[LENGTH - 1]) * 1.1;
    const both = { width: half, height: narrow ? 196 : 228, xs: [-(LENGTH - 1), 0], xLabel: "key − query", xFormat: whole, ticks: [5, 5] };
    const left = chart(drawing, { ...both, x: 46, y: 26, ys: [lowest, -lowest * 0.05], title: "added to the score", yFormat: (v) => digits(v, lowest > -5 ? 1 : 0) });
    const right = chart(drawing, { ...both, x: narrow ? 46 : half + 114, y: narrow ? 300 : 26, ys: [0, max(0.13, ...weights) * 1.08], title: "attention weight (orange: 95 %)" });
    const inside = (points) => points.filter((point) => point[1] >= lowest);
    if (state.method === "alibi") slopes.forEach((slope) => left.curve(inside(range(LENGTH).map((d) => [-d, alibi(-d, slope)])), "grey pale"));
    left.curve(inside(taken.map((value, d) => [-d, value])), "key strong");
    const bar = max(1, half / LENGTH);
    weights.forEach((weight, d) => 
      box(drawing, `fill ${d < window ? "key" : "grey"}`, right.X(-d) - (d ? bar / 2 : bar), right.Y(weight), bar, right.Y(0) - right.Y(weight)));
    if (state.method !== "alibi") return right;
    const at = min(112, 60 / slopes[state.head - 1]);
    const to = (head) => set({ head: clamp(head, 1, state.heads) });
    handle("line", {
      kind: "key",
      x: left.X(-at), y: left.Y(alibi(-at, slopes[state.head - 1])), now: state.head, least: 1, most: state.heads,
      label: "line of the head", text: `head ${state.head} of ${state.heads}`,
      move: (px, py) => {
        const wanted = left.Y.invert(py) / min(-1, left.X.invert(px));
        const far = slopes.map((slope) => abs(log(max(wanted, 1e-4) / slope)));
        to(far.indexOf(min(...far)) + 1);
      },
      step: (across, down) => to(state.head + across - down),
    });
    return right;
  },
};
