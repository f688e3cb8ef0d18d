// The comparison's small decoder with one position encoding: outputs, and by hand the gradients.
//
// All numbers lie in one block of float32. Letters: B texts of L tokens, N = B L; D the width, H
// heads of d; F the hidden layer; C tokens that can be named, filled up to V. Weights are (in, out),
// rows are tokens.

import { angles as written } from "./formula.js";
import { plain } from "./plain.js";
import { drawn, SIZES } from "./shared.js";
import { bytes } from "./wasm.js";

const { D, H, d, F, layers, N, longest } = SIZES;
const BLOCK = 32; // queries whose scores are taken together
const EPS = 1e-5;

// Forms -------------------------------------------------------------------------------------

const HEADS = Array.from({ length: H }, (_, h) => h);
const SLOPES = HEADS.map((h) => 4 ** -(h + 1)); // of ALiBi with four heads

// The bucket of a distance to the left, as pe_lib.t5 has it with all buckets for the past.
export function bucket(distance, buckets, reach) {
  const exact = Math.floor(buckets / 2);
  if (distance < exact) return distance;
  const f = Math.fround;
  const share = f(f(Math.log(f(f(Math.min(distance, reach)) / exact))) / f(Math.log(reach / exact)));
  return Math.min(buckets - 1, exact + Math.trunc(f(share * (buckets - exact))));
}

const rates = (width, base) => Array.from({ length: width / 2 }, (_, j) => base ** ((-2 * j) / width));

const byRates = (list) => Array.from({ length: longest }, (_, p) => list.map((rate) => p * rate));

// What each form brings: numbers to train, and what is fixed.
const bias = (of) => ({ fixed: (setting) => HEADS.map((h) => Array.from({ length: longest }, (_, distance) => of(setting, distance, h))) });
const FORMS = {
  own: bias((setting, distance, h) => drawn(setting, distance) * (setting.heads === "halved" ? 2 ** -h : 1)),
  none: {},
  alibi: bias(({ steep }, distance, h) => -steep * SLOPES[h] * distance),
  t5: { scale: 1, shared: ({ buckets }) => ({ table: [buckets, H, 0.02] }) },
  shaw: { own: ({ clip }) => ({ table: [2 * clip + 1, d, d ** -0.5] }) },
  rope: { turns: ({ base }) => byRates(rates(d, base)) },
  formula: { turns: ({ formula }) => written(formula, longest, d / 2) },
  sinusoidal: {},
};

