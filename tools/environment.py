"""The environment in which notebooks and tests run, in one place.

`native` sets nothing that chooses instructions: every library takes the best that the processor
has, as it does for a reader in Binder or Colab. The stored outputs must come out alike there and
with the oldest instructions that the libraries know: `make test ISA=oldest`.
"""

from __future__ import annotations

import os
import platform
from importlib.util import find_spec
from pathlib import Path

# One thread takes sums in one order; the rest keeps what belongs to one person or computer
# (progress bars, a locale, a time zone, a style of figures) out of the outputs.
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PE_QUIET": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}
# A kernel chooses its inline backend itself; LANGUAGE would choose that of messages. Some hundred
# processes read the sources: they are compiled once, whatever a person has set.
UNSET = ("MPLBACKEND", "LANGUAGE", "PYTHONDONTWRITEBYTECODE")

CHOICE = "PE_ISA"  # the instruction set's name, for the processes that this one starts
HOST_CORE = "PE_HOST_CORETYPE"  # the host's own OPENBLAS_CORETYPE, kept for `native`
CORE = "OPENBLAS_CORETYPE"

INSTRUCTION_SETS: dict[str, dict[str, str]] = {
    "native": {},
    "oldest": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        CORE: "Nehalem",
    },
}
# Whatever a host has set of these is no part of a named setting. OPENBLAS_CORETYPE is left to the
# host under `native`, and OPENBLAS_L2_SIZE always: where they are set, the processor hides what
# OpenBLAS asks it for, and some builds fail without.
CHOOSERS = frozenset(INSTRUCTION_SETS["oldest"]) - {CORE}
CHOOSERS |= {"DNNL_MAX_CPU_ISA", "MKL_DEBUG_CPU_TYPE", "NPY_ENABLE_CPU_FEATURES"}


def instruction_set(name: str) -> dict[str, str]:
    """Return what holds the libraries to an instruction set, by its name.

    Raises:
        SystemExit: if there is none of that name, or this computer cannot run it.
    """
    if name not in INSTRUCTION_SETS:
        names = ", ".join(INSTRUCTION_SETS)
        raise SystemExit(f"no such instruction set: {name!r}. There are: {names}")
    if INSTRUCTION_SETS[name] and platform.machine().lower() not in {"x86_64", "amd64"}:
        raise SystemExit(f"{name!r} is for x86-64; on {platform.machine()} there is native alone")
    return INSTRUCTION_SETS[name]


def settings(name: str | None = None) -> dict[str, str | None]:
    """Return every variable that is set, or unset (None), for an instruction set.

    Args:
        name: a key of INSTRUCTION_SETS; by default that of the process which started this one.
    """
    name = name or os.environ.get(CHOICE) or "native"
    chosen = instruction_set(name)
    host = os.environ.get(HOST_CORE, os.environ.get(CORE, ""))
    matplotlib = find_spec("matplotlib")
    return {
        **dict.fromkeys((*UNSET, *CHOOSERS)),
        **SETTINGS,
        "MATPLOTLIBRC": matplotlib and f"{Path(matplotlib.origin).parent / 'mpl-data'}",
        CHOICE: name,
        HOST_CORE: host,
        CORE: host or None,
        **chosen,
    }


def child(name: str | None = None) -> dict[str, str]:
    """Return the whole environment for a process that is to run with an instruction set."""
    both = {**os.environ, **settings(name)}
    return {variable: value for variable, value in both.items() if value is not None}


def apply(name: str | None = None) -> None:
    """Set the variables for this process and for those that it starts."""
    for variable, value in settings(name).items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value
