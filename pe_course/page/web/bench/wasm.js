// The loops in which a training step spends its time, as WebAssembly with vectors of four
// numbers. The module is assembled here, byte by byte, when the page asks for it: an expression is a
// nested array of bytes, and plain JavaScript unrolls what is alike. Addresses are in bytes.

const I32 = 0x7f;
const F32 = 0x7d;
const V128 = 0x7b;

// Numbers as WebAssembly writes them, seven bits at a time.
function leb(value) {
  const bytes = [];
  for (;;) {
    const byte = value & 127;
    value >>= 7;
    if (value === (byte & 64 ? -1 : 0)) return [...bytes, byte];
    bytes.push(byte | 128);
  }
}
const float = (value) => [...new Uint8Array(new Float32Array([value]).buffer)];
const get = (local) => [0x20, leb(local)];
const put = (local, value) => [value, 0x21, leb(local)];
const whole = (value) => [0x41, leb(value)];
const add = (a, b) => [a, b, 0x6a];
const sub = (a, b) => [a, b, 0x6b];
const times = (a, b) => [a, b, 0x6c];
const below = (a, b) => [a, b, 0x48];
const step = (local, by) => put(local, add(get(local), by));
const repeat = (condition, ...body) => [0x03, 0x40, body, condition, 0x0d, 0, 0x0b];
const choose = (condition, yes, no) => [condition, 0x04, 0x40, yes, 0x05, no, 0x0b];

const vector = (code) => (...values) => [values, 0xfd, leb(code)];
const load = (address, offset = 0) => [address, 0xfd, 0, 2, leb(offset)];
const loadSplat = (address) => [address, 0xfd, 9, 2, 0];
const store = (address, value, offset = 0) => [address, value, 0xfd, 11, 2, leb(offset)];
const all = (value) => [0xfd, 12, [0, 1, 2, 3].map(() => float(value))];
const lanes = (...values) => [0xfd, 12, [...new Uint8Array(new Int32Array(values).buffer)]];
const plus = vector(0xe4);
const minus = vector(0xe5);
const mul = vector(0xe6);
const div = vector(0xe7);
const most = vector(0xe9);
const magnitude = vector(0xe0);
const nearest = vector(0x6a);
const truncated = vector(0xf8);
const plusWhole = vector(0xae);
const lessWhole = vector(0x39);
const less = vector(0x43);
const greater = vector(0x44);
const select = vector(0x52); // (yes, no, mask)
const keep = vector(0x4e); // and
const splat = vector(0x13);
const splatWhole = vector(0x11);
const shift = (value, by) => [value, whole(by), 0xfd, leb(0xab)];
const lane = (value, which) => [value, 0xfd, 0x1f, which];
const across = (code, value) => [lane(value, 0), [1, 2, 3].map((which) => [lane(value, which), code])];

const polynomial = (x, coefficients) => coefficients.slice(1).reduce((sum, each) => plus(mul(sum, x), all(each)), all(coefficients[0]));

// e to the power of a local at most 0, into that local: 2 to a whole number times a polynomial.
const exponential = (x, n) => [
  put(x, most(get(x), all(-87))),
  put(n, nearest(mul(get(x), all(Math.LOG2E)))),
  put(x, minus(minus(get(x), mul(get(n), all(0.693359375))), mul(get(n), all(-2.12194440e-4)))),
  put(x, plus(plus(mul(mul(get(x), get(x)), polynomial(get(x), [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5])), get(x)), all(1))),
  put(x, plusWhole(get(x), shift(truncated(get(n)), 23))),
];

const names = (text) => text.split(" ").map((_, i) => i);

// C (m, n) = A B, or C + A B: A by any strides, rows of B and C; four rows and eight columns at once.
function product() {
  const [c, a, b, m, n, k, am, ak, bk, cm, more, j, left, from, to, a0, a1, a2, a3, b0, b1, s] = names("c a b m n k am ak bk cm more j left from to a0 a1 a2 a3 b0 b1 s");
  const rows = [a0, a1, a2, a3];
  const sums = rows.map((_, r) => [s + 1 + 2 * r, s + 2 + 2 * r]);
  const row = (r) => add(get(to), times(whole(r), get(cm)));
  const each = (act) => sums.map((pair, r) => pair.map((sum, half) => act(sum, half, r)));
  return [11, [[8, I32], [11, V128]], repeat(
    below(whole(0), get(m)),
    put(j, whole(0)),
    repeat(
      below(get(j), get(n)),
      put(to, add(get(c), times(whole(4), get(j)))),
      put(from, add(get(b), times(whole(4), get(j)))),
      rows.map((at, r) => put(at, add(get(a), times(whole(r), get(am))))),
      choose(get(more), each((sum, half, r) => put(sum, load(row(r), 16 * half))), each((sum) => put(sum, all(0)))),
      put(left, get(k)),
      repeat(
        get(left),
        put(b0, load(get(from))),
        put(b1, load(get(from), 16)),
        rows.map((at, r) => [
          put(s, loadSplat(get(at))),
          [b0, b1].map((part, half) => put(sums[r][half], plus(get(sums[r][half]), mul(get(s), get(part))))),
          step(at, get(ak)),
        ]),
        step(from, get(bk)),
        step(left, whole(-1)),
      ),
      each((sum, half, r) => store(row(r), get(sum), 16 * half)),
      step(j, whole(8)),
    ),
    step(a, times(whole(4), get(am))),
    step(c, times(whole(4), get(cm))),
    step(m, whole(-4)),
  )];
}

