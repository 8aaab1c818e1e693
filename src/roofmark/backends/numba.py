"""numba: kernels that run on any CPU, for the demo, the tests and machines without a GPU.

The allocator settings keep freed output memory mapped. Without them every output above 128 KiB is mapped anew
and its page faults cost several times the kernel's own time, for the reference as for the candidate.

`GOMP_SPINCOUNT` bounds how long a thread of the OpenMP layer waits awake: on a machine with other work, one that
spins holds the core that the other thread needs, and a call of 1 ms takes 10.
"""

from __future__ import annotations

from pathlib import Path

from roofmark.backends import Backend

BACKEND = Backend(
    name="numba",
    modules=("numba",),
    devices=("cpu",),
    artefact_suffixes=(".o",),
    probe=Path(__file__).with_name("numba_probe.py"),
    install="pip install 'roofmark[numba]'",
    environment={
        "NUMBA_CACHE_DIR": "{cache}/numba",
        "NUMBA_THREADING_LAYER_PRIORITY": "omp workqueue tbb",
        "GOMP_SPINCOUNT": "1000",
        "KINETO_LOG_LEVEL": "9",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "1099511627776",
    },
)
