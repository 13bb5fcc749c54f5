"""The machine below reconcile: caches, queue, writes, leadership. Only here the operator acts.

clock, log, metrics: what every part is given. store, reflector, caches, etcd: what is known of the
cluster. queue, expectations, faults: when a job is looked at, and what must not be done yet.
executor, status: carry out a Decision. guard, lease: no write without leadership. events: what
people read in `kubectl describe`. health: probes and metrics over HTTP. controller: the wiring.
"""
