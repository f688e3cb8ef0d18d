// A query and a key are rotated by their positions; the score reads the difference.

import { arrow, chart, circle, clamp, digits, doubled, grouped, heading, power, shape, text, whole } from "./kit.js";
import { abs, atan2, cos, floor, frequencies, hypot, max, min, PI, range, rope, ropeScore, round, sin } from "./positions.js";

const REACH = 32; // positions to each side of the curve
const TURN = 2 * PI;

// The pairs of a head's query or key: the dragged one in its place, the others as chosen.
export function pairsOf({ content, d, pair }, dragged, seed) {
  return range(d / 2).map((r) => {
    if (r === pair || content === "same") return dragged;
    if (content === "one") return [0, 0];
    return [noise(2 * r + seed), noise(2 * r + 1 + seed)];
  });
}

// Numbers between -1.5 and 1.5 that look random, the same ones everywhere.
export const noise = (n) => 3 * ((((n + 1) * 0.6180339887498949 + ((n + 1) * (n + 1)) * 0.3247179572447458) % 1) - 0.5);

// From a query's direction to a key's, counterclockwise from 0 to a whole turn, when one is rotated further.
const between = (q, k, further) => {
  const angle = (atan2(k[1], k[0]) - atan2(q[1], q[0]) + further) / TURN;
  return TURN * (angle - floor(angle));
};

const GAPS = range(8 * REACH + 1).map((i) => i / 4 - REACH);

function numbers(state) {
  const { m, n, shift, d, base, q, k } = state;
  const rates = frequencies(d, base);
  const queries = pairsOf(state, q, 0);
  const keys = pairsOf(state, k, 1000);
  const over = (from, to) => GAPS.map((gap) => ropeScore(queries.slice(from, to), keys.slice(from, to), 0, gap, rates.slice(from, to)));
  const score = ropeScore(queries, keys, m + shift, n + shift, rates);
  return { rates, queries, keys, score, curve: over(0, d / 2), own: over(state.pair, state.pair + 1) };
}

