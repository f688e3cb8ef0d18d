// What wasm.js does, in plain JavaScript, for browsers without WebAssembly's vectors.

import { BEND, TAIL } from "./wasm.js";

export function plain(memory) {
  const f = new Float32Array(memory);

  function product(c, a, b, m, n, k, am, ak, bk, cm, more) {
    for (let i = 0; i < (cm ? m : 1); i += 1) { // rows that lie at one place are one row
      const to = (c + i * cm) >> 2;
      if (!more) f.fill(0, to, to + n);
      for (let p = 0; p < k; p += 1) {
        const s = f[(a + i * am + p * ak) >> 2];
        const from = (b + p * bk) >> 2;
        for (let j = 0; j < n; j += 1) f[to + j] += s * f[from + j];
      }
    }
  }

  function softmax(s, bias, rows, columns, stride, first) {
    for (let r = 0; r < rows; r += 1) {
      const row = (s + r * stride) >> 2;
      const seen = first + r + 1;
      const own = (bias >> 2) + 512 - seen;
      let top = -1e30;
      let sum = 0;
      for (let j = 0; j < seen; j += 1) top = Math.max(top, (f[row + j] += f[own + j]));
      for (let j = 0; j < seen; j += 1) sum += f[row + j] = f[row + j] - top > -80 ? Math.exp(f[row + j] - top) : 0;
      for (let j = 0; j < seen; j += 1) f[row + j] /= sum;
      f.fill(0, row + seen, row + columns);
    }
  }

  function softmaxBack(p, ds, rows, columns) {
    for (let r = 0; r < rows; r += 1) {
      const weight = (p >> 2) + r * columns;
      const given = (ds >> 2) + r * columns;
      let along = 0;
      for (let j = 0; j < columns; j += 1) along += f[weight + j] * f[given + j];
      for (let j = 0; j < columns; j += 1) f[given + j] = f[weight + j] * (f[given + j] - along);
    }
  }

  function gelu(from, to, slope, count) {
    for (let i = 0; i < count; i += 1) {
      const x = f[(from >> 2) + i];
      const e = Math.exp(-0.5 * x * x);
      const t = 1 / (1 + Math.abs(x) * BEND * Math.SQRT1_2);
      const tail = 0.5 * t * TAIL.reduce((sum, each) => sum * t + each) * e;
      const share = x < 0 ? tail : 1 - tail;
      f[(to >> 2) + i] = x * share;
      f[(slope >> 2) + i] = share + (x * e) / Math.sqrt(2 * Math.PI);
    }
  }

  return { product, softmax, softmaxBack, gelu };
}
