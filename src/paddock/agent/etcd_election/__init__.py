"""The election of the leader through etcd.

election         this node as a candidate: asks etcd in a thread of its own, tells the launcher
election_state   decides what to ask next (pure)
messages         inputs, orders and events of election_state, and the records in etcd
succession       failover with etcd: what a new leader takes over (pure)
"""
