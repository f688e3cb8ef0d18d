// The loops of wasm.js in plain JavaScript, where a browser lacks WebAssembly or its vectors:
// several times as slow. Addresses and steps between rows are in bytes, as there.

const TAIL = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];

export const plain = (f) => ({
  product(c, a, b, m, n, k, am, ak, bk, cm, more) {
    for (let i = 0; i < (cm ? m : 1); i += 1) { // rows that lie in one place are one row
      const to = (c + i * cm) / 4;
      if (!more) f.fill(0, to, to + n);
      for (let p = 0; p < k; p += 1) {
        const [share, row] = [f[(a + i * am + p * ak) / 4], (b + p * bk) / 4];
        for (let j = 0; j < n; j += 1) f[to + j] += share * f[row + j];
      }
    }
  },
  softmax(s, bias, rows, columns, stride, first) {
    for (let i = 0; i < rows; i += 1) {
      const [at, added, last] = [(s + i * stride) / 4, bias / 4 + 511 - first - i, first + i];
      let [top, sum] = [-1e30, 0];
      for (let j = 0; j <= last; j += 1) top = Math.max(top, (f[at + j] += f[added + j]));
      for (let j = 0; j < columns; j += 1) sum += f[at + j] = j <= last && f[at + j] - top > -80 ? Math.exp(f[at + j] - top) : 0;
      for (let j = 0; j < columns; j += 1) f[at + j] /= sum;
    }
  },
  softmaxBack(p, ds, rows, columns) {
    for (let i = 0; i < rows; i += 1) {
      const [weights, given] = [p / 4 + i * columns, ds / 4 + i * columns];
      let sum = 0;
      for (let j = 0; j < columns; j += 1) sum += f[weights + j] * f[given + j];
      for (let j = 0; j < columns; j += 1) f[given + j] = f[weights + j] * (f[given + j] - sum);
    }
  },
  gelu(from, to, slope, count) {
    for (let i = 0; i < count; i += 1) {
      const x = f[from / 4 + i];
      const e = Math.exp(-x * x / 2);
      const t = 1 / (1 + 0.3275911 * Math.SQRT1_2 * Math.abs(x));
      const tail = (t / 2) * TAIL.reduce((sum, each) => sum * t + each) * e;
      const share = x < 0 ? tail : 1 - tail;
      f[to / 4 + i] = x * share;
      f[slope / 4 + i] = share + (x * e) / Math.sqrt(2 * Math.PI);
    }
  },
});
