// Which row of the table a pair of positions reads, and what the row adds to its score.

import { box, cells, chart, digits, heading, pairs, scale, text, together, whole, named } from "./kit.js";
import { abs, clippedRow, dot, max, min, range, sqrt } from "./positions.js";
import { table } from "./sentence_scores.js";

const LENGTH = 10;
const LAST = LENGTH - 1;
const D = 8;
const VECTORS = table(2 * LAST + 1, D, 230, 0.8); // one for each distance from -9 to 9
const QUERY = table(1, D, 51, 0.8)[0];

const product = (vector) => dot(QUERY, vector) / sqrt(D);
const MOST = 1.15 * max(...VECTORS.map((vector) => abs(product(vector))));

function numbers({ clip, query }) {
  const shown = VECTORS.slice(LAST - clip, LAST + clip + 1);
  const rows = range(LENGTH).map((i) => range(LENGTH).map((j) => clippedRow(j - i, clip)));
  const products = shown.map(product);
  return { vectors: shown, vector: QUERY, rows, products, added: rows[query].map((row) => products[row]) };
}

export const shawRows = {
  title: "The vector that a pair of positions reads",
  start: { clip: 2, query: 4, key: 7 },
  numbers,
  lines: [2, 4],
  glides: (state) => [state.query, ...range(2 * LAST + 1).map((each) => numbers(state).products[clippedRow(each - LAST, state.clip)])],
  controls: [
    { ...together("query", "key", LAST), label: "query and key, both" },
    { kind: "range", key: "query", kin: "query", label: "query alone", min: 0, max: LAST },
    { kind: "range", key: "key", kin: "key", label: "key alone", min: 0, max: LAST },
    { kind: "range", key: "clip", label: "clip", min: 1, max: LAST },
  ],
  height: (narrow) => (narrow ? 668 : 340),
  words({ query, key, clip }) {
    const { rows, products } = numbers({ query, clip });
    const row = rows[query][key];
    const hit = row - clip;
    const cut = abs(key - query) > clip ? `, clipped to ${whole(hit)}` : "";
    const sharing = rows.flat().filter((each) => each === row).length;
    return (
      `Query ${query}, key ${key}: key − query = ${whole(key - query)}${cut}. The pair reads the table’s row “${whole(hit)}” ` +
      `and its score changes by ${digits(products[row])}. ${sharing} of 100 pairs read that row.`
    );
  },
  draw(all) {
    const { drawing, state, width, narrow, at: [from, ...by] } = all;
    const { query, key, clip } = state;
    const { rows, vectors } = numbers(state);
    const [left, top, side] = [26, 44, narrow ? min(304, width - 34) : min(262, width - 352)];
    const cell = side / LENGTH;
    const row = rows[query][key];
    heading(drawing, 0, 13, "distance, clipped");
    const [hit, most] = [row - clip, max(2, clip)];
    cells(drawing, left, top, [cell, cell], rows.map((line) => line.map((each) => each - clip)), most);
    rows.forEach((line, i) => {
      text(drawing, left - 6, top + cell * (i + 0.5) + 4, i, { at: "end", kind: named(i === query, "query") });
      line.forEach((each, j) => {
        const [x, y] = [left + cell * j, top + cell * i];
        if (each - clip === hit) box(drawing, "frame", x + 1.5, y + 1.5, cell - 3, cell - 3);
        text(drawing, x + cell / 2, y + cell / 2 + 4, whole(each - clip), { kind: "on" });
      });
    });
    range(LENGTH).forEach((j) => text(drawing, left + cell * (j + 0.5), top - 6, j, { kind: named(j === key, "key") }));
    pairs(all, [[left, top]], cell, LENGTH, `query ${query}, key ${key}, row ${row}`);

    const [x, y] = narrow ? [62, top + side + 54] : [left + side + 72, top];
    const line = min(20, 250 / vectors.length);
    heading(drawing, x - 36, y - 31, "the table");
    cells(drawing, x, y, [9, line], vectors, 1.2);
    vectors.forEach((_, each) => {
      text(drawing, x - 6, y + line * (each + 0.5) + 4, whole(each - clip), { at: "end", kind: each === row ? "name ink word" : "" });
    });
    scale(drawing, x - 12, y + line * vectors.length + 8, digits(-1.2, 1), 1.2);
    box(drawing, "line ink", x - 1, y + line * row, 9 * D + 2, line);

    scale(drawing, left + side - 80, 5, whole(-most), most);
    const room = { x: x + 126, y, width: width - x - 138, height: narrow ? 220 : 252 };
    const panel = chart(drawing, {
      ...room, xs: [-0.6, LAST + 0.6], ys: [-MOST, MOST], xLabel: "key", ticks: [5, 5], xFormat: whole, yFormat: (v) => digits(v, 1),
    });
    heading(drawing, room.x - 30, y - 31, `query ${query} adds`);
    text(drawing, room.x - 30, y - 12, "to the score (grey: not clipped)", { at: "start" });
    const [low, high] = [max(-0.6, query - clip - 0.5), min(LAST + 0.6, query + clip + 0.5)];
    box(drawing, "fill grey", panel.X(low), room.y, panel.X(high) - panel.X(low), room.height).attr("fill-opacity", 0.14);
    panel.level(0, "grey");
    // The curve is on its way with the query; what leaves the panel is not drawn.
    const points = by.map((value, i) => [from + i - LAST, value]).filter(([j]) => j > -0.5 && j < LAST + 0.5);
    panel.curve(points, "above");
    points.forEach(([j, value]) => panel.point(j, value, j === key ? "key" : j === from ? "query" : "above", j === key || j === from ? 6 : 3.5));
    return panel;
  },
};
