// Which of T5's buckets a pair of positions falls into, and who shares it.

import { attributes, box, chart, doubled, grouped, heading, pairs, shape, text, whole } from "./kit.js";
import { abs, max, min, range, round, sum, t5Bucket } from "./positions.js";

const LENGTH = 64;
const FAR = 140; // distances shown
const BEYOND = 600; // every last bucket has begun here

const bucketOf = ({ buckets, most, sides }, relative) => t5Bucket(relative, buckets, most, sides === "both");

function numbers(state) {
  const staircase = range(2 * FAR + 1, -FAR).map((relative) => bucketOf(state, relative));
  const bucket = bucketOf(state, state.key - state.query);
  const past = (relative) => state.sides === "both" || relative <= 0;
  const sharing = range(2 * LENGTH - 1, 1 - LENGTH).filter((relative) => past(relative) && bucketOf(state, relative) === bucket);
  return { staircase, bucket, pairs: sum(sharing.map((relative) => LENGTH - abs(relative))) };
}

// The nearest and the farthest distance of the bucket, and whether it has no end.
function bounds(state, relative) {
  const side = Math.sign(relative) || -1;
  const held = range(BEYOND).filter((distance) => bucketOf(state, side * distance) === bucketOf(state, relative));
  return [held[0], held.at(-1), held.at(-1) === BEYOND - 1];
}

export const t5Buckets = {
  title: "The bucket of a pair of positions",
  start: { buckets: 32, most: 128, sides: "both", query: 44, key: 16 },
  numbers,
  lines: [2, 4],
  glides: (state) => numbers(state).staircase,
  controls: [
    { ...doubled, key: "most", label: "max distance", min: 6, max: 9, step: 0.5, to: (v) => round(2 ** v) },
    { ...doubled, key: "buckets", label: "buckets", min: 3, max: 6 },
    { kind: "range", key: "query", kin: "query", label: "query", min: 0, max: LENGTH - 1 },
    { kind: "range", key: "key", kin: "key", label: "key", min: 0, max: (s) => (s.sides === "both" ? LENGTH - 1 : s.query) },
    { kind: "choice", key: "sides", label: "keys on", options: { both: "both sides (encoder)", past: "the left (decoder)" }, knob: true },
  ],
  settle(state) {
    if (state.sides === "past") state.key = min(state.key, state.query);
  },
  height: (narrow) => (narrow ? 600 : 316),
  words(state) {
    const { query, key, buckets } = state;
    const { bucket, pairs } = numbers(state);
    const [first, last, endless] = bounds(state, key - query);
    const range = endless ? `distance ${first} and all beyond` : first === last ? `distance ${first} alone` : `distances ${first} to ${last}`;
    const side = key === query ? "" : ` to the ${key < query ? "left" : "right"}`;
    return (
      `Query ${query}, key ${key}: key − query = ${whole(key - query)}, bucket ${bucket} of 0 to ${buckets - 1}. It holds ` +
      `${range}${side}. In a text of ${LENGTH} tokens ${grouped(pairs)} pairs share its number.`
    );
  },
  draw(all) {
    const { drawing, state, width, narrow, at } = all;
    const { buckets, most, sides, query, key } = state;
    const { staircase, bucket } = numbers(state);
    const relative = key - query;
    const side = narrow ? min(280, width - 60) : 232;
    const room = narrow ? width - 58 : width - side - 118;
    const reach = sides === "both";
    const panel = chart(drawing, {
      x: 46, y: 26, width: room, height: narrow ? 190 : 232, xs: [-FAR - 1, FAR + 1], ys: [-0.5, max(32, buckets)], xLabel: "key − query",
      title: "bucket", xFormat: whole, ticks: [narrow ? 5 : 7, 5],
    });
    if (most <= FAR) {
      for (const edge of [-most, most]) panel.upright(edge, "grey");
      text(drawing, panel.X(most) - 4, panel.Y(0) - 4, "max distance", { at: "end" });
    }
    const steps = (from, to, values = at) => range(to - from + 1, from).flatMap((each) => [each - 0.5, each + 0.5].map((x) => [x, values[each + FAR]]));
    if (!reach) {
      panel.curve(steps(-FAR, FAR, numbers({ ...state, sides: "both" }).staircase), "grey dashed");
      text(drawing, panel.X(min(most, FAR)) - 4, panel.Y(0) - 22, "dashed: encoder", { at: "end" });
    }
    panel.curve(steps(-FAR, 0), "below");
    if (reach) panel.curve(steps(1, FAR), "above");
    panel.point(relative, bucket, "ink", 6);

    const [x, y] = narrow ? [46, 292] : [width - side - 6, 26];
    heading(drawing, x, y - 10, "buckets, far ones pale");
    text(drawing, x + side / 2, y + side + 20, "key");
    text(drawing, x - 12, y + side / 2, "query", { turn: -90 });
    const perSide = reach ? buckets / 2 : buckets;
    const square = attributes(drawing.append("svg"), { x, y, width: side, height: side, style: "overflow: hidden" }); // which cuts the strips
    let from = 1 - LENGTH;
    range(reach ? 2 * LENGTH - 1 : LENGTH, from).forEach((each) => {
      if (each < (reach ? LENGTH - 1 : 0) && staircase[each + 1 + FAR] === staircase[each + FAR]) return;
      const [low, high] = [from - 0.5, each + 0.5].map((edge) => (edge * side) / LENGTH);
      const share = (staircase[each + FAR] % perSide) / (perSide - 1);
      const here = from <= relative && relative <= each ? "bucket" : "";
      shape(square, `fill ${here} ${each > 0 ? "above" : "below"}`, `M${low},0H${high}l${side},${side}H${low + side}Z`).attr("fill-opacity", 0.95 - 0.85 * share);
      from = each + 1;
    });
    box(drawing, "frame", x, y, side, side);
    pairs(all, [[x, y]], side / LENGTH, LENGTH, `query ${query}, key ${key}, bucket ${bucket}`, { round: true });
    return panel;
  },
};
