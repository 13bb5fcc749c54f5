"""The check that an operator works: jobs are served, and a leader renews its lease. Read-only.

Needs no more rights than the operator's own account has: `helm test` runs it as that account.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from paddock.errors import PaddockError
from paddock.kube.client import LEASES, PADDLE_JOBS, KubeError, Query
from paddock.operator.runtime.clock import TimeLimit
from paddock.operator.runtime.installer import HINTS
from paddock.operator.runtime.lease import LABELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.kube.client import KubeClient

# A dead leader's lease is taken when it has run out, and it may take a pod until one is there.
LEADER_SECONDS_MAX = 30.0
OURS = ",".join(f"{name}={value}" for name, value in LABELS.items())
MISSING = "the operator is not installed: paddock operator install"


async def check_operator(
    client: KubeClient, namespace: str, lease: str, served: Sequence[str]
) -> str:
    """A line about what works. served: namespaces whose jobs it serves, none for all.

    Raises PaddockError with everything that does not.
    """
    problems: list[str] = []
    hint = ""
    for name in served or ("",):
        try:
            await client.page(PADDLE_JOBS, Query(name, limit=1))
        except KubeError as error:
            where = f"namespace {name}" if name else "the cluster"
            problems.append(f"PaddleJobs of {where} cannot be listed: {error}")
            hint = MISSING if error.status == 404 else HINTS.get(error.status, "")
    leader = ""
    others = await _renewals(client)
    try:
        async with TimeLimit(LEADER_SECONDS_MAX):
            leader = await _leader(client, Query(namespace, fields=f"metadata.name={lease}"))
    except KubeError as error:
        problems.append(f"lease {namespace}/{lease} cannot be read: {error}")
    except asyncio.TimeoutError:
        problems.append(f"nobody renewed lease {namespace}/{lease} for {LEADER_SECONDS_MAX:g} s")
        living = await _renewals(client) - others
        hint = hint or "; or ".join(holder for holder, _ in sorted(living))
        hint = hint or f"kubectl -n {namespace} get pods, and the logs of the operator's"
    if problems:
        raise PaddockError("; ".join(problems), hint=hint, exit_code=1)
    return f"{leader} leads and serves the jobs of {', '.join(served) or 'all namespaces'}"


async def _renewals(client: KubeClient) -> set[tuple[str, str]]:
    """Holders and renewal times of the operators' leases: each release of the chart has its own."""
    try:
        page = await client.page(LEASES, Query(labels=OURS))
    except KubeError:  # the operator's own account sees its own namespace only
        return set()
    return {
        (
            f"{one.spec.holderIdentity} leads by another: --namespace {one.metadata.namespace}"
            f" --lease {one.metadata.name}",
            one.spec.renewTime or "",
        )
        for one in page.items
        if one.spec.holderIdentity
    }


async def _leader(client: KubeClient, query: Query) -> str:
    """Whoever renews the lease next. Raises TimeoutError, a moment before the caller's limit."""
    page = await client.page(LEASES, query)
    old = {lease.spec.renewTime for lease in page.items}
    async for change in client.watch(
        LEASES, query, resource_version=page.resource_version, timeout_seconds=LEADER_SECONDS_MAX
    ):
        spec = change.object.spec
        if change.kind != "bookmark" and spec.holderIdentity and spec.renewTime not in old:
            return spec.holderIdentity
    raise asyncio.TimeoutError
