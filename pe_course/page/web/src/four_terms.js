// A score is four terms, each of which can be switched off.

import { added, box, cells, digits, inRows, named, pairs, scale, shape, text, whole, within } from "./kit.js";
import { fourTerms, max, min, range, rotate, sinusoidal, softmax, sum } from "./positions.js";
import { table, vectorOf } from "./sentence_scores.js";

const ORDERS = {
  written: "the cat saw the dog chase the black cat".split(" "),
  shuffled: "the the black cat the chase saw cat dog".split(" "),
};
const COUNT = 9; // words
const D = 16;
const NAMES = ["content–content", "content–position", "position–content", "position–position"];
const KEYS = ["cc", "cp", "pc", "pp"];
// Near to the identity, so that like finds like.
const STORED = [70, 620].map((seed) => table(D, D, seed, 0.16).map((row, i) => row.map((part, j) => part + (i === j ? 1 : 0))));

const total = (terms) => range(COUNT).map((i) => range(COUNT).map((j) => sum(terms.map((term) => term[i][j]))));

function numbers(state) {
  const vectors = ORDERS[state.order].map((word) => vectorOf(word).map((part) => 0.55 * state.content * part));
  const codes = range(COUNT).map((p) => sinusoidal(p + state.first, D, 100).map((part) => state.position * part));
  // The query matrix rotates each pair of a query's components further.
  const Q = STORED[0].map((row) => inRows(row, 2).flatMap((pair) => rotate(pair, (state.turn * Math.PI) / 180)));
  const terms = fourTerms(vectors, codes, Q, STORED[1]).map((term) => term.map((row) => row.map((each) => each / Math.sqrt(D))));
  const scores = total(terms.filter((_, t) => state[KEYS[t]]));
  return { vectors, made: [Q, STORED[1]], terms, scores, weights: scores.map(softmax) };
}

const size = { kind: "range", min: 0, max: 2, step: 0.1, text: (v) => digits(v, 1) };

export const fourTermsFigure = {
  title: "Four terms of a score",
  start: { order: "written", first: 0, content: 1, position: 1, turn: 0, cc: true, cp: true, pc: true, pp: true, query: 1, key: 8 },
  numbers,
  lines: [1, 3],
  glides: (state) => {
    const { terms, scores, weights } = numbers(state);
    return [...terms, scores, weights].flat(2);
  },
  controls: [
    { kind: "choice", key: "order", label: "the words are", options: { written: "as written", shuffled: "shuffled" }, knob: true },
    { kind: "range", key: "first", label: "first position", min: 0, max: 64 },
    { kind: "range", key: "turn", label: "query turn", min: -90, max: 90, step: 15, text: (v) => `${whole(v)}°` },
    { ...size, key: "content", label: "contents times" },
    { ...size, key: "position", label: "positions times" },
  ],
  settle: within(() => COUNT, "query", "key"),
  height: (narrow) => (narrow ? 574 : 492),
  words(state) {
    const { query, key, first } = state;
    const { terms, scores, weights } = numbers(state);
    const words = ORDERS[state.order];
    const parts = added(terms.filter((_, t) => state[KEYS[t]]).map((term) => digits(term[query][key])));
    return `Query “${words[query]}” at ${query + first}, key “${words[key]}” at ${key + first}: ${parts} ≈ ${digits(scores[query][key])}, weight ${whole(100 * weights[query][key])} %.`;
  },
  draw(all) {
    const { drawing, state, set, pressable, width, narrow, at } = all;
    const { query, key } = state;
    const { terms, scores, weights } = numbers(state);
    const words = ORDERS[state.order];
    const shown = inRows(at, COUNT ** 2).map((each) => inRows(each, COUNT));
    const [gap, side] = narrow ? [24, min(108, (width - 106) / 2)] : [54, 156];
    const cell = side / COUNT;
    const head = 42; // of a square: its name and its number
    const spots = [[0, 0], [1, 0], [0, 1], [1, 1], ...(narrow ? [[0, 2], [1, 2]] : [[2, 0], [2, 1]])];
    const corners = spots.map(([column, row]) => [58 + (column > 1 ? 28 : 0) + column * (side + gap), head + row * (side + head + 22)]);
    const [[left, top], [, below]] = corners.slice(4);
    const most = max(0.5, ...[...terms, total(terms)].flat(2).map(Math.abs)); // whatever is switched off
    const panels = terms.map((term, t) => [NAMES[t], digits(term[query][key]), t ? "+" : "", state[KEYS[t]]]);
    panels.push(["score", digits(scores[query][key]), "=", true], ["weight", `${whole(100 * weights[query][key])} %`, narrow ? "→" : "↓", true]);
    panels.forEach(([name, value, sign, on], n) => {
      const [x, y] = corners[n];
      const kind = on ? "name ink" : "name grey";
      text(drawing, x + side / 2, y - 26, name);
      text(drawing, x + side / 2, y - 9, on ? value : "off", { kind });
      text(drawing, x - gap / 2, y - 16, sign, { kind });
      if (n < 4) pressable(KEYS[n], { x, y: y - 40, width: side, height: 36, label: `${name}: ${value}`, on, press: () => set({ [KEYS[n]]: !state[KEYS[n]] }) });
      const panel = drawing.append("g").attr("opacity", on ? 1 : 0.06);
      cells(panel, x, y, [cell, cell], shown[n], n < 5 ? most : 1);
      box(panel, "frame", x + cell * key, y + cell * query, cell, cell);
      words.forEach((word, i) => {
        if (spots[n][0] === 0) text(drawing, x - 6, y + cell * (i + 0.5) + 4, word, { at: "end", kind: named(i === query, "query") });
        if (y === below) text(drawing, x + cell * (i + 0.5) + 4, y + side + 8, word, { at: "end", turn: -60, kind: named(i === key, "key") });
        else if (i === key) text(drawing, min(x + cell * (i + 0.5), x + side - 8), y + side + 14, word, { kind: named(true, "key") });
      });
    });
    // All four stand before the sign of equality.
    shape(drawing, "frame", narrow ? `M4,${top - head - 1}H${width - 4}` : `M${left - gap - 18},${head - 40}h8V${below + side}h-8`);
    scale(drawing, corners[narrow ? 4 : 3][0] + side / 2 - 30, below + side + 54, digits(-most, 1), digits(most, 1));
    scale(drawing, corners[5][0] + side / 2 - 30, below + side + 54, 0, "100 %", 0);
    pairs(all, [4, 0, 1, 2, 3, 5].map((n) => corners[n]), cell, COUNT, `query ${words[query]}, key ${words[key]}, score ${digits(scores[query][key])}`, { when: "pointermove click", held: 1 });
  },
};
