// The arithmetic of every figure, and nothing else: numbers in, numbers out. The tests hold each
// function against pe_lib, of whose functions it has the names and the signs (key minus query).

export const { abs, atan2, cos, exp, floor, hypot, log, max, min, PI, round, sin, sqrt } = Math;
export const range = (n, from = 0) => Array.from({ length: n }, (_, i) => from + i);
export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const dot = (a, b) => sum(a.map((value, i) => value * b[i]));

export function softmax(logits) {
  const top = max(...logits);
  const powers = logits.map((each) => exp(each - top));
  const total = sum(powers);
  return powers.map((each) => each / total);
}

export const times = (matrix, vector) => matrix.map((row) => dot(row, vector));
export const plus = (a, b) => a.map((part, i) => part + b[i]);

// Attention ----------------------------------------------------------------------------------

// One head without positions: the outputs and the weights, a row for each query. The matrices
// have a row for each component of the queries, keys and values that they make.
export function attention(x, q, k, v, causal) {
  const [queries, keys, values] = [q, k, v].map((matrix) => x.map((token) => times(matrix, token)));
  const hidden = (i, j) => causal && j > i;
  const weights = queries.map((query, i) =>
    softmax(keys.map((key, j) => (hidden(i, j) ? -Infinity : dot(query, key) / sqrt(q.length)))),
  );
  const outputs = weights.map((row) => v.map((_, c) => dot(row, values.map((value) => value[c]))));
  return [outputs, weights];
}

// The scores of contents x and position codes p, before they are added up: content with content,
// content with position, position with content, position with position. Matrices D by d.
export function fourTerms(x, p, q, k) {
  const by = (rows, matrix) => rows.map((row) => matrix[0].map((_, c) => dot(row, matrix.map((line) => line[c]))));
  return [x, p].flatMap((asks) => [x, p].map((answers) => by(asks, q).map((query) => by(answers, k).map((key) => dot(query, key)))));
}

// Sinusoids and RoPE ------------------------------------------------------------------------

// Radians per position of each pair: base ** (-2r / d).
export const frequencies = (d, base) => range(d / 2).map((r) => base ** ((-2 * r) / d));

// Sine and cosine of each pair in turn.
export const sinusoidal = (position, d, base) =>
  frequencies(d, base).flatMap((rate) => [sin(position * rate), cos(position * rate)]);

export const rotate = ([a, b], angle) => [
  a * cos(angle) - b * sin(angle),
  a * sin(angle) + b * cos(angle),
];

// Pairs [[a, b], ...] at a position, each rotated by its own rate.
export const rope = (pairs, position, rates) =>
  pairs.map((pair, r) => rotate(pair, position * rates[r]));

// The score of a query at m and a key at n: both are rotated, then multiplied.
export const ropeScore = (q, k, m, n, rates) =>
  dot(rope(q, m, rates).flat(), rope(k, n, rates).flat());

// Positions of several numbers ----------------------------------------------------------------

// Parts are counts of text tokens, or [frames, rows, columns]; three numbers for each token.
export function textImagePositions(parts) {
  let start = 0;
  return parts.flatMap((part) => {
    const [t, h, w] = Array.isArray(part) ? part : [part, 1, 1];
    const local = range(t * h * w).map((i) => [floor(i / (h * w)), floor(i / w) % h, i % w]);
    const from = start;
    start += max(t, h, w);
    return local.map((token) => (Array.isArray(part) ? token : token.map(() => token[0])).map((each) => from + each));
  });
}

// Directions: for each pair, the radians per step along each axis. Axes that share a list of
// rates, one section after the other; axes with rates of their own; directions all around.
export function sectionDirections(rates, sections) {
  const axis = sections.flatMap((count, a) => range(count).map(() => a));
  return rates.map((rate, r) => sections.map((_, a) => (a === axis[r] ? rate : 0)));
}
export const widthDirections = (widths, base) =>
  sectionDirections(widths.flatMap((width) => frequencies(width, base)), widths.map((width) => width / 2));
export const goldenDirections = (rates) =>
  rates.map((rate, r) => [sin, cos].map((part) => rate * part((r * PI * (sqrt(5) - 1)) / 2)));

