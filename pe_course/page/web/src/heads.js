// What a trained head reads: its scores by distance and by frequency, and where it looks.

import { box, cells, chart, clamp, digits, fromLink, heading, inRows, named, pairs, scale, text, toLink, whole } from "./kit.js";
import { begin } from "./page.js";
import { abs, dot, floor, frequencies, hypot, max, min, range, rope, round, softmax, sqrt, sum } from "./positions.js";

const HEADS = {
  rope_1: "RoPE, layer 1", rope_2: "RoPE, layer 2", table: "Added table, layer 1", t5: "T5’s bias, layer 1", alibi: "ALiBi, layer 1",
  none: "No positions, layer 1", minilm_3: "MiniLM, head 3", minilm_6: "MiniLM, head 6", minilm_10: "MiniLM, head 10",
  glass_3: "Published decoder, layer 3", glass_1: "Published decoder, layer 1",
};
const WHOSE = { text: "this text", average: "the average word" };

// Rows of pairs [[a, b], ...] from whole numbers of one byte each, times a size.
const unpacked = (bytes, size, d) => inRows(inRows([...atob(bytes)].map((each) => ((each.charCodeAt() << 24) >> 24) * size), 2), d / 2);

const known = {};
function headOf({ head }) {
  const { d, base, bias, tokens, sizes, q, k, q_mean, k_mean, causal } = heads.data[head];
  const rows = () => [q, k, q_mean, k_mean].map((each, i) => unpacked(each, sizes[i % 2], d));
  known[head] ??= { d, causal, tokens, bias, rows: rows(), rates: base ? frequencies(d, base) : Array(d / 2).fill(0) };
  return known[head];
}
const turns = (state) => heads.data[state.head].base > 0;
const changes = (state) => turns(state) || heads.data[state.head].bias !== null;
const half = (state) => heads.data[state.head].d / 2;

// A bias of a distance that is taken for a part of itself, rounded towards 0.
const biasAt = (bias, back, slow) => bias?.[floor(abs(back) / slow)] ?? 0;

function numbers(state) {
  const { fast, last, slow, whose } = state;
  const { d, causal, tokens, bias, rows: [q, k, meanQ, meanK], rates: trained } = headOf(state);
  const rates = trained.map((rate, r) => (r < fast || r >= d / 2 - last ? 0 : rate / slow));
  const places = range(tokens.length);
  // The scores of rows of queries with rows of keys, of which one may stand for all places.
  const scored = (queries, keys, rates, slow) => {
    const [a, b] = [queries, keys].map((each) => places.map((i) => rope(each[i] ?? each[0], i, rates).flat()));
    return places.map((i) => places.map((j) => (causal && j > i ? -Infinity : dot(a[i], b[j]) / sqrt(d) + biasAt(bias, i - j, slow))));
  };
  const average = scored(meanQ, meanK, rates, slow);
  const weights = (whose === "text" ? scored(q, k, rates, slow) : average).map(softmax);
  // The mean along a diagonal, from the farthest key back to the farthest ahead.
  const along = (scores) => range((causal ? 1 : 2) * places.length - (causal ? 0 : 1), causal ? 0 : 1 - places.length).map((back) => {
    const held = places.filter((i) => i - back >= 0 && i - back < places.length).map((i) => scores[i][i - back]);
    return sum(held) / held.length;
  });
  const length = (pair) => hypot(...pair);
  const sizes = trained.map((_, r) => (length(meanQ[0][r]) * length(meanK[0][r])) / sqrt(d));
  return { rates, weights, curve: along(average), before: along(scored(meanQ, meanK, trained, 1)), sizes };
}

const first = ({ causal, tokens }) => (causal ? 0 : 1 - tokens.length);
const peak = (curve, from) => curve.indexOf(max(...curve)) + from;
const away = (back) => (back ? `${abs(back)} ${back > 0 ? "back" : "ahead"}` : "itself");
const whose = { key: "whose", label: "attention", options: WHOSE, kind: "choice" };

