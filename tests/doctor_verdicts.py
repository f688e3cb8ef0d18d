"""The doctor's findings on the planted bugs, as book/data/doctor_bugs.csv keeps them for the page.

`python tests/doctor_verdicts.py` writes the table; test_doctor.py compares each of its rows.
"""

from __future__ import annotations

import csv

from posdoctor.bugs import BUGS, verdicts
from tools.doctor_page import PLANTED


def main() -> None:
    """Examine every planted bug and write the table."""
    rows = [(bug.name, "; ".join(verdicts(bug))) for bug in BUGS]
    with PLANTED.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("bug", "findings"), *rows])
    print(f"{len(rows)} rows in {PLANTED.name}")


if __name__ == "__main__":
    main()
