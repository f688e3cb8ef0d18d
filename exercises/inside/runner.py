"""What runs inside the sandbox, in the same process as a student's code.

It holds no secret: it executes cells, calls functions with the arguments that the grader sends
one call at a time, and sends back what they return. A submission that takes it over can only
send other answers, and the grader, which is another process, compares those like any others.
"""

import gc
import os
import resource
import sys

REQUESTS, ANSWERS = int(sys.argv[1]), int(sys.argv[2])
USER = int(sys.argv[3])
MEMORY, CPU, FILE_SIZE, PROCESSES = (int(word) for word in sys.argv[4:8])


def drop_rights() -> None:
    """Become an unprivileged user if started as root, and set the limits."""
    if USER < 0:  # trusted: no sandbox and no limits
        return
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the first to go when the computer's memory is short
    if USER:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


drop_rights()
gc.disable()  # importing torch is most of the time of a submission; this saves a tenth of it

import torch  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from traitlets.config import Config  # noqa: E402
from wire import HEADER, decode, encode, frame_length  # noqa: E402


def read_exactly(count: int) -> bytes:
    """Read from the grader; leave when it has gone."""
    data = b""
    while len(data) < count:
        chunk = os.read(REQUESTS, count - len(data))
        if not chunk:
            os._exit(0)
        data += chunk
    return data


def write_all(data: bytes) -> None:
    """Write to the grader."""
    view = memoryview(data)
    while view:
        view = view[os.write(ANSWERS, view) :]


def describe(error: BaseException) -> dict[str, object]:
    """Return what the grader may show of an exception, and where in a cell it came from."""
    line, function, trace = 0, "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "ipython-input" in code.co_filename:
            line, function = trace.tb_lineno, code.co_name[:80]
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = error.lineno or 0
    text = str(error)[:400]
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


def main() -> None:
    """Serve the grader until it closes the pipe."""
    gc.enable()
    torch.set_num_threads(1)
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None
    write_all(encode({"ready": True}))
    while True:
        head = read_exactly(HEADER.size)
        request = decode(head, read_exactly(frame_length(head)))
        if "cell" in request:
            answer = run_cell(shell, request["cell"])
        else:
            answer = call(shell, request["call"], request["args"])
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            frame = encode(answer)
        except Exception as error:  # a value that cannot be sent, or whose parts raise
            frame = encode({"error": describe(error)})
        write_all(frame)


main()
