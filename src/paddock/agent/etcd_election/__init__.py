"""The election of the leader through etcd.

election         this node as a candidate: asks etcd in a thread of its own, tells the launcher
election_state   decides what to ask next (pure)
messages         what election_state hears and orders, and the records that stand in etcd
succession       where this node goes when its leader changes (pure)
"""
