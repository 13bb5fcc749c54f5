"""An API server in memory, for simulations and for tests: no process, no port, no waiting.

>>> import asyncio
>>> from paddock.kube.client import PODS
>>> server = MemoryServer(now=lambda: 0.0)
>>> client = server.client()
>>> pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
>>> asyncio.run(client.create(PODS, "ml", pod)).status.phase
'Pending'
>>> server.kubelet.run("ml/a")
>>> asyncio.run(client.get(PODS, "ml", "a")).status.phase
'Running'

What it does as the real server: resourceVersions, generations, the status subresource, no-op
writes, conflicts, preconditions, finalizers and graceful deletion, paging, selectors, watches with
bookmarks and 410, garbage collection by owner, what is checked of pods, Services, ConfigMaps,
Leases and events. What it does not: schemas of custom kinds (give ``server.checks`` a function),
rights, webhooks (give ``server.fail`` a predicate), defaults that nobody reads back.

Faults are ordered of the server: ``fail`` (refuse, or carry out and lose the answer),
``faults.watch_delay``, ``drop_watches``, ``silence_watches``, ``compact``, ``set_quota``,
``serve(kind, False)``, ``terminate_namespace``. Time passes when the clock that was given moved and
``tick`` is called. refusals.py makes the errors to order; kubelet.py plays the nodes.
"""

from kube_memory.client import MemoryClient
from kube_memory.faults import Call, Rule
from kube_memory.kubelet import Kubelet
from kube_memory.server import MemoryServer
from kube_memory.stream import Stream

__all__ = ["Call", "Kubelet", "MemoryClient", "MemoryServer", "Rule", "Stream"]
