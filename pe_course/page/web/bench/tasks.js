// What is trained. A task says how many tokens there are, makes texts with what is to be named at
// each place (-1: nothing), and says how many texts measure it, on the way and at the end.

const BACK = 3;
const KINDS = 16; // of random tokens
const MARK = KINDS;
export const GUESS = 1 / KINDS; // what guessing names

function random(draw, count, length, target) {
  const tokens = new Int32Array(count * length).map(() => Math.floor(draw() * KINDS));
  return { tokens, targets: tokens.map((_, i) => target(tokens, i)) };
}

// The token three places back.
const back = {
  size: KINDS, few: 4, many: 32, prefixes: true,
  make: (draw, count, length) => random(draw, count, length, (tokens, i) => (i % length < BACK ? -1 : tokens[i - BACK])),
};

// Ever after, the token that followed the mark.
const recall = {
  size: KINDS + 1, few: 8, many: 64, prefixes: false,
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
};

export const TASKS = { back, recall };
