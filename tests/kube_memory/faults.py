"""Faults that a test orders of the server in memory: refusals, lost answers, late watches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.kube.client import KubeError, Resource

Verb = Literal["get", "list", "watch", "create", "patch", "delete"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client. content: the manifest of a create, the change of a patch, else None."""

    verb: Verb
    resource: Resource[Any]
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    client: str = ""
    dry_run: bool = False
    content: Any = None


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
