// 3-back, its batches, AdamW with the comparison's warm-up and rate, and how far it is kept.

import { createModel, generator, SIZES } from "./model.js";

const { V, batch, trained, longest } = SIZES;
const BACK = 3;
export const EVERY = 25; // steps between two measurements
export const MULTIPLES = [1, 2, 4, 8, 16];
export const RATE = 3e-3;
export const WARMUP = 50;
const [BETA1, BETA2, DECAY, CLIP, TINY] = [0.9, 0.98, 0.01, 1, 1e-8];
const UNSEEN = 10_000; // the seed of what is only measured

export function texts(random, count, length) {
  const tokens = new Int32Array(count * length);
  const targets = new Int32Array(count * length);
  for (let i = 0; i < tokens.length; i += 1) {
    tokens[i] = Math.floor(random() * V);
    targets[i] = i % length < BACK ? -1 : tokens[i - BACK];
  }
  return { tokens, targets };
}

// The factor on the rate: a linear warm-up, then a cosine down to a tenth; further steps repeat it.
export function schedule(step, steps) {
  const at = step % steps;
  if (at < WARMUP) return (at + 1) / WARMUP;
  return 0.1 + (0.9 * (1 + Math.cos((Math.PI * (at - WARMUP)) / Math.max(1, steps - WARMUP)))) / 2;
}

export function createTrainer(setting, { vectors = true } = {}) {
  const model = createModel(setting, { seed: setting.seed, vectors });
  const random = generator(setting.seed + 1_000_003);
  const { weights, gradients } = model;
  const mean = new Float32Array(weights.length);
  const square = new Float32Array(weights.length);
  const held = texts(generator(UNSEEN), 4 * batch, trained);
  let taken = 0;

  function update() {
    let norm = 0;
    for (let i = 0; i < gradients.length; i += 1) norm += gradients[i] ** 2;
    const cut = Math.min(1, CLIP / (Math.sqrt(norm) + 1e-6));
    const rate = RATE * schedule(taken, setting.steps);
    taken += 1;
    const [first, second] = [1 - BETA1 ** taken, Math.sqrt(1 - BETA2 ** taken)];
    for (let i = 0; i < weights.length; i += 1) {
      const gradient = gradients[i] * cut;
      mean[i] += (1 - BETA1) * (gradient - mean[i]);
      square[i] += (1 - BETA2) * (gradient * gradient - square[i]);
      weights[i] -= rate * (DECAY * weights[i] + mean[i] / first / (Math.sqrt(square[i]) / second + TINY));
    }
  }

  // One step; returns the loss in nats, and the batch for whoever checks it.
  function step() {
    const given = texts(random, batch, trained);
    const loss = model.learn(given.tokens, given.targets, trained);
    update();
    return { loss, ...given };
  }

  function share(tokens, targets, L, counts) {
    const rows = SIZES.N;
    const right = new Map(counts.map((length) => [length, 0]));
    let texts = 0;
    for (let at = 0; at < tokens.length; at += rows) {
      const guesses = model.guesses(tokens.subarray(at, at + rows), L);
      for (let i = 0; i < guesses.length; i += 1) {
        const place = i % L;
        for (const length of counts) if (place < length && place >= length - trained && guesses[i] === targets[at + i]) right.set(length, right.get(length) + 1);
      }
      texts += rows / L;
    }
    return counts.map((length) => right.get(length) / (texts * (length === trained ? trained - BACK : trained)));
  }

  return {
    model,
    step,
    // On 128 texts of the training length that no step sees.
    known: () => share(held.tokens, held.targets, trained, [trained])[0],
    // At each longer length, on its last 32 places: being causal, one pass over long texts has them all.
    lengths(count) {
      const far = texts(generator(UNSEEN + 1), count, longest);
      return share(far.tokens, far.targets, longest, MULTIPLES.slice(1).map((multiple) => multiple * trained));
    },
    get taken() {
      return taken;
    },
  };
}
