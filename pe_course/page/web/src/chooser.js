// What a model needs, which methods remain, and why the others fall out.

import { box, chart, doubled, element, grouped } from "./kit.js";
import { choose, range } from "./positions.js";

const log = { ...doubled, text: grouped };
const KEPT = { all: "the loss on text, recall and 3-back", language: "the loss on text", content: "recall of a token at any distance", offset: "an exact offset (3-back)" };
const tenfold = { kind: "range", from: (v) => (v ? Math.log10(v) - 1 : 0), to: (v) => (v ? 10 ** (v + 1) : 0), text: (v) => (v > 1e8 ? "any" : `≤ ${grouped(v)}`) };
const GROUPS = ["above", "position", "key", "key"];

export const chooser = {
  title: "What fits, and why",
  start: { what: "text", keep: "all", trained: 4096, context: 4096, cache: "all", kernel: "plain", parameters: 1e9, d: 64, small: false, finished: false, tuned: false },
  numbers(state) {
    const [methods, kinds] = [chooser.data.facts, chooser.data.reasons].map((each) => Object.keys(each).sort());
    return { verdicts: choose(chooser.data, state).map(({ key, status, worst, reasons: why }) =>
      [methods.indexOf(key), status, worst ?? -1, ...why.flatMap(([kind, value = 0, at = 0, of]) => [kinds.indexOf(kind), value, at, +!!of?.[3]])]) };
  },
  lines: [2, 5],
  controls: [
    { kind: "select", key: "what", label: "the model reads", options: { text: "text, forwards (decoder)", both: "text, both ways (encoder)", image: "images", times: "events in time (decoder)" } },
    { kind: "select", key: "keep", label: "it must keep", options: KEPT },
    { ...log, key: "trained", label: "training length", min: 5, max: 17 },
    { ...log, key: "context", label: "context length", min: 5, max: 21, knob: true },
    { kind: "select", key: "cache", label: "key cache", options: { none: "none", all: "all are kept", rolling: "rolling: old keys are dropped" } },
    { kind: "select", key: "kernel", label: "kernel", options: { any: "any code", scores: "can add a bias (FlexAttention)", plain: "ordinary, with windows" } },
    { ...tenfold, key: "parameters", label: "position parameters", min: 0, max: 8 },
    { ...log, key: "d", label: "head width", min: 4, max: 8, enabled: (s) => s.parameters < 1e9 },
    { kind: "switch", key: "small", label: "no large extra tensor" },
    { kind: "switch", key: "finished", label: "a finished model, with RoPE" },
    { kind: "switch", key: "tuned", label: "may be trained further", enabled: (s) => s.context > s.trained },
  ],
  height: () => 112,
  sheet: [440, 440],
  words(state) {
    const fit = choose(chooser.data, state).filter((each) => !each.status);
    return `${state.finished ? "Extensions of RoPE" : "Methods"} that keep ${KEPT[state.keep]} at ${state.context / state.trained} × the training length and meet the other demands: ${fit.length}. ${chooser.data.reads[state.what]}`;
  },
  draw({ drawing, sheet, state, width }) {
    const { facts, reasons, after, groups } = chooser.data;
    const { what, trained, context, cache } = state;
    const ending = location.pathname.endsWith(".html") ? ".html" : ".ipynb";
    const link = (page, words, parent) => element("a", { href: page.replace(/#|$/, `${ending}$&`) }, parent, words);
    const at = (length) => choose(chooser.data, { ...state, context: length });
    const fitting = (length) => at(length).filter((each) => !each.status).map((each) => each.key);
    const asked = state.keep === "all" ? "language" : state.keep;
    const panel = chart(drawing, {
      x: 24, y: 26, width: width - 60, height: 60, xs: [4.5, 21.5], ys: [0, 36], ticks: [5, 2],
      xValues: [5, 9, 13, 17, 21], xFormat: (v) => grouped(2 ** v), title: "methods that fit, by length (dashed: training)",
    });
    for (const power of range(17, 5)) {
      const [x, y] = [panel.X(power - 0.4), panel.Y(fitting(2 ** power).length)];
      box(drawing, "fill above", x, y, width / 24, 86 - y).attr("fill-opacity", 2 ** power === context ? 1 : 0.4);
    }
    panel.upright(Math.log2(trained), "query dashed");
    const home = context > trained ? fitting(trained) : [];
    const found = at(context).map((each) => ({ ...each, group: each.status + (each.status > 1 && !home.includes(each.key)) }));
    GROUPS.forEach((kind, group) => {
      const all = found.filter((each) => each.group === group);
      if (!all.length) return;
      element("strong", { class: kind }, sheet, `${groups[group]}: ${all.length}`);
      const list = element("ul", {}, sheet);
      for (const { key, worst, reasons: why } of all) {
        const item = element("li", {}, list);
        link(facts[key].page, facts[key].name, item);
        const words = element("span", {}, item);
        const fits = group < 2 && worst !== null && !why.some(([kind]) => kind === asked) ? [[asked, worst]] : [];
        [...fits, ...why].forEach(([kind, value = 0, far, of], i) => {
          if (i) words.append("; ");
          const number = `${kind === "language" && value > 0 ? "+" : ""}${value.toLocaleString("en-US").replace("-", "−")}`;
          link(reasons[kind][1], reasons[kind][0].replace("{0}", number).replace("{1}", far), words);
          if (group === 1 && of && kind !== "beyond") words.append(after[+of[3]]);
        });
        const { scale } = facts[key];
        const known = what === "text" && scale[cache] || scale[what];
        if (group < 2 && known) words.append(`; ${known}`);
      }
    });
  },
};
