// The wavelength of every pair against the context, and what each rule does to it.

import { box, chart, circle, clamp, digits, doubled, grouped, heading, legend, shape, text } from "./kit.js";
import { cos, dynamicNtk, exp, frequencies, llama3, log, max, min, ntkAware, PI, positionInterpolation, range, round, sin, sum, yarn } from "./positions.js";

// Width of what rotates, base, length of training, and the factor and rule of the long version.
export const MODELS = {
  small: ["a small model", 32, 10000, 128, 4, "none"],
  llama2: ["Llama 2 7B", 128, 10000, 4096, 4, "interpolation"],
  llama31: ["Llama 3.1 8B", 128, 500000, 8192, 8, "llama3"],
  qwen25: ["Qwen2.5 7B", 128, 1000000, 32768, 4, "yarn"],
  deepseek: ["DeepSeek-V3", 64, 10000, 4096, 40, "yarn"],
  gpt_oss: ["gpt-oss", 64, 150000, 4096, 32, "yarn"],
};
const RULES = {
  none: "as trained", interpolation: "position interpolation", ntk: "NTK-aware", dynamic: "dynamic NTK",
  llama3: "Llama 3.1", yarn: "YaRN", base: "a larger base",
};
const WHOLE = 2 * PI;

function numbers({ model, rule, factor }) {
  const [, d, base, trained] = MODELS[model];
  const rates = frequencies(d, base);
  const changed = {
    none: () => rates,
    interpolation: () => positionInterpolation(rates, factor),
    ntk: () => ntkAware(rates, factor),
    dynamic: () => dynamicNtk(rates, 2, trained, factor * trained),
    llama3: () => llama3(rates, factor, trained),
    yarn: () => yarn(rates, factor, trained, 1, min(32, trained / WHOLE), model !== "gpt_oss"),
    // No angle is new: the first pair that did not go around in training is slowed by the factor.
    base: () => frequencies(d, base * factor ** (d / 2 / rates.findIndex((rate) => rate * trained < WHOLE))),
  }[rule]();
  // In training a pair reached this angle; a pair that went around has seen them all.
  const unseen = changed.map((rate, r) => Number(rates[r] * trained < WHOLE && rate * factor > rates[r] * (1 + 1e-6)));
  const moved = changed.map((rate, r) => Number(rates[r] * trained >= WHOLE && rate < 0.95 * rates[r]));
  // The share of its circle that each pair went through, in training and in the long text.
  const seen = rates.map((rate) => min(1, (rate * trained) / WHOLE));
  const now = changed.map((rate) => min(1, (rate * trained * factor) / WHOLE));
  return { rates, changed, unseen, moved, seen, now };
}

function sector(drawing, x, y, radius, share, kind) {
  if (share > 0.999) return circle(drawing, `fill ${kind}`, x, y, radius);
  const [u, v] = [x + radius * sin(WHOLE * share), y - radius * cos(WHOLE * share)];
  return shape(drawing, `fill ${kind}`, `M${x},${y}V${y - radius}A${radius},${radius} 0 ${share > 0.5 ? 1 : 0} 1 ${u},${v}Z`);
}

