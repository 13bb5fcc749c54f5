"""The machine below reconcile: caches, queue, writes, leadership. Only here the operator acts.

controller    the work queue's workers: observe, reconcile, carry out; the wiring
queue         the work queue with back-off
caches        one ObjectCache a kind, their reflectors, a job's view of them; etcd's address
informer      ObjectCache: the objects of a kind, by name or index; Reflector: list and watch
executor      carries out a Decision: status (a merge patch) first, then the actions
job_record    the memory of one job: expectations, failed calls and when they are made again
guard         middleware of every call: fence, rate, limits, retry, metrics
lease         LeaderElector: leadership by a Lease
events        Events for `kubectl describe`
log, metrics  the log's lines; counters, gauges and histograms for Prometheus
http_server   probes and metrics over HTTP, who may read /metrics, its certificate
installer     paddock operator install and uninstall
clock         wall clock, monotonic clock, time limits
"""
