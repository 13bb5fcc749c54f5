"""The machine below reconcile: caches, queue, writes, leadership. Only here does the operator act.

clock, log, metrics: what every part is given.   store, reflector: caches that follow the API server.
queue, expectations, faults: when a job is looked at, and what must not be done yet.
executor, status: carry out a Decision.   guard, lease: no write without leadership.
events: what people read in `kubectl describe`.   health: probes and metrics over HTTP.
controller: the wiring.
"""