// A generator of random numbers below 1 (mulberry32).
export function generator(seed) {
  let at = seed >>> 0;
  return () => {
    at = (at + 0x6d2b79f5) >>> 0;
    let x = Math.imul(at ^ (at >>> 15), at | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}
const normal = (random) => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

// The model ---------------------------------------------------------------------------------

export function createModel(setting, { seed = 1, size: C }) {
  const form = FORMS[setting.method];
  const V = Math.ceil(C / 8) * 8;
  const scale = form.scale ?? d ** -0.5;
  let taken = 0;
  const take = (count) => {
    taken += Math.ceil(count / 4) * 4;
    return taken - Math.ceil(count / 4) * 4;
  };

  // Parameters lie next to each other, and so do their gradients, in the same order.
  const parameters = [];
  const weight = (name, rows, columns, std, start = 0) => {
    const one = { name, rows, columns, std, start, size: rows * columns, at: take(rows * columns) };
    parameters.push(one);
    return one.at;
  };
  const tables = (shapes, where) => Object.entries(shapes ?? {}).map(([name, shape]) => weight(`${where}.${name}`, ...shape))[0];
  const std = 0.5 * D ** -0.5;
  const w = { tokens: weight("inputs", C, D, 0.3), shared: tables(form.shared?.(setting), "encoding"), layers: [] };
  for (let i = 0; i < layers; i += 1) {
    const own = (name, ...rest) => weight(`${i}.${name}`, ...rest);
    w.layers.push({
      gain1: own("norm_1.weight", 1, D, 0, 1), shift1: own("norm_1.bias", 1, D, 0), qkv: own("qkv", D, 3 * D, std), out: own("out", D, D, std),
      gain2: own("norm_2.weight", 1, D, 0, 1), shift2: own("norm_2.bias", 1, D, 0),
      up: own("up", D, F, std), upBias: own("up.bias", 1, F, 0), down: own("down", F, D, std), downBias: own("down.bias", 1, D, 0),
      table: tables(form.own?.(setting), i),
    });
  }
  Object.assign(w, { gain: weight("norm.weight", 1, D, 0, 1), shift: weight("norm.bias", 1, D, 0), outputs: weight("outputs", D, V, std), outputsBias: weight("outputs.bias", 1, V, 0) });
  const count = taken;
  const grads = take(count); // the gradient of what lies at p lies at p + grads

  const clip = setting.clip ?? 1;
  const R = Math.ceil((clip + 1) / 8) * 8; // Shaw's distances, filled up to whole vectors
  const biases = take(H * longest + BLOCK); // (H, 512), from distance 511 to 0
  const angles = take(longest * D); // what sinusoids add, or RoPE's cosines and sines
  const kept = w.layers.map(() => ({
    normed1: take(N * D), y1: take(N * D), spread1: take(N), qkv: take(N * 3 * D), kT: take(N * D), weights: take(Math.max(N * H * SIZES.trained, longest * longest)),
    o: take(N * D), normed2: take(N * D), y2: take(N * D), spread2: take(N), hidden: take(N * F), slope: take(N * F),
  }));
  const last = { normed: take(N * D), y: take(N * D), spread: take(N), logits: take(N * V) };
  const [x, dx, dy, dqkv, vT, h, dh, dS] = [N * D, N * D, N * D, N * 3 * D, N * D, N * F, N * F, longest * BLOCK].map(take);
  const [turned, byDistance, dByDistance, aT, a, da] = [D * F, longest * R, longest * R, d * R, R * d, R * d].map(take);

  const one = take(1);
  const pages = Math.ceil((4 * taken) / 65536);
  let f = new Float32Array(pages * 16384);
  let kernels = plain(f);
  try {
    const room = new WebAssembly.Memory({ initial: pages });
    kernels = new WebAssembly.Instance(new WebAssembly.Module(bytes()), { room: { memory: room } }).exports;
    f = new Float32Array(room.buffer);
  } catch {
    // no WebAssembly, or none with vectors: the page has said so
  }

  // C (m, n) = A B, or C + A B. Behind the place of each is the step to its next row; behind that
  // of A the step to its next column too, so that A may lie turned.
  const product = (c, cm, from, am, ak, b, bk, m, n, k, more = 0) => kernels.product(4 * c, 4 * from, 4 * b, m, n, k, 4 * am, 4 * ak, 4 * bk, 4 * cm, more);

  const random = generator(seed);
  for (const { at, size, std: spread, start } of parameters) for (let i = 0; i < size; i += 1) f[at + i] = spread ? spread * normal(random) : start;
  f[one] = 1;
  form.fixed?.(setting).forEach((row, head) => row.forEach((value, distance) => (f[biases + head * longest + longest - 1 - distance] = value)));
  const gain = 0.3 * Math.SQRT2 * (setting.gain ?? 1); // brings the code to the size of the tokens
  const rotates = form.turns !== undefined;
  const adds = setting.method === "sinusoidal";
  const turns = rotates ? form.turns(setting) : byRates(adds ? rates(D, setting.base) : []);
  turns.flat().forEach((turn, i) => {
    const [first, second] = rotates ? [Math.cos(turn), Math.sin(turn)] : [gain * Math.sin(turn), gain * Math.cos(turn)];
    f.set([first, second], angles + 2 * i);
  });

  function transpose(from, step, rows, columns, to) {
    for (let i = 0; i < rows; i += 1) for (let j = 0; j < columns; j += 1) f[to + j * rows + i] = f[from + i * step + j];
  }
  // A column of ones times a row: it stands, or is added, in each of the rows.
  const addRow = (row, width, to, rows, more) => product(to, width, one, 0, 0, row, width, rows, width, 1, more);
  function multiply(at, by, count) {
    for (let i = 0; i < count; i += 1) f[at + i] *= f[by + i];
  }
  // A product with one row of ones, read and written four times at the same place.
  const sumRows = (from, width, rows, to) => product(to, 0, one, 0, 0, from, width, 4, width, rows, 1);

  function normalise(rows, normed, y, spread, g, b) {
    for (let i = 0; i < rows; i += 1) {
      const at = i * D;
      let mean = 0;
      let square = 0;
      for (let j = 0; j < D; j += 1) mean += f[x + at + j];
      mean /= D;
      for (let j = 0; j < D; j += 1) square += (f[x + at + j] - mean) ** 2;
      const r = (f[spread + i] = 1 / Math.sqrt(square / D + EPS));
      for (let j = 0; j < D; j += 1) {
        const value = (f[normed + at + j] = (f[x + at + j] - mean) * r);
        f[y + at + j] = value * f[g + j] + f[b + j];
      }
    }
  }
  // Adds to dx what dy means for the input of a normalisation; dy is used up.
  function normaliseBack(rows, normed, spread, g, b) {
    sumRows(dy, D, rows, grads + b);
    for (let i = 0; i < rows; i += 1) {
      const at = i * D;
      let mean = 0;
      let along = 0;
      for (let j = 0; j < D; j += 1) {
        const given = f[dy + at + j] * f[g + j];
        mean += given;
        along += given * f[normed + at + j];
      }
      mean /= D;
      along /= D;
      const r = f[spread + i];
      for (let j = 0; j < D; j += 1) f[dx + at + j] += r * (f[dy + at + j] * f[g + j] - mean - f[normed + at + j] * along);
    }
    multiply(dy, normed, rows * D);
    sumRows(dy, D, rows, grads + g);
  }

  // Rotates queries and keys; `back` the other way round, as gradients go.
  function rotate(rows, L, at, back) {
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0; j < 2 * D; j += 2) {
        const turn = angles + (i % L) * d + (j % d);
        const cos = f[turn];
        const sin = back ? -f[turn + 1] : f[turn + 1];
        const p = at + i * 3 * D + j;
        const first = f[p];
        f[p] = first * cos - f[p + 1] * sin;
        f[p + 1] = first * sin + f[p + 1] * cos;
      }
    }
  }
  function scaleQueries(rows, at) {
    for (let i = 0; i < rows; i += 1) for (let j = 0; j < D; j += 1) f[at + i * 3 * D + j] *= scale;
  }
  // T5: the numbers of all distances from the table.
  function lookUp() {
    for (let distance = 0; distance < longest; distance += 1) {
      const row = w.shared + bucket(distance, setting.buckets, setting.reach) * H;
      for (const head of HEADS) f[biases + head * longest + longest - 1 - distance] = f[row + head];
    }
  }
  // Shaw: the vectors by distance, (R, d) and (d, R); row 0 of the table is the farthest key.
  function byClippedDistance(table) {
    for (let r = 0; r <= clip; r += 1) f.copyWithin(a + r * d, table + (clip - r) * d, table + (clip - r + 1) * d);
    transpose(a, d, R, d, aT);
  }

  function attend(layer, own, rows, L, training) {
    const q = own.qkv;
    if (rotates) rotate(rows, L, q, false);
    scaleQueries(rows, q);
    if (w.shared !== undefined) lookUp();
    if (layer.table !== undefined) byClippedDistance(layer.table);
    for (let text = 0; text < rows / L; text += 1) {
      const start = q + text * L * 3 * D;
      transpose(start + D, 3 * D, L, D, own.kT + text * L * D);
      for (const head of HEADS) {
        const S = own.weights + (training ? (text * H + head) * L * L : 0);
        for (let first = 0; first < L; first += BLOCK) {
          const seen = first + BLOCK;
          const block = S + first * L;
          const queries = start + first * 3 * D + head * d;
          product(block, L, queries, 3 * D, 1, own.kT + text * L * D + head * d * L, L, BLOCK, seen, d);
          if (layer.table !== undefined) {
            product(byDistance, R, queries, 3 * D, 1, aT, R, BLOCK, R, d);
            for (let i = 0; i < BLOCK; i += 1) for (let j = 0; j <= first + i; j += 1) f[block + i * L + j] += f[byDistance + i * R + Math.min(clip, first + i - j)];
          }
          kernels.softmax(4 * block, 4 * (biases + head * longest), BLOCK, seen, 4 * L, first);
          product(own.o + (text * L + first) * D + head * d, D, block, L, 1, start + 2 * D + head * d, 3 * D, BLOCK, d, seen);
        }
      }
    }
  }

  // Puts logits (N, V) at `last.logits`. Rows are texts of L tokens, one after the other.
  function forward(tokens, L, training) {
    const rows = tokens.length;
    for (let i = 0; i < rows; i += 1) {
      for (let j = 0; j < D; j += 1) f[x + i * D + j] = f[w.tokens + tokens[i] * D + j] + (adds ? f[angles + (i % L) * D + j] : 0);
    }
    w.layers.forEach((layer, i) => {
      const own = kept[i];
      normalise(rows, own.normed1, own.y1, own.spread1, layer.gain1, layer.shift1);
      product(own.qkv, 3 * D, own.y1, D, 1, layer.qkv, 3 * D, rows, 3 * D, D);
      attend(layer, own, rows, L, training);
      product(x, D, own.o, D, 1, layer.out, D, rows, D, D, 1);
      normalise(rows, own.normed2, own.y2, own.spread2, layer.gain2, layer.shift2);
      addRow(layer.upBias, F, h, rows, 0);
      product(h, F, own.y2, D, 1, layer.up, F, rows, F, D, 1);
      kernels.gelu(4 * h, 4 * own.hidden, 4 * own.slope, rows * F);
      addRow(layer.downBias, D, x, rows, 1);
      product(x, D, own.hidden, F, 1, layer.down, D, rows, D, F, 1);
    });
    normalise(rows, last.normed, last.y, last.spread, w.gain, w.shift);
    addRow(w.outputsBias, V, last.logits, rows, 0);
    product(last.logits, V, last.y, D, 1, w.outputs, V, rows, V, D, 1);
  }

  function attendBack(layer, own, rows, L) {
    const q = own.qkv;
    if (layer.table !== undefined) byClippedDistance(layer.table);
    f.fill(0, da, da + R * d);
    for (let text = 0; text < rows / L; text += 1) {
      const start = q + text * L * 3 * D;
      transpose(start + 2 * D, 3 * D, L, D, vT);
      for (const head of HEADS) {
        const P = own.weights + (text * H + head) * L * L;
        const given = dy + text * L * D + head * d; // what comes back to the output of the head
        const to = dqkv + text * L * 3 * D + head * d;
        product(dS, L, given, D, 1, vT + head * d * L, L, L, L, d);
        kernels.softmaxBack(4 * P, 4 * dS, L, L);
        product(to + 2 * D, 3 * D, P, 1, L, given, D, L, d, L);
        product(to, 3 * D, dS, L, 1, start + D + head * d, 3 * D, L, d, L);
        product(to + D, 3 * D, dS, 1, L, start + head * d, 3 * D, L, d, L);
        if (w.shared !== undefined) {
          for (let i = 0; i < L; i += 1) for (let j = 0; j <= i; j += 1) f[grads + w.shared + bucketOf[i - j] * H + head] += f[dS + i * L + j];
        }
        if (layer.table !== undefined) {
          f.fill(0, dByDistance, dByDistance + L * R);
          for (let i = 0; i < L; i += 1) for (let j = 0; j <= i; j += 1) f[dByDistance + i * R + Math.min(clip, i - j)] += f[dS + i * L + j];
          product(to, 3 * D, dByDistance, R, 1, a, d, L, d, R, 1);
          product(da, d, dByDistance, 1, R, start + head * d, 3 * D, R, d, L, 1);
        }
      }
    }
    if (layer.table !== undefined) {
      for (let r = 0; r <= clip; r += 1) for (let j = 0; j < d; j += 1) f[grads + layer.table + (clip - r) * d + j] += f[da + r * d + j];
    }
    scaleQueries(rows, dqkv);
    if (rotates) rotate(rows, L, dqkv, true);
  }
  const bucketOf = w.shared !== undefined && Array.from({ length: longest }, (_, distance) => bucket(distance, setting.buckets, setting.reach));

  // The gradient of weights (inner, outer), and in `to` what comes back to their input.
  function linearBack(rows, input, at, inner, outer, given, to) {
    product(grads + at, outer, input, 1, inner, given, outer, inner, outer, rows, 1);
    transpose(at, outer, inner, outer, turned);
    product(to, inner, given, outer, 1, turned, inner, rows, inner, outer);
  }

  // The mean loss in nats; where the logits were, stands what comes back to them.
  function crossEntropy(targets, rows) {
    let counted = 0;
    let loss = 0;
    for (let i = 0; i < rows; i += 1) counted += targets[i] >= 0;
    for (let i = 0; i < rows; i += 1) {
      const at = last.logits + i * V;
      const wanted = at + targets[i];
      let top = -Infinity;
      let sum = 0;
      for (let j = at; j < at + C; j += 1) top = Math.max(top, f[j]);
      if (wanted >= at) loss += top - f[wanted];
      for (let j = at; j < at + C; j += 1) sum += f[j] = Math.exp(f[j] - top);
      if (wanted >= at) loss += Math.log(sum);
      for (let j = at; j < at + C; j += 1) f[j] = wanted < at ? 0 : (f[j] / sum - (j === wanted ? 1 : 0)) / counted;
      f.fill(0, at + C, at + V);
    }
    return loss / counted;
  }

  // The mean loss of one batch in nats; the gradients lie behind the weights.
  function learn(tokens, targets, L) {
    const rows = tokens.length;
    forward(tokens, L, true);
    const loss = crossEntropy(targets, rows);
    f.fill(0, grads, grads + count);
    f.fill(0, dx, dx + rows * D);
    sumRows(last.logits, V, rows, grads + w.outputsBias);
    linearBack(rows, last.y, w.outputs, D, V, last.logits, dy);
    normaliseBack(rows, last.normed, last.spread, w.gain, w.shift);
    for (let i = layers - 1; i >= 0; i -= 1) {
      const [layer, own] = [w.layers[i], kept[i]];
      sumRows(dx, D, rows, grads + layer.downBias);
      linearBack(rows, own.hidden, layer.down, F, D, dx, dh);
      multiply(dh, own.slope, rows * F);
      sumRows(dh, F, rows, grads + layer.upBias);
      linearBack(rows, own.y2, layer.up, D, F, dh, dy);
      normaliseBack(rows, own.normed2, own.spread2, layer.gain2, layer.shift2);
      linearBack(rows, own.o, layer.out, D, D, dx, dy);
      attendBack(layer, own, rows, L);
      linearBack(rows, own.y1, layer.qkv, D, 3 * D, dqkv, dy);
      normaliseBack(rows, own.normed1, own.spread1, layer.gain1, layer.shift1);
    }
    for (let i = 0; i < rows; i += 1) for (let j = 0; j < D; j += 1) f[grads + w.tokens + tokens[i] * D + j] += f[dx + i * D + j];
    return loss;
  }

  // The token with the largest logit at each place.
  function guesses(tokens, L) {
    forward(tokens, L, false);
    const best = new Int32Array(tokens.length);
    for (let i = 0; i < tokens.length; i += 1) {
      const at = last.logits + i * V;
      for (let j = 1; j < C; j += 1) if (f[at + j] > f[at + best[i]]) best[i] = j;
    }
    return best;
  }

  return { parameters, size: C, weights: f.subarray(0, count), gradients: f.subarray(grads, grads + count), learn, guesses };
}
