"""Sites, the places where jobs can run: profiles, host lists and the old tools' files -> Site.

find       the argument of -b -> its Site
profile    paddock.toml over sites.toml
keys       the keys of a site: one table; checks of keys and values (pure)
hostfile   hosts as people write them (pure)
legacy     conf.py of Paddle's Fabric tool (cluster_train), PaddleRec's backend.yaml
"""
