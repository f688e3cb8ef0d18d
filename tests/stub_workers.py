"""Stand-ins for grading one submission, in a module of its own that starts quickly.

python tests/stub_workers.py COURSE STUDENT    grade a course, and get stuck at STUDENT
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from exercises import grade_course
from exercises.grade_course import Outcome, in_pool
from exercises.jobs import Graded, Job, Limits

STUCK = "STUCK_AT"  # in the environment of the workers: the student whose code never ends


def kill_for_eve(job: Job) -> Outcome:
    """Take the process along with eve's submission."""
    if job.student == "eve":
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(None, "", "", f"graded {job.student}")


def get_stuck(job: Job) -> Outcome:
    """Return a grade without verdicts at once; for one student, wait in an open sandbox."""
    if job.student == os.environ.get(STUCK):
        from exercises.sandbox import Session  # and PyTorch with it

        with Session(Limits()) as session:
            Path(os.environ["HERE"], "stuck").touch()
            session.ask({"cell": "while True: pass"}, 60)
    return Outcome(Graded(job.student, job.set_name, [], [], {}, time.monotonic()), "", "")


def main() -> int:
    """Grade a course with the stand-in."""
    # A shell starts what runs in its background deaf to Ctrl-C, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    course, os.environ[STUCK] = sys.argv[1:]
    os.environ["HERE"] = course
    grade_course.in_pool = partial(in_pool, work=get_stuck, modules=())
    grade_course.fill_gradebook = lambda *_: None  # nbgrader's database takes seconds
    return grade_course.main([course, "--workers", "1"])


if __name__ == "__main__":
    from stub_workers import main  # so that workers find what they are given by name

    sys.exit(main())
