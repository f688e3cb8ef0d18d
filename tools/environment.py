"""The environment in which notebooks and tests run, in one place.

Trained numbers agree between computers only where the same kernels do the sums: on x86-64 every
library is held to AVX2, and each process gets one thread, so that sums are taken in one order.
Set the variables before torch or numpy is imported: both read them once.
"""

from __future__ import annotations

import os
import platform

SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PE_QUIET": "1",  # no progress bars: they would be stored as output
    "PYTHONHASHSEED": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}

# Elsewhere (Arm) the name of an x86 instruction set would only cause a warning.
X86_SETTINGS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


def settings() -> dict[str, str]:
    """Return the variables that apply to this computer."""
    if platform.machine().lower() in {"x86_64", "amd64"}:
        return SETTINGS | X86_SETTINGS
    return dict(SETTINGS)


def apply() -> None:
    """Set the variables for this process and for those that it starts."""
    os.environ.update(settings())
    os.environ.pop("MPLBACKEND", None)  # a kernel chooses its inline backend itself
