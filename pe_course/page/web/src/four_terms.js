// A score is four terms, each of which can be switched off.

import { box, cells, digits, fits, fitted, inRows, named, pairs, quoted, scale, text, whole } from "./kit.js";
import { fourTerms, range, sinusoidal, softmax, sum } from "./positions.js";
import { noise } from "./rope_score.js";
import { inSentence, leftOut, table, vectorOf, wordsOf } from "./sentence_scores.js";

const MOST = 9; // words
const D = 16;
const NAMES = ["content–content", "content–position", "position–content", "position–position"];
const KEYS = ["cc", "cp", "pc", "pp"];
// Near to the identity, so that like finds like.
const STORED = [70, 620].map((seed) => table(D, D, seed, 0.16).map((row, i) => row.map((part, j) => part + (i === j ? 1 : 0))));

// Four numbers a, b, c, d stand for [[a, b], [c, d]] in every pair of components; none are the stored weights.
function weightsOf(words, stored) {
  if (!fits(own, words)) return stored;
  const read = words.replaceAll("−", "-").match(/-?[\d.]+/g).map(Number);
  return range(D).map((i) => range(D).map((j) => (i >> 1 === j >> 1 ? read[2 * (i & 1) + (j & 1)] : 0)));
}

const total = (terms, words) => words.map((_, i) => words.map((_, j) => sum(terms.map((term) => term[i][j]))));

function numbers(state) {
  const words = wordsOf(state.sentence, MOST);
  // Another order of the words, always the same one.
  const order = range(words.length);
  if (state.order === "shuffled") order.sort((a, b) => noise(5 * a + 2) - noise(5 * b + 2));
  const vectors = order.map((i) => vectorOf(words[i]).map((part) => 0.55 * state.content * part));
  const codes = order.map((_, p) => sinusoidal(p + state.first, D, 100).map((part) => state.position * part));
  const [Q, K] = [weightsOf(state.wq, STORED[0]), weightsOf(state.wk, STORED[1])];
  const terms = fourTerms(vectors, codes, Q, K).map((term) => term.map((row) => row.map((each) => each / Math.sqrt(D))));
  const scores = total(terms.filter((_, t) => state[KEYS[t]]), vectors);
  return { vectors, made: [Q, K], terms, scores, weights: scores.map(softmax), words: order.map((i) => words[i]) };
}

const own = { kind: "text", most: 40, kin: "half", pattern: "[\\s,;]*([−\\-]?(10(\\.0*)?|\\d(\\.\\d*)?)([\\s,;]+|$)){4}" };
const size = { kind: "range", min: 0, max: 2, step: 0.1, text: (v) => digits(v, 1) };

