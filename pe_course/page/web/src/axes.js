// The numbers of text, image and video, and the scores of one chosen token.

import { box, chart, clamp, scale, digits, grouped, heading, legend, power, pressed, whole } from "./kit.js";
import { axesScores, frequencies, goldenDirections, max, min, range, sectionDirections, textImagePositions, widthDirections } from "./positions.js";

const WORDS = 4; // of text before and after an image
const FRAMES = 3;
const SECTIONS = [8, 12, 12];

// Tokens of text, or [frames, rows, columns].
function partsOf({ what, rows, columns }) {
  if (what === "image") return [[1, rows, columns]];
  return [WORDS, [what === "video" ? FRAMES : 1, rows, columns], WORDS];
}

function numbers(state) {
  const { how, what, base, place, down, right, columns } = state;
  const three = textImagePositions(partsOf(state));
  const [index, last] = [(_, i) => [i], (token) => token.slice(1)];
  const [tokens, directions, wish] = {
    line: () => [three.map(index), frequencies(64, base).map((rate) => [rate]), [down * columns + right]],
    axial: () => what === "video"
      ? [three, widthDirections([16, 24, 24], base), [0, down, right]]
      : [three.map(last), widthDirections([32, 32], base), [down, right]],
    sections: () => [three, sectionDirections(frequencies(64, base), SECTIONS), [0, down, right]],
    golden: () => [three.map(last), goldenDirections(frequencies(64, base)), [down, right]],
  }[how]();
  return { tokens, directions, scores: axesScores(tokens, directions, clamp(Math.round(place), 0, tokens.length - 1), wish) };
}

// The place on the screen of each token: column and row of a grid of cells.
function layout(state) {
  const { what, rows, columns } = state;
  const grid = (left, top) => range(rows * columns).map((i) => [left + (i % columns), top + Math.floor(i / columns)]);
  if (what === "image") return grid(0, 0);
  const frames = range(what === "video" ? FRAMES : 1).flatMap((frame) => grid(frame * (columns + 0.5), 1.5));
  const line = (top) => range(WORDS).map((i) => [i, top]);
  return [...line(0), ...frames, ...line(rows + 2)];
}

export const axes = {
  title: "The scores of one token with the others",
  start: { what: "image", how: "line", rows: 12, columns: 12, base: 10, place: 66, down: 0, right: 0 },
  numbers,
  lines: [2, 5],
  glides: (state) => numbers(state).scores,
  controls: [
    {
      kind: "select", key: "how", label: "positions", knob: true,
      options: { line: "one line: 0, 1, 2, …", axial: "each axis its own frequencies", sections: "axes share a list (M-RoPE)", golden: "golden directions" },
    },
    { kind: "select", key: "what", label: "sequence", options: { image: "an image", text: "text, an image, text", video: "text, a video, text" } },
    { kind: "range", key: "rows", label: "rows", min: 2, max: 12 },
    { kind: "range", key: "columns", label: "columns", min: 2, max: 12 },
    { kind: "range", key: "down", label: "the query wants: rows down", min: -4, max: 4, text: whole },
    { kind: "range", key: "right", label: "columns to the right", min: -4, max: 4, text: whole },
    { ...power, key: "base", label: "base", min: 1, max: 4, step: 0.5, text: grouped },
  ],
  settle(state) {
    state.place = clamp(Math.round(state.place), 0, layout(state).length - 1);
  },
  height: (narrow) => (narrow ? 604 : 340),
  words(state) {
    const { place, down, right } = state;
    const { tokens, scores } = numbers(state);
    const shown = (token) => (token.length === 1 ? `number ${token[0]}` : `numbers (${token.join(", ")})`);
    const others = scores.map((score, i) => (i === place ? -Infinity : score));
    const best = others.indexOf(max(...others));
    const alike = others.filter((score) => score > others[best] - 1e-9).length;
    return (
      `Chosen: token ${place} (the first is 0), with the ${shown(tokens[place])}${down || right ? `; it wants ${whole(down)} down, ${whole(right)} right` : ""}. Of the others, token ${best}, ` +
      `with the ${shown(tokens[best])}, scores highest${alike > 1 ? ` (and ${alike - 1} more)` : ""}: ${digits(scores[best])} (1: a perfect match).`
    );
  },
  draw({ drawing, handle, svg, state, set, width, narrow, at: scores }) {
    const { place, what, rows, columns } = state;
    const { tokens } = numbers(state);
    const places = layout(state);
    const [left, top, room] = [4, 26, narrow ? width - 8 : min(386, width - 308)];
    const across = max(...places.map((at) => at[0])) + 1;
    const cell = min(room / across, 296 / (max(...places.map((at) => at[1])) + 1));
    heading(drawing, 0, 13, "scores with it");
    scale(drawing, left + min(room, across * cell) - 84, 5, whole(-1), 1);
    places.forEach(([x, y], i) => {
      box(drawing, `fill ${scores[i] < 0 ? "below" : "above"}`, left + cell * x, top + cell * y, cell - 1, cell - 1).attr("fill-opacity", max(0.03, Math.abs(scores[i])).toFixed(3));
    });
    const nearest = (px, py) => {
      const far = places.map(([x, y]) => Math.hypot(px - cell * (x + 0.5), py - cell * (y + 0.5)));
      set({ place: far.indexOf(min(...far)) });
    };
    box(drawing, "line ink", left + cell * places[place][0], top + cell * places[place][1], cell, cell);
    handle("token", {
      shape: "rect", x: left + cell * places[place][0], y: top + cell * places[place][1], size: cell, now: place, least: 0, most: places.length - 1,
      label: "chosen token", text: `token ${place}, ${tokens[place].join(", ")}`,
      move: (px, py) => nearest(px - left, py - top), step: (across, down) => set({ place: clamp(place + across + down * columns, 0, places.length - 1) }),
    });
    pressed(svg, [[left, top]], room, nearest);

    const first = what === "image" ? 0 : WORDS;
    const inside = place - first;
    const frame = Math.floor(inside / (rows * columns));
    const panel = chart(drawing, {
      x: narrow ? 42 : room + 62, y: narrow ? 386 : 44, width: narrow ? width - 56 : width - room - 76, height: narrow ? 176 : 246,
      xs: [-12, 12], ys: [-1, 1.08], xLabel: "patches away", xFormat: whole, yFormat: (v) => digits(v, 1), ticks: [5, 5],
    });
    const [px, py] = narrow ? [42, 374] : [room + 62, 13];
    const title = heading(drawing, px, py, "along its ");
    legend(title, [["value", "— row "], ["position", "-- column"]]);
    panel.level(0, "grey");
    if (inside < 0 || frame >= (what === "video" ? FRAMES : 1)) return;
    const [y, x] = [Math.floor(inside / columns) % rows, inside % columns];
    const score = (row, column) => scores[first + (frame * rows + row) * columns + column];
    panel.curve(range(columns).map((each) => [each - x, score(y, each)]), "value");
    panel.curve(range(rows).map((each) => [each - y, score(each, x)]), "position dashed");
  },
};
