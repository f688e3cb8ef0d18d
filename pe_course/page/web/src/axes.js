// The numbers of the patches of an image, and the score of a query and a key as a sum over the axes.

import { added, box, chart, circle, digits, pressed, scale, text, whole, within } from "./kit.js";
import { axesScores, frequencies, goldenDirections, max, min, range, sectionDirections, textImagePositions, widthDirections } from "./positions.js";

const WORDS = 4; // of text before and after the image
const SIZE = 12; // rows, and columns
const RATES = frequencies(64, 10);
const DIRECTIONS = {
  line: RATES.map((rate) => [rate]),
  axial: widthDirections([32, 32], 10),
  sections: sectionDirections(RATES, [8, 12, 12]),
  golden: goldenDirections(RATES),
};
const KINDS = { "row part": "position", "column part": "value" };

// The numbers of each token, the scores of the query, and what the pairs of each axis add to its
// score with a key, or all pairs at once where one axis is no summand; how far the key is from it.
function made({ how, what, place, key, down, right }) {
  const image = [1, SIZE, SIZE];
  const three = textImagePositions(what === "image" ? [image] : [WORDS, image, WORDS]);
  const directions = DIRECTIONS[how];
  const line = how === "line";
  const summed = !line && how !== "golden";
  const names = line ? ["number"] : ["frame", "row", "column"].slice(-directions[0].length);
  const tokens = three.map((token, i) => (line ? [i] : token.slice(-names.length)));
  const wish = line ? [down * SIZE + right] : [0, down, right].slice(-names.length);
  const bundles = summed ? names.map((_, a) => directions.filter((each) => each[a])) : [directions];
  const gaps = names.map((name, a) => `${whole(tokens[key][a] - tokens[place][a])} ${wish[a] ? `(want ${whole(wish[a])})` : `${name}s`}`);
  return {
    tokens, directions, summed, bundles,
    at: (token) => names.map((name, a) => `${name} ${tokens[token][a]}`).join(", "),
    called: summed ? names.map((name) => `${name} part`) : ["one part"],
    gaps: summed ? gaps : [gaps.join(", ")],
    parts: (at) => bundles.map((group) => (group.length / 32) * axesScores([tokens[place], tokens[at]], group, 0, wish)[1]),
    scores: axesScores(tokens, directions, place, wish),
  };
}

function numbers(state) {
  const { tokens, directions, scores, parts } = made(state);
  return { tokens, directions, scores, parts: parts(state.key) };
}

// The place on the screen of each token: column and row of a grid of cells.
function layout(what) {
  const patches = (top) => range(SIZE * SIZE).map((i) => [i % SIZE, top + Math.floor(i / SIZE)]);
  const line = (top) => range(WORDS).map((i) => [i, top]);
  return what === "image" ? patches(0) : [...line(0), ...patches(1.5), ...line(SIZE + 2)];
}

