// Angles from a formula that a reader writes, in m, the place of a token, and j, the number of a pair
// of components. It is parsed here into functions, and nothing else is ever run:
//
//   sum = product {("+" | "-") product}    product = signed {("*" | "/") signed}
//   signed = "-" signed | power            power = atom ["^" signed]
//   atom = number | name | name "(" sum {"," sum} ")" | "(" sum ")"

const { sin, cos, sqrt, log, exp, abs, floor, min, max, PI } = Math;
const FUNCTIONS = { sin, cos, sqrt, log, exp, abs, floor, min, max, mod: (a, b) => a - b * floor(a / b) };
const KNOWN = { m: (m) => m, j: (_, j) => j, pi: () => PI };
const OPERATORS = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b };
const PARTS = /(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[a-z]+|\S/gi;
const ALLOWED = `a number, ${Object.keys(KNOWN).join(", ")}, ${Object.keys(FUNCTIONS).join(", ")} or “(”`;

function fail(at, what) {
  throw new Error(`character ${at}: ${what}`);
}

// The angle as a function of m and j.
function parse(text) {
  const parts = [...text.matchAll(PARTS)].map((match) => ({ word: match[0], at: match.index + 1 }));
  const end = { word: "", at: text.length + 1 };
  let next = 0;
  const here = () => parts[next] ?? end;
  const named = () => (here() === end ? "the end" : `“${here().word}”`);
  const taken = (...words) => words.includes(here().word) && parts[next++].word;
  const ask = (word) => taken(word) || fail(here().at, `“${word}” is expected, not ${named()}`);

  function chain(words, part) {
    let whole = part();
    for (let word = taken(...words); word; word = taken(...words)) {
      const [act, left, right] = [OPERATORS[word], whole, part()];
      whole = (m, j) => act(left(m, j), right(m, j));
    }
    return whole;
  }
  const sum = () => chain(["+", "-"], product);
  const product = () => chain(["*", "/"], signed);
  function signed() {
    if (!taken("-")) return power();
    const of = signed();
    return (m, j) => -of(m, j);
  }
  function power() {
    const base = atom();
    if (!taken("^")) return base;
    const exponent = signed();
    return (m, j) => base(m, j) ** exponent(m, j);
  }
  function atom() {
    const { word, at } = here();
    if (taken("(")) {
      const inner = sum();
      ask(")");
      return inner;
    }
    const act = Object.hasOwn(FUNCTIONS, word) && FUNCTIONS[word];
    if (!act && !Object.hasOwn(KNOWN, word) && !/\d/.test(word)) fail(at, `${ALLOWED} is expected, not ${named()}`);
    next += 1;
    if (!act) return KNOWN[word] ?? (() => Number(word));
    ask("(");
    const given = [sum()];
    while (taken(",")) given.push(sum());
    ask(")");
    if (given.length !== act.length) fail(at, `“${word}” takes ${act.length}, not ${given.length}`);
    return (m, j) => act(...given.map((each) => each(m, j)));
  }

  const whole = sum();
  if (here() !== end) fail(here().at, `an operator is expected, not ${named()}`);
  return whole;
}

// The angles of some pairs at the first places, in radians: [place][pair].
export function angles(text, places, pairs) {
  const angle = parse(text);
  return Array.from({ length: places }, (_, m) => Array.from({ length: pairs }, (__, j) => {
    const value = angle(m, j);
    if (!Number.isFinite(value)) throw new Error(`at m = ${m}, j = ${j} it gives no finite number`);
    return value;
  }));
}