export const wavelengths = {
  title: "Wavelengths and the context",
  start: { model: "small", rule: "none", factor: 1, pair: 6 },
  numbers,
  lines: [3, 6],
  glides(state) {
    const { changed, now } = numbers(state);
    return [log(state.factor), ...now, ...changed.map((rate) => log(rate || 1e-9))];
  },
  controls: [
    {
      kind: "select", key: "model", label: "model", options: Object.fromEntries(Object.entries(MODELS).map(([key, [name]]) => [key, name])),
      also: (model) => ({ factor: MODELS[model][4], rule: MODELS[model][5] }),
    },
    { kind: "select", key: "rule", label: "rule", options: RULES, also: (_, { factor }) => ({ factor: factor > 1 ? factor : 4 }) },
    { ...doubled, key: "factor", label: "length, × that of training", knob: true, min: 0, max: 7, step: 0.25, to: (v) => Number((2 ** v).toPrecision(3)) },
  ],
  settle(state) {
    state.pair = clamp(round(state.pair), 0, MODELS[state.model][1] / 2 - 1);
  },
  height: (narrow) => (narrow ? 396 : 440),
  words(state) {
    const { pair, factor, model } = state;
    const { rates, changed, unseen, moved } = numbers(state);
    const [, d, , trained] = MODELS[model];
    const slowed = changed[pair] === rates[pair] ? "" : `, slowed by ${digits(rates[pair] / changed[pair])}`;
    return (
      `Trained on ${grouped(trained)} positions, read to ${grouped(trained * factor)}. Of ${d / 2} pairs ` +
      `${sum(unseen)} reach new angles${sum(moved) ? `, and ${sum(moved)} that knew all are slowed` : ""}. ` +
      `Pair ${pair}: wavelength ${grouped(WHOLE / changed[pair])}${slowed}.`
    );
  },
  draw({ drawing, handle, state, set, width, narrow, at }) {
    const { model, pair } = state;
    const { rates, changed, unseen, moved, seen } = numbers(state);
    const [factor, now, logs] = [exp(at[0]), at.slice(1, rates.length + 1), at.slice(rates.length + 1)];
    const trained = MODELS[model][3];
    const last = rates.length - 1;
    const longest = (WHOLE / rates[last]) * max(factor, 4) * 2;
    const power = (v) => (v < 1e4 ? grouped(v) : `10${"⁰¹²³⁴⁵⁶⁷⁸⁹"[round(Math.log10(v))]}`);
    const panel = chart(drawing, {
      x: 46, y: 26, width: width - 58, height: narrow ? 214 : 258, xs: [-0.8, last + 0.8], ys: [4, longest], logY: true,
      xLabel: "pair of components", title: `wavelength${state.rule === "none" ? "" : " (grey: trained)"}`, yFormat: power, yValues: range(9, 1).map((e) => 10 ** e).filter((v) => v < longest),
    });
    for (const [length, words, kind] of [[trained, "trained context", "query"], [trained * factor, "new context", "key"]]) {
      if (factor > 1 || kind === "query") panel.level(length, `${kind} dashed`);
      if (factor > 1.4 || kind === "query") text(drawing, panel.X(last + 0.5), panel.Y(length) - 5, words, { at: "end", kind: `tinted ${kind}` });
    }
    const marks = [["above", "● known angles"], ["key", "✕ new angles"], ["position", "■ slowed by the rule"]];
    rates.forEach((rate, r) => {
      panel.point(r, WHOLE / rate, "grey", 2);
      if (!changed[r]) return;
      const [x, y] = [panel.X(r), panel.Y(WHOLE / exp(logs[r]))];
      const kind = unseen[r] || 2 * moved[r];
      if (kind > 1) box(drawing, "fill position", x - 3.2, y - 3.2, 6.4, 6.4);
      else if (kind) shape(drawing, "line key strong", `M${x - 3.5},${y - 3.5}l7,7m0,-7l-7,7`);
      else circle(drawing, "fill above", x, y, 3.5);
      marks[kind].there = true;
    });
    const [radius, low] = narrow ? [16, 348] : [26, 388];
    const title = heading(drawing, narrow ? 14 : 46, low - radius - 12, "angles reached:  ");
    legend(title, [["query", "● in training  "], ["key", "● new"]].slice(0, marks[1].there ? 2 : 1));
    range(8).forEach((i) => {
      const r = (i * rates.length) / 8;
      const x = 46 + radius + (i * (width - 60 - 2 * radius)) / 7;
      circle(drawing, "grid", x, low, radius);
      sector(drawing, x, low, radius, now[r], "key");
      sector(drawing, x, low, radius, seen[r], "query");
      text(drawing, x, low + radius + 16, narrow ? r : `pair ${r}`);
    });
    const y = changed[pair] ? panel.Y(WHOLE / changed[pair]) : 30;
    const to = (value) => set({ pair: clamp(round(value), 0, last) });
    handle("pair", {
      x: panel.X(pair), y, now: pair, least: 0, most: last, label: "pair", text: `pair ${pair}, wavelength ${grouped(WHOLE / changed[pair])}`,
      move: (px) => to(panel.X.invert(px)), step: (across, down) => to(pair + across - down),
    });
    marks.filter((each) => each.there).forEach(([kind, words], i) => text(drawing, 56, 42 + 16 * i, words, { at: "start", kind: `tinted ${kind}` }));
  },
};
