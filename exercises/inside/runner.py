"""What serves the grader in the same process as a student's code.

It holds no secret: it executes cells, calls functions with the arguments that the grader sends
one call at a time, and sends back what they return. A submission that takes it over can only
send other answers, and the grader, which is another process, compares those like any others.
"""

import os
import random
import sys

import numpy as np
import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from wire import HEADER, decode, encode, frame_length


def read_exactly(requests: int, count: int) -> bytes:
    """Read from the grader; leave when it has gone."""
    data = b""
    while len(data) < count:
        chunk = os.read(requests, count - len(data))
        if not chunk:
            os._exit(0)
        data += chunk
    return data


def write_all(answers: int, data: bytes) -> None:
    """Write to the grader."""
    view = memoryview(data)
    while view:
        view = view[os.write(answers, view) :]


def describe(error: BaseException) -> dict[str, object]:
    """Return what the grader may show of an exception, and where in a cell it came from."""
    line, function, trace = 0, "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "ipython-input" in code.co_filename:
            line, function = trace.tb_lineno, code.co_name[:80]
        trace = trace.tb_next
    text = str(error)[:400]
    if isinstance(error, SyntaxError):  # whose own words end with a file and the line
        line, text = error.lineno or 0, str(error.msg)[:400]
    return {"type": type(error).__name__[:80], "text": text, "line": line, "function": function}


def run_cell(shell: InteractiveShell, source: str) -> dict[str, object]:
    """Execute one cell as a notebook does."""
    result = shell.run_cell(source, store_history=False)
    error = result.error_before_exec or result.error_in_exec
    return {} if error is None else {"error": describe(error)}


def call(shell: InteractiveShell, name: str, args: tuple[object, ...]) -> dict[str, object]:
    """Call a student's function; send its arguments back too, to see if they were changed."""
    if name not in shell.user_ns:
        return {"missing": name}
    try:
        result = shell.user_ns[name](*args)
    except BaseException as error:  # also SystemExit and KeyboardInterrupt
        return {"error": describe(error)}
    return {"result": result, "args": args}


def make_shell() -> InteractiveShell:
    """Return IPython's shell, which keeps no history and shows no traceback."""
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None
    # What follows `%matplotlib inline` in its cell is to run; nobody looks at the plots.
    shell.enable_gui = lambda gui=None: None
    shell.enable_matplotlib = shell.enable_pylab = lambda gui=None, **_: (gui, "agg")
    return shell


def as_it_stands(function: object = None, **_: object) -> object:
    """Stand in for torch.compile, which would want a compiler and headers: change nothing."""
    return as_it_stands if function is None else function


def serve(requests: int, answers: int) -> None:
    """Serve the grader until it closes the pipe."""
    torch.set_num_threads(1)
    random.seed(0)  # the same draws for every student, whoever was graded before
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    torch.compile = as_it_stands
    shell = make_shell()
    write_all(answers, encode({"pid": os.getpid()}))
    while True:
        head = read_exactly(requests, HEADER.size)
        request = decode(head, read_exactly(requests, frame_length(head)))
        if "cell" in request:
            answer = run_cell(shell, request["cell"])
        else:
            answer = call(shell, request["call"], request["args"])
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            frame = encode(answer)
        except Exception:  # a value that is too large, or whose parts raise
            frame = encode({"unsent": True})
        write_all(answers, frame)
