"""Leadership: does this node lead the job, or follow its leader?

leadership_state   the machine: seeking, leading, following, ended (pure)
messages           its events and orders
leadership         carries the orders out; the leader session, one term of this node as the leader
succession         failover without etcd: where this node goes when its leader is lost (pure)
majority           without etcd: finds another leader of the job, and resolves the conflict
"""
