// The arithmetic of every figure, and nothing else: numbers in, numbers out. The tests hold each
// function against pe_lib, of whose functions it has the names and the signs (key minus query).

export const range = (n, from = 0) => Array.from({ length: n }, (_, i) => from + i);
export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const dot = (a, b) => sum(a.map((value, i) => value * b[i]));

export function softmax(logits) {
  const top = Math.max(...logits);
  const powers = logits.map((each) => Math.exp(each - top));
  const total = sum(powers);
  return powers.map((each) => each / total);
}

// Sinusoids and RoPE ------------------------------------------------------------------------

// Radians per position of each pair: base ** (-2r / d).
export const frequencies = (d, base) => range(d / 2).map((r) => base ** ((-2 * r) / d));

// Sine and cosine of each pair in turn.
export const sinusoidal = (position, d, base) =>
  frequencies(d, base).flatMap((rate) => [Math.sin(position * rate), Math.cos(position * rate)]);

export const rotate = ([a, b], angle) => [
  a * Math.cos(angle) - b * Math.sin(angle),
  a * Math.sin(angle) + b * Math.cos(angle),
];

// Pairs [[a, b], ...] at a position, each rotated by its own rate.
export const rope = (pairs, position, rates) =>
  pairs.map((pair, r) => rotate(pair, position * rates[r]));

// The score of a query at m and a key at n: both are rotated, then multiplied.
export const ropeScore = (q, k, m, n, rates) =>
  dot(rope(q, m, rates).flat(), rope(k, n, rates).flat());