// The mean over the pairs of the cosine that is left between one token and each, if its query looks
// for keys at the wished difference.
export const axesScores = (tokens, directions, chosen, wish) =>
  tokens.map((token) => {
    const apart = token.map((each, a) => each - tokens[chosen][a] - wish[a]);
    return sum(directions.map((direction) => cos(dot(direction, apart)))) / directions.length;
  });

// Tables by distance ------------------------------------------------------------------------

// The row of Shaw's table: distances are cut off at the clip.
export const clippedRow = (relative, clip) => min(clip, max(-clip, relative)) + clip;

// T5's bucket. The logarithm is taken in 32 bits, on which trained tables rely at the edges.
export function t5Bucket(relative, buckets, most, bidirectional) {
  const perSide = bidirectional ? buckets / 2 : buckets;
  const exact = floor(perSide / 2);
  const distance = min(most, bidirectional ? abs(relative) : max(0, -relative));
  const f = Math.fround;
  const share = f(f(log(f(max(distance, exact) / exact))) / f(log(most / exact)));
  const far = min(perSide - 1, exact + Math.trunc(f(share * (perSide - exact))));
  return (distance < exact ? distance : far) + (bidirectional && relative > 0 ? perSide : 0);
}

// DeBERTa's row, of 2 * span.
export const disentangledRow = (relative, span) => min(2 * span - 1, max(0, span - relative));

// Penalties ---------------------------------------------------------------------------------

export function alibiSlopes(heads) {
  const n = 2 ** floor(Math.log2(heads));
  const steps = [...range(n, 1), ...range(heads - n, 1).map((h) => h - 0.5)];
  return steps.map((step) => 2 ** ((-8 * step) / n));
}
export const alibi = (relative, slope) => -slope * abs(relative);
export const kerpleLog = (relative, r1, r2) => -r1 * Math.log1p(r2 * abs(relative));
export const kerplePower = (relative, r1, r2) => (relative === 0 ? 0 : -r1 * abs(relative) ** r2);
// What FIRE's network reads: the distance over that to the start of the text, both bent.
export const fireRatio = (query, key, c, threshold) =>
  Math.log1p(c * abs(key - query)) / (Math.log1p(c * max(query, threshold)) + 1e-6);

// Rules that stretch a context ---------------------------------------------------------------

export const positionInterpolation = (rates, factor) => rates.map((rate) => rate / factor);
export const ntkAware = (rates, factor) => rates.map((rate, r) => rate * factor ** (-r / (rates.length - 1)));
export const dynamicNtk = (rates, factor, trained, length) =>
  length <= trained ? rates : ntkAware(rates, (factor * length) / trained - (factor - 1));

export const byParts = (rates, factor, trained, low, high) =>
  rates.map((rate) => {
    const kept = min(1, max(0, ((rate * trained) / (2 * PI) - low) / (high - low)));
    return rate / factor + kept * (rate - rate / factor);
  });
export const llama3 = (rates, factor, trained) => byParts(rates, factor, trained, 1, 4);

export function yarn(rates, factor, trained, slow = 1, fast = 32, truncate = true) {
  const step = log(rates[0] / rates[1]);
  const pair = (turns) => log((rates[0] * trained) / (2 * PI) / turns) / step;
  const [early, late] = truncate ? [floor(pair(fast)), Math.ceil(pair(slow))] : [pair(fast), pair(slow)];
  const [first, last] = [max(0, early), min(2 * rates.length - 1, late)];
  return rates.map((rate, r) => {
    const slowed = min(1, max(0, (r - first) / max(last - first, 0.001)));
    return rate + slowed * (rate / factor - rate);
  });
}

// Whole rows of scores -----------------------------------------------------------------------

