"""Two variables that frameworks read when they are imported, for trainers on ordinary processors.

MKL_DEBUG_CPU_TYPE=5, on AMD: Paddle's wheels (3.3.1 too) have the MKL of 2019, which gives
processors of others than Intel its oldest code; with 5 it uses AVX2. Products of 512 x 512 floats
on one core of an EPYC: 36 gigaflops without, 97 with. torch's MKL is newer and needs nothing.

OMP_WAIT_POLICY=passive: threads of a framework that wait give up their core, which the servers
and readers of the same machine want. ctr-dnn with 2 threads on 2 cores and a server: 17 ms of
processor time a batch, and 40 to 90 where the threads spin.
"""

from __future__ import annotations

from collections.abc import MutableMapping

AVX2 = "5"


def prepare(env: MutableMapping[str, str], cpuinfo: str) -> None:
    """Sets those that help and are not set. To be called before a framework's import.

    cpuinfo: the text of /proc/cpuinfo.

    >>> env: dict[str, str] = {}
    >>> prepare(env, "vendor_id : AuthenticAMD\\nflags : fpu avx avx2 fma\\n"); env
    {'OMP_WAIT_POLICY': 'passive', 'MKL_DEBUG_CPU_TYPE': '5'}
    """
    env.setdefault("OMP_WAIT_POLICY", "passive")
    words = set(cpuinfo.split())
    if "AuthenticAMD" in words and "avx2" in words:
        env.setdefault("MKL_DEBUG_CPU_TYPE", AVX2)
