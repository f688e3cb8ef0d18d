// Trains beside the page, which stays free. It is told what to train, to pause, to go on, and tells
// how far it is; tests call what it exports.

import { angles } from "./formula.js";
import { bucket } from "./model.js";
import { EVERY, lacksVectors, SIZES } from "./shared.js";
import { createTrainer, schedule } from "./trainer.js";

export const ENOUGH = 0.99; // of the tokens at the training length: the task is learned

export { angles, bucket, createTrainer, lacksVectors, schedule, SIZES };

// Trains to the end of the budget; yields what is to be seen, after every so many steps.
export function* training(setting) {
  const trainer = createTrainer(setting);
  const losses = [];
  let learned = 0;
  let working = 0; // milliseconds
  for (;;) {
    const started = performance.now();
    let sum = 0;
    for (let i = 0; i < EVERY; i += 1) sum += trainer.step().loss;
    losses.push(sum / EVERY);
    const done = trainer.taken % setting.steps === 0;
    const accuracies = trainer.accuracies(done);
    if (accuracies[0] >= ENOUGH) learned ||= trainer.taken;
    working += performance.now() - started;
    yield { taken: trainer.taken, losses: [...losses], learned, accuracies, done, seconds: working / 1000 };
  }
}

if (typeof WorkerGlobalScope !== "undefined") {
  let run = null;
  let id = 0;
  let going = false;
  const work = () => {
    if (!going) return;
    const { value } = run.next();
    going = !value.done;
    postMessage({ id, seen: value });
    setTimeout(work);
  };
  onmessage = ({ data }) => {
    if (data.setting) [run, id] = [training(data.setting), data.id];
    if (data.go && !going) setTimeout(work);
    going = data.go;
  };
}
