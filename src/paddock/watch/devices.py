"""The use and memory of a node's devices, asked of their vendors' tools beside the looks.

Not tried on a device: the tests play outputs that were captured elsewhere (tests/accel/golden).
"""

from __future__ import annotations

import re
from threading import Thread

from paddock.accel import accelerator
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ASK_SECONDS = 10.0  # between two questions, and for an answer at most
NVIDIA = "--query-gpu=index,uuid,utilization.gpu,memory.used"
# The DEVICES table of xpu_smi: a number, a PCI address, ..., use, L3, memory.
_XPU = re.compile(r"\|\s*(\d+) \| [\da-f:.]+ \|.*?(\d+) % \|[^|]*\|\s*(\d+) / \d+ MB \|", re.ASCII)


@value
class DeviceUse:
    """use: of 1; used_bytes: of its memory. None where the tool tells none."""

    use: float | None
    used_bytes: int | None = None


def read_use(kind: str, text: str) -> dict[str, DeviceUse]:
    """The use of devices, by number and, of NVIDIA's, by UUID. text: a tool's output.

    >>> read_use("gpu", "0, GPU-5a, 93, 1024\\n")["GPU-5a"]
    DeviceUse(use=0.93, used_bytes=1073741824)
    """
    found: dict[str, DeviceUse] = {}
    for line in text.splitlines():
        words = line.replace(",", " ").split()
        if kind == "gpu" and len(words) == 4:
            use, memory = (int(w) if w.isdecimal() else None for w in words[2:])
            each = DeviceUse(
                None if use is None else use / 100, None if memory is None else memory << 20
            )
            found |= {words[0]: each, words[1]: each}
        elif kind == "xpu" and (match := _XPU.match(line)):
            found[match[1]] = DeviceUse(int(match[2]) / 100, int(match[3]) << 20)
        elif kind == "dcu" and words and words[0].isdecimal():
            shares = [word[:-1] for word in words if word.endswith("%")]
            if shares and shares[-1].isdecimal():  # the last column that is one: DCU% or GPU%
                found[words[0]] = DeviceUse(int(shares[-1]) / 100)
    return found


def _commands(kind: str) -> Sequence[tuple[str, ...]]:
    """The commands that tell the use of devices, the first that is there is the one to run."""
    if kind == "gpu":
        return (("nvidia-smi", NVIDIA, "--format=csv,noheader,nounits"),)
    return accelerator(kind).commands if kind in ("xpu", "dcu") else ()


class DeviceProbe:
    """Asks a vendor's tool again and again, in threads: nobody waits for the answer."""

    def __init__(self, kind: str, env: Mapping[str, str]) -> None:
        self._kind, self._env = kind, env
        self._asked_at = -ASK_SECONDS
        self.found: dict[str, DeviceUse] = {}

    def look(self, now: float) -> None:
        """Ask anew when it is time. now: monotonic seconds."""
        if now - self._asked_at >= ASK_SECONDS:
            self._asked_at = now
            Thread(target=self._ask, name="paddock-devices", daemon=True).start()

    def _ask(self) -> None:
        """Run the first tool that is there. One that hangs is killed."""
        from subprocess import DEVNULL, PIPE, SubprocessError, run

        for command in _commands(self._kind):
            try:
                done = run(
                    command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=dict(self._env),
                    timeout=ASK_SECONDS, check=True,
                )  # fmt: skip
            except OSError:
                continue
            except SubprocessError:
                return
            self.found = read_use(self._kind, done.stdout.decode("utf-8", "replace"))
            return

    def use_of(self, labels: Sequence[str]) -> dict[str, float]:
        """The use and memory of devices, together, as the fields of a sample."""
        own = [self.found[label] for label in labels if label in self.found]
        uses = [device.use for device in own if device.use is not None]
        memory = [device.used_bytes for device in own if device.used_bytes is not None]
        return {
            **({"gpu": round(sum(uses) / len(uses), 3)} if uses else {}),
            **({"gpu_bytes": sum(memory)} if memory else {}),
        }