export const ropeScoreFigure = {
  title: "A query and a key, rotated, and their score",
  start: { m: 1, n: 3, shift: 0, d: 2, base: 10000, pair: 0, content: "same", q: [1.6, 0.3], k: [1.2, -0.8] },
  controls: [
    { kind: "range", key: "shift", label: "both moved on by", min: 0, max: 1000, knob: true, play: true },
    { kind: "range", key: "m", kin: "query", label: "query at m", min: 0, max: REACH },
    { kind: "range", key: "n", kin: "key", label: "key at n", min: 0, max: REACH },
    { ...doubled, key: "d", label: "width d", min: 1, max: 7 },
    { ...power, key: "base", label: "base", min: 1, max: 7, text: grouped, enabled: (s) => s.d > 2 },
    { kind: "range", key: "pair", label: "pair shown", min: 0, max: (s) => s.d / 2 - 1, enabled: (s) => s.d > 2 },
    { kind: "choice", key: "content", label: "the other pairs", options: { same: "the same", one: "zero", random: "at random" }, enabled: (s) => s.d > 2 },
  ],
  numbers,
  lines: [2, 3],
  glides: ({ m, n, shift }) => [m + shift, n + shift],
  settle(state) {
    state.pair = clamp(state.pair, 0, state.d / 2 - 1);
  },
  height: (narrow) => (narrow ? 500 : 306),
  words(state) {
    const { m, n, shift, d, pair, q, k } = state;
    const { score, rates } = numbers(state);
    const made = d > 2 ? "" : `${digits(hypot(...q))} × ${digits(hypot(...k))} × cos(${digits(between(q, k, n - m))} rad) = `;
    const shown = d > 2 ? ` Of ${d / 2} pairs, pair ${pair} rotates by ${rates[pair].toPrecision(3)} radians per position.` : "";
    return `Query at ${m + shift}, key at ${n + shift}: n − m = ${whole(n - m)} (key minus query), score ${made}${digits(score)}.${shown}`;
  },
  draw({ drawing, handle, state, set, width, narrow, at: [atQ, atK] }) {
    const { q, k, m, n, pair } = state;
    const { rates, curve, own, score } = numbers(state);
    const size = narrow ? 230 : 250;
    const [left, top] = [narrow ? (width - size) / 2 : 14, 26];
    const unit = size / 4.4;
    const [x0, y0] = [left + size / 2, top + size / 2];
    const screen = ([a, b]) => [x0 + unit * a, y0 - unit * b];
    heading(drawing, left, top - 10, state.d > 2 ? `pair ${pair} of the head` : "the head’s two components");
    text(drawing, left, top + size + 14, "pale: before the rotation", { at: "start" });
    for (const radius of [1, 2]) circle(drawing, "grid", x0, y0, unit * radius);
    shape(drawing, "grid", `M${left},${y0}h${size}M${x0},${top}v${size}`);
    for (const [name, plain, place, kind] of [["q", q, atQ, "query"], ["k", k, atK, "key"]]) {
      const rotated = rope([plain], place, [rates[pair]])[0];
      arrow(drawing, [x0, y0], screen(plain), `${kind} pale`);
      arrow(drawing, [x0, y0], screen(rotated), `${kind} strong`);
      const far = 1 + 0.42 / max(0.3, hypot(...rotated));
      const [lx, ly] = screen(rotated.map((part) => part * far));
      text(drawing, lx, ly + 4, name, { kind: `name ${kind}` });
      const [x, y] = screen(rotated);
      const put = (pairOf) => set({ [name]: rope([pairOf], -place, [rates[pair]])[0].map((part) => Number(clamp(part, -2, 2).toFixed(2))) });
      handle(name, {
        kind, x, y, now: plain[0], least: -2, most: 2, label: `tip of the ${kind}, rotated`,
        text: `${digits(plain[0])} right, ${digits(plain[1])} up`,
        move: (px, py) => put([(px - x0) / unit, (y0 - py) / unit]),
        // Home and End lead to the ends of its first component, which is the slider's value.
        step: (right, down, fast) => abs(right) > 9 ? set({ [name]: [right < 0 ? -2 : 2, plain[1]] }) : put([rotated[0] + right * (fast ? 0.5 : 0.1), rotated[1] - down * (fast ? 0.5 : 0.1)]),
      });
    }
    // The angle between the two, whose cosine is in the score.
    const [from, by] = [atan2(q[1], q[0]) + atQ * rates[pair], between(q, k, (atK - atQ) * rates[pair])];
    const arc = range(25).map((i) => screen([0.5 * cos(from + (i * by) / 24), 0.5 * sin(from + (i * by) / 24)]));
    shape(drawing, "line ink", `M${arc.join("L")}`);
    text(drawing, ...screen([0.85 * cos(from + by / 2), 0.85 * sin(from + by / 2)]), `${digits(by)} rad`, { kind: "on" });
    const most = max(0.5, ...curve.map(abs)) * 1.12;
    const panel = chart(drawing, {
      x: narrow ? 46 : size + 84, y: narrow ? size + 78 : top, height: narrow ? 148 : 236,
      width: narrow ? width - 58 : width - size - 98, xs: [-REACH, REACH], ys: [-most, most],
      xLabel: "n − m, key minus query", yLabel: "score", title: `score ${digits(score)} at n − m = ${whole(n - m)}`,
      xFormat: whole, yFormat: (v) => digits(v, most < 3 ? 1 : 0),
    });
    if (state.d > 2) {
      text(drawing, width - 14, panel.Y(most) + 14, `grey: pair ${pair} alone`, { at: "end" });
      panel.curve(GAPS.map((gap, i) => [gap, own[i]]), "grey");
    }
    panel.curve(GAPS.map((gap, i) => [gap, curve[i]]), "above");
    panel.upright(n - m, "grey dashed");
    panel.point(n - m, score, "above", 7);
    const at = panel.X(n - m);
    handle("gap", {
      kind: "above", x: at, y: panel.Y(score), now: n - m, least: -REACH, most: REACH,
      label: "n minus m on the curve", text: `n − m = ${whole(n - m)}, score ${digits(score)}`,
      move: (px) => toGap(round(panel.X.invert(px))),
      step: (right, down) => toGap(n - m + right - down),
    });
    function toGap(gap) {
      const wanted = clamp(gap, -REACH, REACH);
      set(wanted >= 0 ? { n: min(REACH, m + wanted), m: min(REACH, m + wanted) - wanted } : { m: min(REACH, n - wanted), n: min(REACH, n - wanted) + wanted });
    }
  },
};