export const axes = {
  title: "A score and its parts",
  start: { what: "image", how: "axial", place: 66, key: 39, down: 0, right: 0 },
  numbers,
  lines: [2, 5],
  glides: (state) => numbers(state).scores,
  controls: [
    { kind: "choice", key: "how", label: "positions", knob: true, options: { line: "one line", axial: "axial", sections: "M-RoPE", golden: "golden" } },
    { kind: "choice", key: "what", label: "sequence", options: { image: "an image", text: "text, image, text" } },
    { kind: "range", key: "down", label: "wanted: rows down", min: -4, max: 4, text: whole },
    { kind: "range", key: "right", label: "columns to the right", min: -4, max: 4, text: whole },
  ],
  settle: within(({ what }) => layout(what).length, "place", "key"),
  height: (narrow) => (narrow ? 414 : 464),
  words(state) {
    const { place, key } = state;
    const { at, called, bundles, gaps, parts, scores } = made(state);
    const sum = added(parts(key).map((part, a) => `${called[a]} ${digits(part)} (${bundles[a].length} pairs: ${gaps[a]})`));
    return `Query: ${at(place)}; key: ${at(key)}. Score ${digits(scores[key])} ≈ ${sum}.`;
  },
  draw({ drawing, handle, svg, state, set, width, narrow, at: scores }) {
    const { place, key, what, how } = state;
    const { at: where, directions, called, summed, gaps, parts } = made(state);

    // The formula, with its numbers.
    const item = min(118, width / (gaps.length + 1));
    [scores[key], ...parts(key)].forEach((value, i) => {
      const x = item * (i + 0.5);
      text(drawing, x, 12, called[i - 1] ?? "score");
      text(drawing, x, 32, digits(value), { kind: `name ${KINDS[called[i - 1]] ?? "ink"}` });
      text(drawing, x - item / 2, 32, ["", "="][i] ?? "+", { kind: "name ink" });
      text(drawing, x, 49, gaps[i - 1] ?? "");
    });

    // The patches.
    const places = layout(what);
    const [left, top, beside] = [28, 88, narrow ? 74 : 150];
    const deep = places.at(-1)[1] + 1;
    const cell = min((width - left - beside - 20) / SIZE, (narrow ? 208 : 270) / deep);
    const side = cell * SIZE;
    places.forEach(([x, y], i) => {
      box(drawing, `fill ${scores[i] < 0 ? "below" : "above"}`, left + cell * x, top + cell * y, cell - 1, cell - 1).attr("fill-opacity", max(0.03, Math.abs(scores[i])));
    });
    scale(drawing, left + 20, 58, "−1", 1);
    const nearest = (name) => (px, py) => {
      const far = places.map(([x, y]) => Math.hypot(px - left - cell * (x + 0.5), py - top - cell * (y + 0.5)));
      set({ [name]: far.indexOf(min(...far)) });
    };
    pressed(svg, [[left, top]], cell * deep, (px, py) => nearest("place")(px + left, py + top));

    // Beside them what each row adds to the score, below them what each column adds; where nothing
    // is added up, the scores of the query's own column and row.
    const first = what === "image" ? 0 : WORDS;
    const inside = (token) => token >= first && token < first + SIZE * SIZE;
    const own = summed && inside(key);
    const token = own ? key : place;
    const spot = [places[token][1] - places[first][1], places[token][0]];
    if (inside(token)) Object.entries(KINDS).forEach(([name, kind], a) => {
      const [ends, ticks] = [[-0.5, 1.05], [0, 0.5, 1]];
      const [x, y] = a ? [left, top + cell * deep + 24] : [left + side + 12, top + cell * places[first][1]];
      const { X, Y, curve, point: dot, level, upright } = chart(drawing, a
        ? { x, y, width: side, height: 70, xs: [0, SIZE], ys: ends, xValues: [], yValues: ticks }
        : { x, y, width: beside, height: side, xs: ends, ys: [SIZE, 0], xValues: ticks, yValues: [] });
      const point = (i) => {
        const at = token + (i - spot[a]) * (a ? 1 : SIZE);
        const value = summed ? parts(at)[called.indexOf(name)] : scores[at];
        return a ? [i + 0.5, value] : [value, i + 0.5];
      };
      curve(range(SIZE).map(point), kind);
      text(drawing, x, y - 7, summed ? name : `its ${a ? "row" : "column"}`, { at: "start", kind: `tinted ${kind}` });
      if (!own) return;
      const at = point(spot[a]);
      (a ? upright : level)(spot[a] + 0.5, "grey dashed");
      dot(...at, kind, 5);
      text(drawing, X(at[0]) + (a ? 0 : 21), Y(at[1]) + (a ? -9 : -6), digits(at[a]), { kind: "on" });
    });

    // What the pairs read: a dot for each, as far right and down as it rotates per column and row.
    const [radius, cx, cy] = narrow ? [34, left + side + 49, 372] : [62, width - 84, 150];
    text(drawing, cx, cy - radius - 8, "directions");
    circle(drawing, "grid", cx, cy, radius);
    const plane = directions.map((each) => (how === "line" ? [SIZE * each[0], each[0]] : each.slice(-2)));
    const longest = max(...plane.map((each) => Math.hypot(...each)));
    for (const [y, x] of plane) circle(drawing, "fill ink", cx + (radius * x) / longest, cy + (radius * y) / longest, 2);

    for (const [name, kind, token] of [["key", "key", key], ["place", "query", place]]) {
      const [x, y] = [left + cell * places[token][0], top + cell * places[token][1]];
      box(drawing, "line ink", x, y, cell, cell);
      text(drawing, x + cell / 2, y + (kind === "key" ? cell + 13 : -5), kind, { kind: `on name word ${kind}` });
      handle(name, {
        shape: "rect", x, y, size: cell, now: token, least: 0, most: places.length - 1, label: kind, text: where(token),
        move: nearest(name), step: (across, down) => set({ [name]: token + across + down * SIZE }),
      });
    }
  },
};
