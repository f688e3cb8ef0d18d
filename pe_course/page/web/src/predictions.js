// What each figure asks before it moves: a word, a picture, or a curve that is dragged. The answer
// is a state, whose numbers stand beside what was predicted.

import { inRows } from "./kit.js";
import { SHUFFLED } from "./permutations.js";
import { shades } from "./sentence_scores.js";

export const PREDICTIONS = {
  sentence_scores: {
    question: "each word here has the same vector: only positions differ. RoPE is taken away. The scores?",
    options: ["one shade", "a band, as with RoPE", "each row its own"], right: 0,
    pictures: (seen) => ["none", "rope", "learned"].map((method) => inRows(shades(seen({ method }).scores.flat())[2], 12)),
    then: { method: "none", contents: "alike" },
    why: "With none, nothing tells the words apart: attention itself prefers no neighbours.",
  },
  permutations: {
    question: "the words are shuffled. The numbers in the framed row of “dog” …",
    options: ["change", "stay in place", "move with their words"], right: 2,
    then: { knows: "nothing", order: SHUFFLED },
    why: "Rows and columns move, and no number changes. With codes or a mask (under More) it is different.",
  },
  clock_hands: {
    question: "both positions move on by 100. The angle between blue and orange changes …",
    options: ["in the fast clocks", "in every clock", "in no clock"], right: 2,
    then: { p: 100, other: 105 },
    why: "Fast hands go around many times, but both of a clock go equally far. So the dot product stays, too.",
  },
  four_terms: {
    question: "the words are shuffled. Which term stands still?",
    options: ["content–content", "content–position", "position–content", "position–position"], right: 3,
    pictures: (seen) => seen({}).terms,
    then: { order: "shuffled" },
    why: "It reads no word; the others move with the words.",
  },
  shaw_rows: {
    question: "the clip falls from 2 to 1. What will the query add to the keys’ scores?",
    marks: [0, 2, 4, 6, 8], level: 0, of: ({ added }, x) => added[x],
    then: { clip: 1, query: 4, key: 7 },
    why: "Keys beyond the clip read its row, now a direct neighbour’s. Clipped is not left out.",
  },
  t5_buckets: {
    question: "a decoder gives all 32 buckets to the keys on the left. Where is its staircase?",
    marks: [-128, -96, -64, -4], level: 20, of: ({ staircase }, x) => staircase[x + 140],
    then: { sides: "past" },
    why: "Half of the buckets hold one distance each: 16 now, 8 before.",
  },
  penalties: {
    question: "head 3 (shown) costs 1/8 per token, head 8 only 1/256. What are head 8’s weights?",
    marks: [-120, -90, -60, -30, 0], level: 0.06, of: ({ weights }, x) => weights[-x],
    then: { head: 8 },
    why: "Near and far cost almost the same, so head 8 reads the whole text. As weights sum to 1, none is high.",
  },
  rope_score: {
    question: "the query is at 1, the key at 3. What leaves the score as it is?",
    options: ["they change places", "both move on by 500", "either of these moves"], right: 1,
    then: { shift: 500 },
    why: "Both arrows rotate by the same angle, so what lies between them stays. In changed places n − m is −2: the sign counts.",
  },
  axes: {
    question: "the patches are numbered in one line, row after row. What scores high?",
    options: ["its row", "a cross", "a round spot"], right: 0,
    pictures: (seen) => ["line", "axial", "golden"].map((how) => inRows(seen({ how }).scores, 12)),
    then: { how: "line" },
    why: "The next patch of the row is 1 number away, the patch below it 12.",
  },
  wavelengths: {
    question: "a text four times as long. How many of the 16 pairs of components reach new angles?",
    options: ["4", "6", "10", "16"], right: 2,
    then: { factor: 4 },
    why: "Six fast pairs went around in training and know every angle; the others go on past theirs. A new position need not be a new angle.",
  },
  chooser: {
    question: "the text grows to four times the training length. What still fits?",
    options: ["window hybrid", "RoPE", "sinusoidal"], right: 0,
    then: { context: 16384 },
    why: "RoPE and sinusoidal lose all three. The hybrid rotates in windows only: no distance is new.",
  },
};