// Rows of scores become attention weights. Row r belongs to the query first + r, which sees the keys
// up to its own position; `bias` is what is added at distance 511, 510, ..., 0.
function softmax() {
  const [s, bias, rows, columns, stride, first, j, at, x, n, top, sum, index] = names("s bias rows columns stride first j at x n top sum index");
  const one = 13;
  const each = (...body) => [put(j, whole(0)), repeat(below(get(j), get(columns)), put(at, add(get(s), times(whole(4), get(j)))), body, step(j, whole(4)))];
  return [6, [[2, I32], [5, V128], [1, F32]], [
    put(bias, add(get(bias), times(whole(4), sub(whole(511), get(first))))),
    repeat(
      get(rows),
      put(top, all(-1e30)),
      put(index, lanes(0, 1, 2, 3)),
      each(
        put(x, plus(load(get(at)), load(add(get(bias), times(whole(4), get(j)))))),
        put(x, select(get(x), all(-1e30), lessWhole(get(index), splatWhole(add(get(first), whole(1)))))),
        store(get(at), get(x)),
        put(top, most(get(top), get(x))),
        put(index, plusWhole(get(index), lanes(4, 4, 4, 4))),
      ),
      put(top, splat(across(0x97, get(top)))),
      put(sum, all(0)),
      each(
        put(x, minus(load(get(at)), get(top))),
        put(index, greater(get(x), all(-80))), // below, it would be slow and too small to matter
        exponential(x, n),
        put(x, keep(get(x), get(index))),
        store(get(at), get(x)),
        put(sum, plus(get(sum), get(x))),
      ),
      put(one, [[0x43, float(1)], across(0x92, get(sum)), 0x95]),
      each(store(get(at), mul(load(get(at)), splat(get(one))))),
      step(s, get(stride)),
      step(bias, whole(-4)),
      step(first, whole(1)),
      step(rows, whole(-1)),
    ),
  ]];
}

// From gradients of attention weights, in place, those of the scores.
function softmaxBack() {
  const [p, ds, rows, columns, j, sum, along] = names("p ds rows columns j sum along");
  const each = (...body) => [put(j, times(whole(4), get(columns))), repeat(get(j), step(j, whole(-16)), body)];
  const [weight, given] = [p, ds].map((base) => add(get(base), get(j)));
  return [4, [[1, I32], [2, V128]], repeat(
    get(rows),
    put(sum, all(0)),
    each(put(sum, plus(get(sum), mul(load(weight), load(given))))),
    put(along, splat(across(0x92, get(sum)))),
    each(store(given, mul(load(weight), minus(load(given), get(along))))),
    [p, ds].map((base) => step(base, times(whole(4), get(columns)))),
    step(rows, whole(-1)),
  )];
}

// y = x F(x) and its slope, F the normal distribution, by Abramowitz and Stegun 7.1.26.
const TAIL = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
const BEND = 0.3275911;
function gelu() {
  const [from, to, slope, count, x, e, n, t, share] = names("from to slope count x e n t share");
  return [4, [[5, V128]], repeat(
    get(count),
    put(x, load(get(from))),
    put(e, mul(mul(get(x), get(x)), all(-0.5))),
    exponential(e, n),
    put(t, div(all(1), plus(all(1), mul(magnitude(get(x)), all(BEND * Math.SQRT1_2))))),
    put(share, mul(mul(mul(all(0.5), get(t)), polynomial(get(t), TAIL)), get(e))),
    put(share, select(get(share), minus(all(1), get(share)), less(get(x), all(0)))),
    store(get(to), mul(get(x), get(share))),
    store(get(slope), plus(get(share), mul(mul(get(x), get(e)), all(1 / Math.sqrt(2 * Math.PI))))),
    [from, to, slope].map((each) => step(each, whole(16))),
    step(count, whole(-4)),
  )];
}

const KERNELS = { product: product(), softmax: softmax(), softmaxBack: softmaxBack(), gelu: gelu() };

export function bytes() {
  const text = (words) => [words.length, [...words].map((letter) => letter.charCodeAt(0))];
  const list = (parts) => [leb(parts.length), parts];
  const section = (code, parts) => {
    const body = list(parts).flat(Infinity);
    return [code, leb(body.length), body];
  };
  const functions = Object.values(KERNELS);
  const bodies = functions.map(([, locals, body]) => {
    const code = [list(locals.map(([count, kind]) => [leb(count), kind])), body, 0x0b].flat(Infinity);
    return [leb(code.length), code];
  });
  return new Uint8Array([
    [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    section(1, functions.map(([inputs]) => [0x60, inputs, Array(inputs).fill(I32), 0])),
    section(2, [[text("room"), text("memory"), 2, 0, 1]]),
    section(3, functions.map((_, i) => i)),
    section(7, Object.keys(KERNELS).map((name, i) => [text(name), 0, i])),
    section(10, bodies),
  ].flat(Infinity));
}
