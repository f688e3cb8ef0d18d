// What each figure asks before it moves: a word, a picture, or a curve that is dragged. The answer
// is a state, whose numbers stand beside what was predicted.

import { inRows } from "./kit.js";
import { SHUFFLED } from "./permutations.js";

// The scores of a sentence, white at their middle as in the figure.
function centred({ scores }) {
  const all = scores.flat();
  const middle = (Math.max(...all) + Math.min(...all)) / 2;
  return scores.map((row) => row.map((score) => score - middle));
}

export const PREDICTIONS = {
  sentence_scores: {
    question: "each word here has the same vector: only positions differ. RoPE is taken away. The scores?",
    options: ["a band, as with RoPE", "one shade", "each row its own"], right: 1,
    pictures: (seen) => ["rope", "none", "learned"].map((method) => centred(seen({ method }))),
    then: { method: "none", contents: "alike" },
    why: "Equal vectors, and nothing else tells the words apart: all scores are equal, and so are the weights.",
  },
  permutations: {
    question: "the words are shuffled. The numbers in the framed row …",
    options: ["change", "move with the word", "stay in place"], right: 1,
    then: { knows: "nothing", order: SHUFFLED },
    why: "Rows and columns move with their words, and no number changes. With codes or a mask it is different: try them.",
  },
  clock_hands: {
    question: "both positions move on by 100. The product of their codes …",
    options: ["falls", "stays", "rises"], right: 1,
    then: { p: 100, other: 105 },
    why: "Each clock moves both of its hands by the same angle: what lies between them stays, and so does the product.",
  },
  four_terms: {
    question: "the words are shuffled. Which term stands still?",
    options: ["content–content", "content–position", "position–content", "position–position"], right: 3,
    pictures: (seen) => seen({}).terms,
    then: { order: "shuffled" },
    why: "It reads no word. The other three move with the words; content–content does so in its rows and in its columns.",
  },
  shaw_rows: {
    question: "query and key both move on by one. The row of the table that they read …",
    options: ["is one higher", "is the same", "is one lower"], right: 1,
    then: { query: 5, key: 8 },
    why: "Key minus query has not changed, and nothing else is asked. The curve moved with the query.",
  },
  t5_buckets: {
    question: "a decoder has no keys to the right, and gives the left all 32 buckets. Drag the pink points to where its staircase will be.",
    marks: [-128, -96, -64, -4], of: ({ staircase }, x) => staircase[x + 140],
    then: { sides: "past" },
    why: "Half of the buckets still hold one distance each, and there are twice as many: near 0 nothing changes.",
  },
  penalties: {
    question: "every step costs head 8 no more than 1/256. Drag the pink points to its weights.",
    marks: [-120, -90, -60, -30, 0], of: ({ weights }, x) => weights[-x],
    then: { head: 8 },
    why: "Near and far cost almost the same, so the head reads the whole text. The weights sum to 1: none of them can be high.",
  },
  rope_score: {
    question: "query and key both move on by 500. Their score …",
    options: ["falls", "stays", "rises"], right: 1,
    then: { shift: 500 },
    why: "Both arrows rotate, each by the same angle; what lies between them stays, and so does the score.",
  },
  axes: {
    question: "rows and columns get frequencies of their own. What scores high?",
    options: ["the row", "row and column", "all around"], right: 1,
    pictures: (seen) => ["line", "axial", "golden"].map((how) => inRows(seen({ how }).scores, 12)),
    then: { how: "axial" },
    why: "A patch in the same row or column differs along one axis only; for the other axis it is a perfect match.",
  },
  wavelengths: {
    question: "a text four times as long. How many of the small model’s 16 pairs meet new angles?",
    options: ["none", "10", "all"], right: 1,
    then: { factor: 4 },
    why: "The six fast pairs went around in training and have shown every angle; the slower ones go on past what they have shown.",
  },
  chooser: {
    question: "an exact offset at 16 times the length, with nothing to train. What fits?",
    options: ["RoPE with YaRN", "RoPE in windows, then none", "nothing"], right: 1,
    then: { keep: "offset", used: 65536, parameters: 0 },
    why: "RoPE in windows beside layers without positions keeps the offset. The lists say where the others fail.",
  },
};
