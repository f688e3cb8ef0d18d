"""Print what each line of a file gives in torch, or in the page's torch, whose folder follows."""

import json
import math
import sys
from pathlib import Path

SETUP = """
v = torch.tensor([3.0, 1.0, 2.0, 1.5], dtype=torch.float64)
w = torch.tensor([0.5, 2.0, -1.0, 1.5], dtype=torch.float64)
u = torch.tensor([0.3, 1.7], dtype=torch.float64)
s = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
x = torch.tensor([[1.5, 2, 0.5, 7], [4, 3, 6, 1], [9, 2.5, 8, 5]], dtype=torch.float64)
y = torch.tensor([[0.5, 1, 2, -1], [4, -3, 1, 1.5], [2, 2.5, 7, 3]], dtype=torch.float64)
p = torch.tensor([[1.5, 2], [4, 3]], dtype=torch.float64)
m = torch.tensor([[2.0, 1, 0], [1, 3, 1], [0.5, 1, 4]], dtype=torch.float64)
i = torch.tensor([2, 0, 1])
b = x > 2.5
t = (torch.arange(24, dtype=torch.float64).reshape(2, 3, 4) * 1.7).sin()
h = (torch.arange(48, dtype=torch.float64).reshape(2, 2, 3, 4) * 0.7).cos()
"""


def plain(found, torch):
    """Return a value as JSON has it: of a tensor its type, its shape and its numbers."""
    if isinstance(found, torch.Tensor):
        return [str(found.dtype), list(found.shape), plain(found.flatten().tolist(), torch)]
    if isinstance(found, list | tuple):
        return [plain(each, torch) for each in found]
    if isinstance(found, complex):
        return [found.real, found.imag]
    return found if isinstance(found, bool | int | float | str) else str(found)


def main(lines, *folder):
    sys.path[:0] = folder
    if folder:
        import runner  # noqa: F401  (it tells the page's torch what torch has)
    import torch

    for line in Path(lines).read_text(encoding="utf-8").splitlines():
        space = {"torch": torch, "math": math, "F": torch.nn.functional}
        exec(SETUP, space)
        *before, last = line.split("; ")
        try:
            exec("\n".join(before), space)
            said = plain(eval(last, space), torch)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
