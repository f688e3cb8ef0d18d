// Angles from a formula that a reader writes, in m, the place of a token, and j, the number of a pair
// of components. It is parsed here into functions, and nothing else is ever run:
//
//   sum = product {("+" | "-") product}    product = signed {("*" | "/") signed | power}
//   signed = "-" signed | power            power = atom ["^" signed | "²" | "³"]
//   atom = number | name | name "(" sum {"," sum} ")" | "(" sum ")"
//
// The sign of a product may be left out before a name or a bracket: 2m, m(m + 1). Behind "/" and "^"
// that is refused, since people read 1/2m in two ways.

const { sin, cos, sqrt, log, exp, abs, floor, min, max, PI } = Math;
const FUNCTIONS = { sin, cos, sqrt, "√": sqrt, log, exp, abs, floor, min, max, mod: (a, b) => a - b * floor(a / b) };
const KNOWN = { m: (m) => m, j: (_, j) => j, pi: () => PI, "π": () => PI };
const OPERATORS = { "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b };
const PARTS = /(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[a-z]+|\*\*|\S/gi;
const SAME = { "−": "-", "·": "*", "⋅": "*", "×": "*", "÷": "/", "**": "^" };
const POWERS = { "²": 2, "³": 3 };
const ALLOWED = `a number, ${Object.keys(KNOWN).join(", ")}, ${Object.keys(FUNCTIONS).join(", ")} or “(”`;

function fail(at, what) {
  throw new Error(`character ${at}: ${what}`);
}

// The angle as a function of m and j.
function parse(text) {
  const parts = [...text.matchAll(PARTS)].map(({ 0: said, index }) => ({ said, word: SAME[said] ?? said, at: index + 1 }));
  const end = { word: "", at: text.length + 1 };
  let next = 0;
  let open = ""; // the sign before what was read last, if the next factor could belong to that
  const here = () => parts[next] ?? end;
  const named = () => (here() === end ? "the end" : `“${here().said}”`);
  const taken = (...words) => words.includes(here().word) && parts[next++].word;
  const ask = (word) => taken(word) || fail(here().at, `“${word}” is expected, not ${named()}`);

  const both = (act, left, right) => (m, j) => act(left(m, j), right(m, j));
  function sum() {
    let whole = product();
    for (let word = taken("+", "-"); word; word = taken("+", "-")) whole = both(OPERATORS[word], whole, product());
    return whole;
  }
  function product() {
    let whole = signed();
    for (;;) {
      const word = taken("*", "/");
      if (!word && !/^[a-z√π(]/i.test(here().word)) return whole;
      if (!word && open) fail(here().at, `write “*” or brackets here: behind “${open}” this can be read in two ways`);
      whole = both(OPERATORS[word || "*"], whole, word ? signed() : power());
      if (word === "/") open = word;
    }
  }
  function signed() {
    if (!taken("-")) return power();
    const of = signed();
    return (m, j) => -of(m, j);
  }
  function power() {
    const base = atom();
    const small = POWERS[taken(...Object.keys(POWERS))];
    const exponent = small ? () => small : taken("^") && signed();
    open = exponent && !small ? "^" : "";
    return exponent ? (m, j) => base(m, j) ** exponent(m, j) : base;
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