export const fourTermsFigure = {
  title: "The four terms of a score",
  start: {
    sentence: "the cat saw the dog chase the black cat", order: "written", first: 0, content: 1, position: 1,
    cc: true, cp: true, pc: true, pp: true, query: 1, key: 8, wq: "", wk: "",
  },
  numbers: (state) => ({ ...numbers(state), words: undefined }),
  lines: [2, 4],
  glides: (state) => {
    const { terms, scores, weights } = numbers(state);
    return [...terms, scores, weights].flat(2);
  },
  controls: [
    { kind: "text", key: "sentence", label: `your sentence, up to ${MOST} words`, most: 90 },
    { kind: "choice", key: "order", label: "the words are", options: { written: "as written", shuffled: "shuffled" }, knob: true },
    { ...own, key: "wq", label: "your query matrix, 2 × 2", hint: "the course’s; or 0, 1, −1, 0" },
    { ...own, key: "wk", label: "your key matrix, 2 × 2", hint: "the course’s; or 1, 0, 0, 1" },
    ...NAMES.map((label, t) => ({ kind: "switch", key: KEYS[t], label })),
    { ...size, key: "content", label: "contents times" },
    { ...size, key: "position", label: "positions times" },
    { kind: "range", key: "first", label: "first position", min: 0, max: 64 },
  ],
  settle: inSentence(MOST),
  height: (narrow) => (narrow ? 530 : 432),
  words(state) {
    const { query, key } = state;
    const { terms, scores, weights, words } = numbers(state);
    const parts = terms.filter((_, t) => state[KEYS[t]]).map((term) => digits(term[query][key])).join(" + ").replaceAll("+ −", "− ") || "0";
    const wrong = [state.wq, state.wk].some((each) => each && !fits(own, each)) ? " Your matrix is not four numbers from −10 to 10: the course’s is used." : "";
    return `Query ${quoted(words[query])} at ${query + state.first}, key ${quoted(words[key])} at ${key + state.first}: ${parts} ≈ ${digits(scores[query][key])}, weight ${whole(100 * weights[query][key])} %.${wrong}${leftOut(state.sentence, MOST)}`;
  },
  draw(all) {
    const { drawing, state, width, narrow, at } = all;
    const { query, key } = state;
    const { words, terms, scores } = numbers(state);
    const shown = inRows(at, words.length ** 2).map((each) => inRows(each, words.length));
    const panels = [...NAMES.map((name, t) => [name, state[KEYS[t]], "+"]), ["the scores", true, "="], ["attention weights", true, "→"]];
    panels[0][2] = "";
    const spots = narrow ? [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]] : [[0, 0], [1, 0], [2, 0], [3, 0], [0, 1], [1, 1]];
    const [label, gap, columns] = narrow ? [62, 18, 2] : [72, 20, 4];
    const side = (width - label - gap * columns) / columns;
    const cell = side / words.length;
    const most = Math.max(0.5, ...[...terms, total(terms, words)].flat(2).map(Math.abs)); // whatever is switched off
    const corner = ([column, row]) => [label + gap / 2 + column * (side + gap), 24 + row * (side + (narrow ? 28 : 58))];
    panels.forEach(([name, on, sign], n) => {
      const [x, y] = corner(spots[n]);
      text(drawing, x, y - 7, on ? name : `${name}: off`, { at: "start", kind: narrow ? "small" : "title" });
      const panel = drawing.append("g").attr("opacity", on ? 1 : 0.06);
      cells(panel, x, y, [cell, cell], shown[n], n < 5 ? most : 1);
      text(drawing, n === 4 || (narrow && n === 2) ? 8 : x - gap / 2, y + side / 2 + 6, sign, { kind: "name ink" });
      box(panel, "frame", x + cell * key, y + cell * query, cell, cell);
      words.forEach((word, i) => {
        if (spots[n][0] === 0) fitted(drawing, x - 5, y + cell * (i + 0.5) + 4, word, label, { at: "end", kind: named(i === query, "query") });
        const [u, v] = [x + cell * (i + 0.5) + 4, y + side + 6];
        if (narrow && n < 4 && i === key) fitted(drawing, u - 4, y + side + 12, word, side / 2, { kind: named(true, "key") });
        if (n > 3 || !narrow) fitted(drawing, u, v, word, n > 1 ? 54 : 38, { at: "end", turn: -60, kind: named(i === key, "key") });
      });
    });
    const [, under] = corner(spots[4]);
    const [right, down] = narrow ? [width - 100, 510] : [label + 2 * side + 3 * gap + 60, under + side / 2];
    text(drawing, right - 4, down - 12, "terms and scores", { at: "start" });
    scale(drawing, right, down, digits(-most, 1), digits(most, 1));
    const [left, low] = narrow ? [right - 150, down] : [right, down + 48];
    text(drawing, left - 4, low - 12, "weights", { at: "start" });
    scale(drawing, left, low, 0, "100 %", 0);
    const corners = [4, 0, 1, 2, 3, 5].map((panel) => corner(spots[panel]));
    pairs(all, corners, cell, words.length, `query ${quoted(words[query])}, key ${quoted(words[key])}, score ${digits(scores[query][key])}`);
  },
};
