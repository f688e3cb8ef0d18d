// Landing page: one's own sentence under every method; a pair of words has a distance.

import { box, cells, circle, digits, fitted, heading, inRows, named, pairs, quoted, scale, text, whole, within } from "./kit.js";
import { abs, max, min, range, scoresOf, softmax } from "./positions.js";
import { noise } from "./rope_score.js";

const MOST = 14; // words
const D = 16;
const METHODS = {
  none: "no position", sinusoidal: "sinusoidal", learned: "learned", shaw: "Shaw", transformer_xl: "Transformer-XL",
  t5: "T5", deberta: "DeBERTa", alibi: "ALiBi", rope: "RoPE",
};

// Numbers that look random, in rows; drawn once, the same for every reader.
export const table = (rows, columns, seed, size) => range(rows).map((i) => range(columns).map((j) => size * noise(seed + 31 * i + 7 * j + i * j)));
// Stands for what training would find.
const LEARNED = {
  table: table(MOST, D, 100, 0.7), shaw: table(9, D, 900, 0.6), u: table(1, D, 50, 0.3)[0], v: table(1, D, 77, 0.6)[0],
  r: table(D, D, 300, 0.25), t5: table(1, 16, 12, 1)[0], rows: table(12, D, 500, 0.5), queries: table(D, D, 700, 0.3),
  keys: table(D, D, 1300, 0.3), slope: 0.25,
};

// Words in any language, also where no spaces stand between them; a sign by itself is none, an emoji is one.
const found = (sentence) => [...new Intl.Segmenter([], { granularity: "word" }).segment(sentence)].filter((each) => /[\p{L}\p{N}\p{ExtPict}\p{RI}]/u.test(each.segment)).map((each) => each.segment);
export const wordsOf = (sentence, most = MOST) => (found(sentence).length ? found(sentence).slice(0, most) : ["…"]);
export const leftOut = (sentence, most = MOST) => {
  const more = found(sentence).length - most;
  return more > 0 ? ` Words left out at the end: ${more}.` : "";
};
// Equal words have equal vectors.
const seedOf = (word) => [...word.toLowerCase()].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 9973, 7);
export const vectorOf = (word) => range(D).map((i) => noise(17 * i + seedOf(word)));

// What the softmax reads are differences: where all scores are alike, all have the middle shade.
export function shades(scores) {
  const [high, low] = [max(...scores), min(...scores)];
  const spread = max(1, high - low);
  const least = (high + low - spread) / 2;
  return [least, least + spread, scores.map((score) => (score - least) / spread)];
}

function numbers({ sentence, method, contents }) {
  const vectors = wordsOf(sentence).map((word) => vectorOf(contents === "alike" ? "word" : word));
  const scores = scoresOf(method, vectors, LEARNED);
  return { vectors, scores, weights: scores.map(softmax), learned: LEARNED };
}

export const sentenceScores = {
  title: "Scores and attention weights",
  start: { sentence: "the dog bites the man and then the man bites the dog", method: "rope", contents: "alike", query: 4, key: 2 },
  numbers,
  lines: [2, 4],
  glides: (state) => numbers(state).scores.flat(),
  controls: [
    { kind: "select", key: "method", label: "position encoding", options: METHODS, knob: true },
    { kind: "text", key: "sentence", label: `your sentence, up to ${MOST} words`, most: 120 },
    { kind: "choice", key: "contents", label: "contents", options: { alike: "all alike", own: "each word its own" } },
  ],
  settle: within(({ sentence }) => wordsOf(sentence).length, "query", "key"),
  height: (narrow) => (narrow ? 610 : 378),
  words(state) {
    const { query, key } = state;
    const words = wordsOf(state.sentence);
    const { scores, weights } = numbers(state);
    const side = key === query ? "the query itself" : `${abs(key - query)} to the ${key < query ? "left" : "right"}`;
    return (
      `Query ${quoted(words[query])} (position ${query}; the first is 0), key ${quoted(words[key])} (position ${key}), ${side}: ` +
      `key − query = ${whole(key - query)} (dots: all pairs with that). Score ${digits(scores[query][key])}, weight ${digits(100 * weights[query][key], 1)} %.${leftOut(state.sentence)}`
    );
  },
  draw(all) {
    const { drawing, state, width, narrow, at } = all;
    const { query, key } = state;
    const words = wordsOf(state.sentence);
    const weights = softmax(inRows(at, words.length)[query]);
    const [left, top] = [84, 70];
    const side = narrow ? min(width - left - 8, 246) : 300;
    const cell = side / words.length;
    const [least, high, shaded] = shades(at);
    heading(drawing, 0, 13, "scores");
    scale(drawing, left + side - 96, 5, digits(least, 1), digits(high, 1), 0);
    words.forEach((word, i) => {
      const [x, y] = [left + cell * (i + 0.5), top + cell * (i + 0.5)];
      fitted(drawing, left - 6, y + 4, word, left - 8, { at: "end", kind: named(i === query, "query") });
      fitted(drawing, x + 3, top - 6, word, min(56, (width + 4 - x) / 0.6), { at: "start", turn: -55, kind: named(i === key, "key") });
    });
    cells(drawing, left, top, [cell, cell], inRows(shaded, words.length), 1);
    words.forEach((_, i) => {
      const j = i + key - query;
      if (j >= 0 && j < words.length) circle(drawing, "fill ink", left + cell * (j + 0.5), top + cell * (i + 0.5), 1.8);
    });
    pairs(all, [[left, top]], cell, words.length, `query ${quoted(words[query])}, key ${quoted(words[key])}, key minus query ${whole(key - query)}`, { when: "pointermove click" });

    const [bx, by] = narrow ? [left, top + side + 50] : [left + side + 128, top];
    const room = (narrow ? width : width - 8) - bx - 46;
    const row = narrow ? min(17, 238 / words.length) : cell;
    const most = max(0.2, ...weights);
    heading(drawing, narrow ? 0 : bx - 84, narrow ? by - 14 : 13, `weights of ${quoted(words[query])}`);
    words.forEach((word, j) => {
      const y = by + row * j;
      fitted(drawing, bx - 6, y + row / 2 + 4, word, left - 8, { at: "end", kind: j === query ? named(true, "query") : named(j === key, "key") });
      box(drawing, `fill ${j === key ? "key" : "above"}`, bx, y + row * 0.15, max(1, (room * weights[j]) / most), row * 0.7);
      text(drawing, bx + (room * weights[j]) / most + 5, y + row / 2 + 4, `${whole(100 * weights[j])} %`, { at: "start" });
    });
  },
};
