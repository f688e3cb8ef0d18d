// Runs what the page of the bench ships: reads a job from standard input, writes what came of it.

import { readFileSync } from "node:fs";

const [script] = process.argv.slice(2);
const page = new Function(`${readFileSync(script, "utf8")}; return Bench;`)();
const trainer = new Function(`${page.WORKER}; return Trainer;`)();
const given = JSON.parse(readFileSync(0, "utf8"));
if (given.plain) delete globalThis.WebAssembly;

const JOBS = {
  // Some steps: what they started from, what they read, what came back, where they ended.
  steps({ setting, count, read, measured }) {
    const made = trainer.createTrainer(setting);
    const { weights, gradients, parameters, guesses, size } = made.model;
    const found = { parameters, size, start: [...weights], losses: [], batches: [] };
    for (let i = 0; i < count; i += 1) {
      const { loss, tokens, targets } = made.step();
      found.losses.push(loss);
      found.batches.push([[...tokens], [...targets]]);
      if (i === 0) found.gradients = [...gradients];
    }
    const named = [...guesses(Int32Array.from(read), trainer.SIZES.longest)];
    const accuracies = measured && made.accuracies(true);
    return { ...found, end: [...weights], guesses: named, accuracies };
  },
  whole({ setting }) {
    for (const seen of trainer.training(setting)) if (seen.done) return { ...seen, worked: process.cpuUsage().user / 1e6 }; // seconds, whatever else ran
  },
  call: ({ name, lists }) => lists.map((list) => trainer[name](...list)),
  // What is said of formulas; null of those that have angles.
  refused: ({ texts }) => texts.map((text) => {
    try {
      trainer.angles(text, trainer.SIZES.longest, 4);
    } catch ({ message }) {
      return message;
    }
    return null;
  }),
};
process.stdout.write(JSON.stringify(JOBS[given.job](given)));