// One head that reads token vectors as they are: queries and keys are the vectors. What a method
// has to learn is in `learned`. Returns the scores of all pairs, rows for queries.
export function scoresOf(method, vectors, learned) {
  const d = vectors[0].length;
  const places = range(vectors.length);
  const added = {
    sinusoidal: (x, p) => sinusoidal(p, d, 10000).map((part, i) => part + x[i]),
    learned: (x, p) => learned.table[p].map((part, i) => part + x[i]),
  }[method];
  const x = added ? vectors.map(added) : vectors;
  const scale = method === "t5" ? 1 : 1 / sqrt(d);
  const rates = frequencies(d, 10000);
  const pairs = (vector) => rates.map((_, r) => [vector[2 * r], vector[2 * r + 1]]);
  const from = {
    rope: (q, k, i, j) => ropeScore(pairs(q), pairs(k), i, j, rates),
    shaw: (q, k, i, j) => dot(q, plus(k, learned.shaw[clippedRow(j - i, (learned.shaw.length - 1) / 2)])),
    transformer_xl: (q, k, i, j) => {
      const waves = rates.map((rate) => (i - j) * rate);
      const code = [...waves.map(sin), ...waves.map(cos)];
      return dot(plus(q, learned.u), k) + dot(plus(q, learned.v), times(learned.r, code));
    },
    deberta: (q, k, i, j) => {
      const row = learned.rows[disentangledRow(j - i, learned.rows.length / 2)];
      const terms = dot(q, k) + dot(q, times(learned.keys, row)) + dot(k, times(learned.queries, row));
      return terms / sqrt(3);
    },
  }[method];
  const bias = {
    alibi: (relative) => alibi(relative, learned.slope),
    t5: (relative) => learned.t5[t5Bucket(relative, learned.t5.length, 16, true)],
  }[method];
  return places.map((i) =>
    places.map((j) => (from ? from(x[i], x[j], i, j) : dot(x[i], x[j])) * scale + (bias ? bias(j - i) : 0)),
  );
}

// Which methods a model's needs leave over: `choose` of choosing.py, from the same facts. A
// reason is [kind, worst seed or count, multiple, what was measured].
export function choose({ bars, keep: all, order, asked, facts }, state) {
  const { what, keep, trained, context, cache, d } = state;
  const multiple = max(1, context / trained);
  const further = state.tuned && multiple > 1;
  const part = (share) => max(16, floor(trained / share));
  const basis = [1, 768 / d, trained, part(2), part(4) * d, part(2) * d, d];
  const low = (task) => bars[task] < 0.5; // a loss is good low, a share high
  const rows = order[what].filter((key) =>
    (context > trained ? key !== "learned" : !key.includes("+")) && !(facts[key].rolling && cache === "rolling")
    && (!state.finished || /^rope\b/.test(key)));
  const atLength = ([of, values]) => {
    const [task, , , after] = of;
    const clears = ([worst]) => (low(task) ? worst < bars[task] : worst > bars[task]);
    const longer = values.find(([, at]) => at >= multiple);
    if (longer && clears(longer)) return ["fits", ...longer, of];
    const nearest = values.findLast(([, at]) => at <= multiple) ?? longer;
    const failed = nearest[1] <= multiple && !clears(nearest) && (nearest[1] === multiple || !after);
    return [failed ? task : "beyond", ...nearest, of];
  };
  const evidence = ({ rolling, measured }, task) => {
    const keys = rolling || cache === "rolling" ? "rolling" : "all";
    const found = measured
      .filter(([[name, model, held, after]]) => name === task && model === what && held === keys && (further || !after)).map(atLength);
    const open = what === "times" ? what : what === "text" && keys === "rolling" ? keys : "unmeasured";
    return found.find(([kind]) => kind === "fits") ?? found[0] ?? [open];
  };
  const found = rows.map((key) => {
    const known = facts[key];
    const seen = (keep === "all" ? all : [keep]).map((task) => evidence(known, task));
    const count = dot(known.parameters, basis);
    const said = known.cannot.filter(([kind]) => asked[kind][1].includes(state[asked[kind][0]]));
    if (count > state.parameters) said.push(["parameters", count]);
    const query = ([kind]) => kind === "query";
    const failed = seen.filter(([kind]) => all.includes(kind));
    const against = [...(further ? [] : failed), ...said.filter((each) => !query(each))];
    const open = seen.filter(([kind]) => kind !== "fits").reverse().map((each) => [each[0], each]);
    const unsure = [...Object.values(Object.fromEntries(open)), ...said.filter(query)];
    const [status, reasons] = against.length ? [2, against] : [unsure.length && 1, unsure];
    const worst = seen[0][3] ? seen[0][1] : null;
    return { key, status, worst, reasons, rank: [status, status === 1 ? failed.length : 0, worst === null ? 9 : low(keep) ? worst : -worst] };
  });
  return found.sort((a, b) => a.rank.map((each, i) => each - b.rank[i]).find((each) => each) ?? 0);
}
