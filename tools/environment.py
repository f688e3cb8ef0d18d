"""The environment in which notebooks and tests run, in one place.

`native` sets nothing that chooses instructions: every library takes the best that the processor
has, as it does for a reader in Binder or Colab. The stored outputs must come out alike there and
under every other name, so each can be tried: `make test ISA=oldest`.

Two libraries listen to some processors only. MKL obeys MKL_CBWR=AVX2 or AVX512 and
MKL_ENABLE_INSTRUCTIONS on Intel's; on others it chooses by itself, and only MKL_CBWR=COMPATIBLE
holds everywhere. So `avx2` on two makes of processor is not the same sums, and no printed number
may need it to be.

Variables are read when torch or numpy is imported: apply them before.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
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
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class InstructionSet:
    """What holds the libraries to some instructions, and the processor's flags that it needs."""

    variables: dict[str, str]
    flags: frozenset[str] = frozenset()


AVX2_FLAGS = frozenset({"avx2", "bmi2", "f16c", "fma"})
AVX512_FLAGS = AVX2_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
INSTRUCTION_SETS = {
    "native": InstructionSet({}),
    "avx512": InstructionSet(
        {
            "ATEN_CPU_CAPABILITY": "avx512",
            "MKL_CBWR": "AVX512",
            "MKL_ENABLE_INSTRUCTIONS": "AVX512",
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
            "NPY_DISABLE_CPU_FEATURES": "AVX512_ICL AVX512_SPR",
            CORE: "SkylakeX",
        },
        AVX512_FLAGS,
    ),
    "avx2": InstructionSet(
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_CBWR": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
            CORE: "Haswell",
        },
        AVX2_FLAGS,
    ),
    "oldest": InstructionSet(
        {
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_CBWR": "COMPATIBLE",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
            CORE: "Nehalem",
        }
    ),
}
# Whatever a host has set of these is no part of a named setting. OPENBLAS_CORETYPE is left to the
# host under `native`, and OPENBLAS_L2_SIZE always: where they are set, the processor hides what
# OpenBLAS asks it for, and some builds fail without.
CHOOSERS = frozenset(
    {name for each in INSTRUCTION_SETS.values() for name in each.variables}
    | {"DNNL_MAX_CPU_ISA", "MKL_DEBUG_CPU_TYPE", "NPY_ENABLE_CPU_FEATURES"}
) - {CORE}


def processor() -> dict[str, str]:
    """Return the make, the model and the flags of the processor; empty where they are not told."""
    try:
        first = CPU_INFO.read_text(encoding="utf-8").split("\n\n")[0]
    except OSError:
        return {}
    fields = (line.partition(":")[::2] for line in first.splitlines())
    told = {name.strip(): value.strip() for name, value in fields}
    return {name: told[name] for name in ("vendor_id", "model name", "flags") if name in told}


def instruction_set(name: str) -> InstructionSet:
    """Return an instruction set by its name.

    Raises:
        SystemExit: if there is none of that name, or this computer cannot run it.
    """
    names = ", ".join(INSTRUCTION_SETS)
    if name not in INSTRUCTION_SETS:
        raise SystemExit(f"no such instruction set: {name!r}. There are: {names}")
    chosen = INSTRUCTION_SETS[name]
    if not chosen.variables:
        return chosen
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        raise SystemExit(f"{name!r} is for x86-64; on {platform.machine()} there is native alone")
    missing = sorted(chosen.flags - set(processor().get("flags", "").split()))
    if missing:
        raise SystemExit(f"{name!r} needs {', '.join(missing)}, which {CPU_INFO} does not show")
    return chosen


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
        **chosen.variables,
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
