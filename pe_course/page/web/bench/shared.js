// What the page and the trainer beside it both know.

export const SIZES = { D: 32, H: 4, d: 8, F: 128, layers: 2, N: 1024, longest: 512, trained: 32, batch: 32 };
export const MULTIPLES = [1, 2, 4, 8, 16]; // of the training length, at which the model is asked
export const EVERY = 25; // steps between two measurements
export const RATE = 3e-3; // of learning

// Where the curve is drawn; between two of them it is a straight line.
export const MARKS = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32];

// The drawn curve at a distance. Behind the last mark it stays, or goes on as between the last two.
export function drawn({ curve, beyond }, distance) {
  const last = MARKS.length - 1;
  if (distance > MARKS[last] && beyond === "stays") return curve[last];
  const after = MARKS.findIndex((mark) => mark > distance);
  const right = after < 0 ? last : after;
  const share = (distance - MARKS[right - 1]) / (MARKS[right] - MARKS[right - 1]);
  return curve[right - 1] + share * (curve[right] - curve[right - 1]);
}

// Whether this browser lacks WebAssembly or its vectors: the module makes one of them.
export const lacksVectors = () => !globalThis.WebAssembly?.validate(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11));
