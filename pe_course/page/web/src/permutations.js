// One's own words in any order, in an attention layer that has no positions.

import { box, cells, clamp, digits, fitted, heading, named, pressed, quoted, scale, segment, shortened, text, whole } from "./kit.js";
import { abs, attention, floor, max, min, plus, range, sinusoidal } from "./positions.js";
import { leftOut, table, vectorOf, wordsOf } from "./sentence_scores.js";

const MOST = 7; // words
const D = 16;
export const SHUFFLED = [4, 2, 5, 0, 3, 1, 6];
const MADE = { q: table(D, D, 40, 0.34), k: table(D, D, 411, 0.34), v: table(D, D, 873, 0.3) };

const read = ({ sentence }) => wordsOf(sentence, MOST);
// The words' numbers in the order in which they stand.
const orderOf = ({ order }, words) => order.filter((word) => word < words.length);

function numbers(state) {
  const words = read(state);
  const order = orderOf(state, words);
  const vectors = words.map(vectorOf);
  const layer = (kept) => {
    const codes = state.knows === "codes";
    const x = kept.map((word, p) => (codes ? plus(vectors[word], sinusoidal(p, D, 10000)) : vectors[word]));
    return attention(x, MADE.q, MADE.k, MADE.v, state.knows === "mask");
  };
  const [outputs, weights] = layer(order);
  const [first] = layer(range(words.length));
  const change = max(...outputs.flatMap((row, p) => row.map((part, c) => abs(part - first[order[p]][c]))));
  return { vectors, made: MADE, outputs, weights, change };
}

export const permutations = {
  title: "Your words in any order, in an attention layer",
  start: { sentence: "the dog bites a man", order: range(MOST), word: 1, knows: "nothing" },
  numbers,
  lines: [2, 5],
  glides: (state) => read(state).map((_, word) => orderOf(state, read(state)).indexOf(word)),
  controls: [
    { kind: "choice", key: "order", label: "the words are", options: { [range(MOST)]: "as written", [SHUFFLED]: "shuffled" }, knob: true },
    { kind: "text", key: "sentence", label: `your words, up to ${MOST}`, most: 80 },
    { kind: "choice", key: "knows", label: "the layer knows", options: { nothing: "no positions", codes: "codes added", mask: "causal mask" } },
    { kind: "range", key: "word", label: "word framed", min: 0, max: (s) => read(s).length - 1, text: (v, s) => shortened(read(s)[v], 8) },
  ],
  settle(state) {
    state.order = String(state.order).split(",").map(Number);
    const sorted = [...state.order].sort((a, b) => a - b);
    if (sorted.some((word, i) => word !== i)) state.order = range(MOST);
    state.word = clamp(state.word, 0, read(state).length - 1);
  },
  height: (narrow) => (narrow ? 496 : 352),
  words(state) {
    const words = read(state);
    const place = orderOf(state, words).indexOf(state.word);
    const { weights, change } = numbers(state);
    const best = weights[place].indexOf(max(...weights[place]));
    const from = words[orderOf(state, words)[best]];
    const moved = orderOf(state, words).some((word, i) => word !== i);
    const verdict = change < 1e-9 ? "each word’s output is the same" : `outputs differ by up to ${digits(change)}`;
    const knows = { nothing: "", codes: "Codes are added. ", mask: "A causal mask hides later words. " }[state.knows];
    return (
      `${knows}${quoted(words[state.word])} is at position ${place} (the first is 0) and takes most from ${quoted(from)}: ${whole(100 * weights[place][best])} %. ` +
      `${moved ? `Against the words as written, ${verdict}` : "The words are as written"}.${leftOut(state.sentence, MOST)}`
    );
  },
  draw({ drawing, handle, svg, state, set, width, narrow, at }) {
    const words = read(state);
    const order = orderOf(state, words);
    const { weights, outputs } = numbers(state);
    const [left, top, side] = narrow ? [94, 86, min(244, width - 98)] : [112, 86, min(252, width - 340)];
    const cell = side / words.length;
    const down = order.map((word) => at[word]);
    heading(drawing, 0, 13, "attention weights");
    scale(drawing, left + side - 100, 5, 0, "100 %", 0);
    cells(drawing, left, top, [cell, cell], weights, 1, down, down);
    order.forEach((word, place) => {
      const p = at[word];
      const kind = named(word === state.word, "key");
      fitted(drawing, left - 6, top + cell * (p + 0.5) + 4, words[word], left - 38, { at: "end", kind });
      fitted(drawing, left + cell * (p + 0.5) + 3, top - 6, words[word], min(70, (width - left - cell * (p + 0.5)) / 0.6), { at: "start", turn: -55, kind });
      text(drawing, left + cell * (p + 0.5), top + cell * (at[state.word] + 0.5) + 4, whole(100 * weights[order.indexOf(state.word)][place]), { kind: "on" });
    });
    box(drawing, "line key", left, top + cell * at[state.word], side, cell);

    const [x, y, row] = narrow ? [left, top + side + 34, 128 / words.length] : [left + side + 62, top, cell];
    const column = ((narrow ? width - 4 : width - 8) - x) / D;
    heading(drawing, narrow ? 0 : x, y - 10, "outputs");
    text(drawing, 2, top - 16, "drag to reorder", { at: "start" });
    cells(drawing, x, y, [column, row], outputs, 1.6, down);
    scale(drawing, x + column * D - 90, y - 18, digits(-1.6, 1), 1.6);
    order.forEach((word) => fitted(drawing, x - 6, y + row * (at[word] + 0.5) + 4, words[word], narrow ? x - 8 : 52, { at: "end", kind: named(word === state.word, "key") }));
    box(drawing, "line key", x, y + row * at[state.word], column * D, row);

    const move = (word, to) => {
      const others = order.filter((each) => each !== word);
      others.splice(clamp(to, 0, others.length), 0, word);
      set({ word, order: [...others, ...state.order.filter((each) => each >= words.length)] });
    };
    words.forEach((name, word) => {
      const now = order.indexOf(word);
      for (const by of [-3.5, 0, 3.5]) segment(drawing, "grip ink", 9, top + cell * (at[word] + 0.5) + by, 19, top + cell * (at[word] + 0.5) + by);
      handle(`word${word}`, {
        kind: word === state.word ? "key" : "grey",
        x: 14, y: top + cell * (at[word] + 0.5), now, least: 0, most: words.length - 1,
        label: `place of ${quoted(name)}`, text: `position ${now}`,
        move: (px, py) => move(word, floor((py - top) / cell)), step: (right, down) => move(word, now + right + down),
      });
    });
    pressed(svg, [[left, top]], side, (px, py) => set({ word: order[floor(py / cell)] }));
  },
};
