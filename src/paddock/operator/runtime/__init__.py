"""The machine below reconcile: caches, queue, writes, leadership. Only here the operator acts.

controller    the work queue's workers: observe, reconcile, carry out; the wiring
queue         the work queue with back-off
caches        one ObjectCache a kind, their reflectors, and a job's view of them
store         ObjectCache: the objects of a kind, found by name or by index (an informer's cache)
reflector     list and watch: keeps an ObjectCache equal to what the API server has
etcd          the address of a namespace's etcd
executor      carries out a Decision: status first, then creates, patches and deletes
expectations  writes that the caches do not show yet
faults        failed calls of a job, and when they may be made again
status        the status as a merge patch
guard         middleware of every call: fence, rate, limits, retry, metrics
lease         LeaderElector: leadership by a Lease
events        Events for `kubectl describe`
log, metrics  the log's lines; counters, gauges and histograms for Prometheus
health        probes and metrics over HTTP
access        who may read /metrics, and its certificate
installer     paddock operator install and uninstall
clock         wall clock, monotonic clock, time limits
"""
