// What a model needs, which methods remain, and why the others fall out.

import { digits, doubled, element, grouped } from "./kit.js";
import { choose } from "./positions.js";

const log = { ...doubled, text: grouped };
const GROUPS = ["Fit", "Not sure", "Fall out, and why (scroll)"];

export const chooser = {
  title: "What remains for your needs, and why",
  start: { what: "text", keep: "all", trained: 4096, used: 4096, cache: "all", kernel: "plain", parameters: 1e9, d: 64, small: false, tuned: false },
  numbers(state) {
    const { order, reasons } = chooser.data;
    const kinds = Object.keys(reasons).sort();
    return { verdicts: choose(chooser.data, state).map(({ key, status, worst, reasons: why }) =>
      [order.indexOf(key), status, worst ?? -1, ...why.flatMap(([kind, a, b]) => [kinds.indexOf(kind), a, b])]) };
  },
  lines: [3, 6],
  controls: [
    { kind: "select", key: "what", label: "the model reads", options: { text: "text, forwards (decoder)", both: "text, both ways (encoder)", image: "images" } },
    { kind: "select", key: "keep", label: "at its length it must keep", options: { all: "all three: text, recall, 3-back", language: "the loss on text", content: "a content at any distance", offset: "an exact offset (3 back)" } },
    { ...log, key: "trained", label: "trained length", min: 5, max: 17 },
    { ...log, key: "used", label: "length at use", min: 5, max: 21, knob: true },
    { kind: "select", key: "cache", label: "keys in a cache", options: { none: "none", all: "all are kept", sliding: "the oldest go, counting anew" } },
    { kind: "select", key: "kernel", label: "attention runs in", options: { any: "any code", scores: "a kernel that adds to scores (FlexAttention)", plain: "a fixed kernel: q, k, v, a window" } },
    {
      kind: "range", key: "parameters", label: "parameters for positions", min: 0, max: 8, from: (v) => (v ? Math.log10(v) - 1 : 0),
      to: (v) => (v ? 10 ** (v + 1) : 0), text: (v) => (v > 1e8 ? "any" : `≤ ${grouped(v)}`),
    },
    { ...log, key: "d", label: "width of a head", min: 4, max: 8 },
    { kind: "switch", key: "small", label: "no extra tensor above half of the scores" },
    { kind: "switch", key: "tuned", label: "may be trained on" },
  ],
  height: () => 0,
  sheet: [470, 560],
  words(state) {
    const { trained, used } = state;
    const factor = used / trained;
    const found = choose(chooser.data, state);
    const count = (status) => found.filter((each) => each.status === status).length;
    const best = found[0].status ? "" : `, the best ${chooser.data.facts[found[0].key].name}`;
    return (
      `Of ${found.length} methods${factor > 1 ? " (rules that stretch too)" : ""} ${count(0)} fit${best}; ${count(1)} not sure; ${count(2)} fall out. ` +
      `At ${factor} × the trained length we know small decoders only (two layers, trained on 32 or 64 tokens).`
    );
  },
  draw({ sheet, state }) {
    const { facts, reasons, bars } = chooser.data;
    const ending = location.pathname.endsWith(".html") ? ".html" : ".ipynb";
    const link = (page, words, parent) => element("a", { href: page.replace(/#|$/, `${ending}$&`) }, parent, words);
    const found = choose(chooser.data, state);
    const asked = chooser.controls.filter(({ key }) => state[key] !== false).map(({ key, label, options, text }) => `${label}: ${options?.[state[key]] ?? text?.(state[key]) ?? "yes"}`);
    element("p", {}, sheet, `Asked: ${asked.join(" · ")}.`);
    element("em", {}, sheet, `The numbers: ${bars[state.keep] > 0.5 ? "share of right answers" : "nats of text above RoPE's at its trained length"}, the worst seed.`);
    GROUPS.forEach((name, status) => {
      const all = found.filter((each) => each.status === status);
      element("strong", { class: ["above", "position", "key"][status] }, sheet, `${"✓?✕"[status]} ${name}: ${all.length}`);
      const list = element("ul", {}, sheet);
      for (const { key, worst, reasons: why } of all) {
        const item = element("li", {}, list);
        link(facts[key].page, facts[key].name, item);
        const value = element("span", {}, item);
        if (worst !== null) link("17_bakeoff", digits(worst, 3), value);
        const words = element("span", {}, item, status < 2 ? `at scale: ${facts[key].scale}. ` : "");
        why.forEach(([kind, a, b], i) => {
          if (i) words.append("; ");
          const [said, page] = reasons[kind];
          link(page, said.replace("{0}", kind === "parameters" ? grouped(a) : Number(a.toFixed(3))).replace("{1}", b), words);
        });
      }
    });
  },
};
