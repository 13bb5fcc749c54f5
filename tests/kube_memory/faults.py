"""Faults that a test orders of the server in memory: refusals, lost answers, late watches."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from paddock.kube.client import Call as KubeCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.kube.client import KubeError


@dataclass(frozen=True, slots=True)
class Call(KubeCall):
    """One call, and the name of the client that makes it."""

    client: str = ""

    @classmethod
    def of(cls, call: KubeCall, client: str) -> Call:
        """The call of that client."""
        return cls(**{f.name: getattr(call, f.name) for f in fields(KubeCall)}, client=client)


@dataclass
class Rule:
    """Calls that fail. left: how many more, None for all of them until ``cancel``."""

    error: KubeError
    when: Callable[[Call], bool]
    left: int | None
    lost: bool

    def cancel(self) -> None:
        """No further call fails because of this rule."""
        self.left = 0


def no_delay() -> float:
    """Watches deliver at once."""
    return 0.0


@dataclass
class Faults:
    """What was ordered. watch_delay: seconds that the next change takes, asked for each watch."""

    rules: list[Rule] = field(default_factory=list)
    watch_delay: Callable[[], float] = no_delay

    def add(self, rule: Rule) -> Rule:
        """Order one more; the oldest that fits a call is used."""
        self.rules.append(rule)
        return rule

    def take(self, call: Call) -> Rule | None:
        """The rule by which this call fails, counted; None for a call that does not."""
        self.rules = [rule for rule in self.rules if rule.left != 0]
        for rule in self.rules:
            if rule.when(call):
                if rule.left is not None:
                    rule.left -= 1
                return rule
        return None
