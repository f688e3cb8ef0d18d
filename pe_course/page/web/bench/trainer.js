// A task's batches, AdamW with the comparison's warm-up and rate, and how far the task is kept.

import { createModel, generator } from "./model.js";
import { EVERY, MULTIPLES, RATE, SIZES } from "./shared.js";
import { TASKS } from "./tasks.js";

const { N, batch, trained, longest } = SIZES;
const WARMUP = 50;
const [BETA1, BETA2, DECAY, CLIP, TINY] = [0.9, 0.98, 0.01, 1, 1e-8];
const UNSEEN = 10_000; // the seed of what is only measured

// The factor on the rate: a linear warm-up, then a cosine down to a tenth; further steps repeat it.
export function schedule(step, steps) {
  const at = step % steps;
  if (at < WARMUP) return (at + 1) / WARMUP;
  return 0.1 + (0.9 * (1 + Math.cos((Math.PI * (at - WARMUP)) / Math.max(1, steps - WARMUP)))) / 2;
}

export function createTrainer(setting) {
  const { size, make, few, many, prefixes } = TASKS[setting.task];
  const model = createModel(setting, { seed: setting.seed, size });
  const random = generator(setting.seed + 1_000_003);
  const { weights, gradients } = model;
  const mean = new Float32Array(weights.length);
  const square = new Float32Array(weights.length);
  const held = make(generator(UNSEEN), 4 * batch, trained);
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
    const given = make(random, batch, trained);
    const loss = model.learn(given.tokens, given.targets, trained);
    update();
    return { loss, ...given };
  }

  // At each of some lengths, the share of what is to be named in its last 32 places that is named.
  function share({ tokens, targets }, L, lengths) {
    const [right, asked] = [lengths.map(() => 0), lengths.map(() => 0)];
    for (let at = 0; at < tokens.length; at += N) {
      model.guesses(tokens.subarray(at, at + N), L).forEach((guess, i) => {
        const target = targets[at + i];
        if (target >= 0) lengths.forEach((length, k) => {
          if (i % L >= length || i % L < length - trained) return;
          asked[k] += 1;
          right[k] += guess === target;
        });
      });
    }
    return right.map((count, k) => count / asked[k]);
  }

  // At each longer length. The model is causal: where a text's beginning is a text of the same task,
  // one pass over the longest has all lengths.
  function far(count) {
    const lengths = MULTIPLES.slice(1).map((multiple) => multiple * trained);
    const random = generator(UNSEEN + 1);
    if (prefixes) return share(make(random, count, longest), longest, lengths);
    return lengths.flatMap((L) => share(make(random, count, L), L, [L]));
  }

  return {
    model,
    step,
    // On 128 texts of the training length that no step sees, and then on longer ones.
    accuracies: (done) => [...share(held, trained, [trained]), ...far(done ? many : few)],
    get taken() {
      return taken;
    },
  };
}
