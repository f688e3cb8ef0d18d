"""A stand-in for grading that kills its process, in a module of its own that starts quickly."""

from __future__ import annotations

import os
import signal

from exercises.grade_course import Outcome
from exercises.grade_submission import Job


def kill_for_eve(job: Job) -> Outcome:
    """Take the process along with eve's submission."""
    if job.student == "eve":
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome(None, "", "", f"graded {job.student}")