export const heads = {
  title: "What a trained head reads, and where it looks",
  start: { head: "rope_1", fast: 0, last: 0, slow: 1, whose: "text", query: 17, key: 16 },
  numbers,
  lines: [3, 6],
  glides: (state) => numbers(state).weights.flat(),
  controls: [
    { kind: "select", key: "head", label: "head", options: HEADS, also: () => ({ fast: 0, last: 0, slow: 1 }) },
    { kind: "range", key: "fast", label: "pairs stopped, from the fastest", min: 0, max: half, knob: true, enabled: turns },
    { ...whose, knob: true, enabled: (s) => !turns(s) },
    { kind: "range", key: "last", label: "pairs stopped, from the slowest", min: 0, max: half, enabled: turns },
    { kind: "range", key: "slow", label: "distances divided by", min: 1, max: 8, enabled: changes },
    { ...whose, enabled: turns },
  ],
  settle(state) {
    const { causal, tokens } = headOf(state);
    state.query = clamp(round(state.query), 0, tokens.length - 1);
    state.key = clamp(round(state.key), 0, causal ? state.query : tokens.length - 1);
  },
  height: (narrow) => (narrow ? 640 : 404),
  words(state) {
    const { head, fast, last, slow, query, key } = state;
    const { tokens } = headOf(state);
    const { weights, curve, before } = numbers(state);
    const from = first(headOf(state));
    const level = (values) => max(...values) - min(...values) < 0.5;
    const likes = (values) => (level(values) ? "has hardly a preference" : `scores highest ${away(peak(values, from)).replace("itself", "at itself")}`);
    const changed = [fast && `${fast === 1 ? "pair 0" : `pairs 0 to ${fast - 1}`} stopped`, last && `the ${last} slowest stopped`, slow > 1 && `distances divided by ${slow}`].filter(Boolean);
    const was = changed.length && likes(curve) !== likes(before) ? ` (as trained it ${likes(before)})` : "";
    return (
      `${HEADS[head]}, ${changed.join(", ") || "as trained"}. The average word ${likes(curve)}${was}. ` +
      `Query “${tokens[query]}” at ${query} gives key “${tokens[key]}”, ${away(query - key)}, ${whole(100 * weights[query][key])} % of its weight.`
    );
  },
  draw(all) {
    const { drawing, state, width, narrow, at } = all;
    const { query, key, fast, last, slow } = state;
    const { tokens, d, causal, bias } = headOf(state);
    const { curve, before, sizes } = numbers(state);
    const count = tokens.length;
    const [left, top, side] = [68, 26, narrow ? min(256, width - 72) : min(304, width - 350)];
    const cell = side / count;
    heading(drawing, 0, 13, `attention: ${WHOSE[state.whose]}`);
    scale(drawing, left + side - 98, 5, 0, "100 %", 0);
    cells(drawing, left, top, [cell, cell], inRows(at, count), 1);
    tokens.forEach((token, i) => {
      text(drawing, left - 5, top + cell * (i + 0.5) + 4, token, { at: "end", kind: named(i === query, "query") });
      text(drawing, left + cell * (i + 0.5) + 4, top + side + 7, token, { at: "end", turn: -90, kind: named(i === key, "key") });
    });
    pairs(all, [[left, top]], cell, count, `query ${tokens[query]} at ${query}, key ${tokens[key]} at ${key}`);

    const [x, room] = narrow ? [46, width - 58] : [left + side + 66, width - left - side - 80];
    const from = first(headOf(state));
    const points = (values) => values.map((value, i) => [i + from, value]);
    const [low, high] = [min(...curve, ...before), max(...curve, ...before)];
    const spare = max(1, 0.1 * (high - low));
    const panel = chart(drawing, {
      x, y: narrow ? top + side + 96 : 26, width: room, height: narrow ? 92 : 144, xs: [from, count - 1], ys: [low - spare, high + spare], ticks: [6, 4],
      xLabel: causal ? "places back" : "places back (ahead: below 0)", xFormat: whole, yFormat: whole, title: `average word’s score${fast || last || slow > 1 ? " (dashed: as trained)" : ""}`,
    });
    panel.curve(points(before), "grey dashed");
    panel.curve(points(curve), "above");
    panel.point(peak(curve, from), max(...curve), "above", 4);

    const y = narrow ? top + side + 256 : 256;
    if (!turns(state)) return void heading(drawing, x, y - 10, bias ? "nothing rotates; the curve is the bias" : "nothing rotates");
    const bars = chart(drawing, {
      x, y, width: room, height: narrow ? 60 : 90, xs: [-0.6, d / 2 - 0.4], ys: [0, 1.1 * max(...sizes)], ticks: [8, 3],
      xLabel: "pair", xFormat: whole, yFormat: (v) => digits(v, max(...sizes) < 3 ? 1 : 0), title: `size by pair${fast || last ? " (slate: stopped)" : ""}`,
    });
    sizes.forEach((size, r) => box(drawing, `fill ${r < fast || r >= d / 2 - last ? "grey" : "above"}`, bars.X(r - 0.35), bars.Y(size), bars.X(0.35) - bars.X(-0.35), bars.Y(0) - bars.Y(size)));
  },
  asks: {
    question: "the fastest pair stops. The head that looked at the previous token now looks at …",
    options: ["the previous token, as before", "itself and its neighbours", "all places alike"], right: 1,
    then: { fast: 1 },
    why: "The slower pairs hardly change from one place to the next: they tell near from far, and no neighbour from another.",
  },
};

export { fromLink, toLink };
export const FIGURES = { heads };
export const render = begin(FIGURES);
