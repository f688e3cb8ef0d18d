// What is trained. A task says how many tokens there are, makes texts with what is to be named at
// each place (-1: nothing), and says how many texts measure it, on the way and at the end.

import { SIZES } from "./model.js";

const { trained, longest } = SIZES;
const BACK = 3;
const KINDS = 16; // of random tokens
const MARK = KINDS;

function random(draw, count, length, target) {
  const tokens = new Int32Array(count * length).map(() => Math.floor(draw() * KINDS));
  return { tokens, targets: tokens.map((_, i) => target(tokens, i)) };
}

// The token three places back.
const back = () => ({
  size: KINDS, few: 4, many: 32, prefixes: true, guess: 1 / KINDS,
  make: (draw, count, length) => random(draw, count, length, (tokens, i) => (i % length < BACK ? -1 : tokens[i - BACK])),
});

// Ever after, the token that followed the mark.
const recall = () => ({
  size: KINDS + 1, few: 8, many: 64, prefixes: false, guess: 1 / KINDS,
  make(draw, count, length) {
    const places = Array.from({ length: count }, () => Math.floor(draw() * (length - 2)));
    const made = random(draw, count, length, (tokens, i) => {
      const start = i - (i % length);
      const place = places[start / length];
      return i > start + place + 1 ? tokens[start + place + 1] : -1;
    });
    places.forEach((place, i) => (made.tokens[i * length + place] = MARK));
    return made;
  },
});

// The next character of a text, whose last fifth is never trained on.
export const LEAST = 3000; // characters
export const KNOWN = 63; // its most frequent ones; the others are one and the same
const SHARE = 0.8;

function counted(list) {
  const counts = new Map();
  for (const each of list) counts.set(each, (counts.get(each) ?? 0) + 1);
  return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
}

function text({ text }) {
  const characters = [...text];
  const alphabet = counted(characters).slice(0, KNOWN);
  const ids = Int32Array.from(characters, (each) => alphabet.indexOf(each) + 1); // 0: any other
  const cut = Math.floor(SHARE * ids.length);
  const [read, unread] = [ids.subarray(0, cut), ids.subarray(cut)];
  const follower = Array.from({ length: KNOWN + 1 }, (_, id) => counted(read.filter((__, i) => read[i - 1] === id))[0]);
  const make = (part) => (draw, count, length) => {
    const starts = Array.from({ length: count }, () => Math.floor(draw() * (part.length - length)));
    const from = (more) => new Int32Array(count * length).map((_, i) => part[starts[Math.floor(i / length)] + (i % length) + more]);
    return { tokens: from(0), targets: from(1) };
  };
  const named = unread.filter((id, i) => i && follower[unread[i - 1]] === id).length;
  return { size: alphabet.length + 1, few: 4, many: 32, prefixes: true, guess: named / (unread.length - 1), make: make(read), unseen: make(unread) };
}

export const TASKS = { back, recall, text };
