// Every frequency is the hand of a clock, and its angle is the position.

import { chart, circle, clamp, digits, doubled, exact, grouped, power, segment, text, together, whole } from "./kit.js";
import { abs, atan2, cos, dot, floor, frequencies, max, min, range, round, sin, sinusoidal } from "./positions.js";

const LAST = 1000; // the largest position
const REACH = 64;
const SHOWN = 8; // clocks at most

const GAPS = range(8 * REACH + 1).map((i) => i / 4 - REACH);

function numbers({ p, other, d, base }) {
  const codes = [p, other].map((place) => sinusoidal(place, d, base));
  const zero = sinusoidal(0, d, base);
  const curve = GAPS.map((gap) => dot(zero, sinusoidal(gap, d, base)));
  return { rates: frequencies(d, base), codes, likeness: dot(...codes), curve };
}

export const clockHands = {
  title: "Clock hands: the codes of two positions",
  start: { p: 0, other: 5, d: 8, base: 10000 },
  controls: [
    { ...together("p", "other", LAST), label: "both positions, blue and orange", step: 0.1, play: true },
    { kind: "range", key: "p", kin: "query", label: "blue alone", min: 0, max: LAST, step: 0.1, text: exact },
    { kind: "range", key: "other", kin: "key", label: "orange alone", min: 0, max: LAST, step: 0.1, text: exact },
    { ...doubled, key: "d", label: "width d", min: 1, max: 7 },
    { ...power, key: "base", label: "base b", min: 0.3, max: 6, text: grouped, enabled: (s) => s.d > 2 },
  ],
  numbers,
  lines: [2, 4],
  glides: ({ p, other }) => [p, other],
  height: (narrow) => (narrow ? 470 : 352),
  words(state) {
    const { codes, likeness } = numbers(state);
    const gap = round(10 * (state.other - state.p)) / 10;
    const parts = codes[0].slice(0, 4).map((value) => digits(value)).join(", ");
    return (
      `The blue position, ${exact(state.p)}, has the code (${parts}${state.d > 4 ? ", …" : ""}). ` +
      `The orange one, ${exact(state.other)}, is ${exact(abs(gap))} ${gap < 0 ? "before" : "after"} it: ` +
      `the dot product of the two codes is ${digits(likeness)} of at most ${state.d / 2}.`
    );
  },
  draw({ drawing, handle, state, set, width, height, narrow, at }) {
    const { p, other, d, base } = state;
    const { rates, codes, curve, likeness } = numbers(state);
    const step = max(1, rates.length / SHOWN);
    const shown = range(min(SHOWN, rates.length)).map((i) => i * step);
    const columns = narrow ? 4 : SHOWN;
    const cell = min(width / min(columns, max(4, shown.length)), narrow ? 92 : 150);
    const radius = min(cell / 2 - 8, narrow ? 30 : 46);
    const rowHeight = narrow ? 122 : 152;
    const perRow = min(columns, shown.length);
    shown.forEach((r, i) => {
      const cx = (width - perRow * cell) / 2 + cell * ((i % columns) + 0.5);
      const cy = 28 + radius + rowHeight * floor(i / columns);
      text(drawing, cx, cy - radius - 17, `clock ${r}`, { kind: "title" });
      circle(drawing, "dial", cx, cy, radius);
      // Hands of two lengths: where both point the same way, both are seen.
      for (const [place, kind, name, shown, long] of [[other, "key", "other", at[1], radius], [p, "query", "p", at[0], 0.6 * radius]]) {
        const angle = place * rates[r];
        const [x, y] = [cx + long * sin(shown * rates[r]), cy - long * cos(shown * rates[r])];
        segment(drawing, `${kind} hand`, cx, cy, x, y);
        const turned = (target) => {
          const by = atan2(sin(target - angle), cos(target - angle)) / rates[r];
          set({ [name]: clamp(round((place + by) * 10) / 10, 0, LAST) });
        };
        handle(`${name}${r}`, {
          kind, x, y, now: place, least: 0, most: LAST,
          label: `hand ${r} of the ${name === "p" ? "blue" : "orange"} position`,
          text: `position ${exact(place)}`,
          move: (px, py) => turned(atan2(px - cx, cy - py)),
          step: (right, down) => set({ [name]: clamp(round((place + (0.1 * (right - down)) / rates[r]) * 10) / 10, 0, LAST) }),
        });
      }
      circle(drawing, "fill ink", cx, cy, 2.5);
      const [sine, cosine] = codes[0].slice(2 * r, 2 * r + 2);
      text(drawing, cx, cy + radius + 17, `sin ${digits(sine)}`, { kind: "tinted query" });
      text(drawing, cx, cy + radius + 32, `cos ${digits(cosine)}`, { kind: "tinted query" });
    });
    const top = 28 + 26 + rowHeight * Math.ceil(shown.length / columns);
    const most = d / 2;
    const lowest = min(-0.25 * most, ...curve);
    const panel = chart(drawing, {
      x: 46, y: top, width: width - 60, height: height - top - 42, xs: [-REACH, REACH],
      ys: [lowest * 1.05, most * 1.05], ticks: [narrow ? 5 : 9, 4],
      xLabel: "orange − blue position", xFormat: whole, yFormat: (v) => digits(v, most < 4 ? 1 : 0),
      title: `dot product of the two codes: ${digits(likeness)}`,
    });
    panel.level(0, "grey");
    panel.curve(GAPS.map((gap, i) => [gap, curve[i]]), "above");
    const gap = other - p;
    if (abs(gap) <= REACH) {
      panel.upright(gap, "grey dashed");
      panel.point(gap, likeness, "above", 6);
    } else {
      const mark = gap < 0 ? `← at ${exact(gap)}` : `at ${exact(gap)} →`;
      text(drawing, width - 14, top + (narrow ? 14 : -10), `${mark}, beyond this axis`, { at: "end", kind: "tinted above on" });
    }
  },
};
