"""Warm start: one process of the user's interpreter imports, and is forked into the ranks.

    hook/sitecustomize.py   in the user's interpreter: the warm server and its ranks
    process.py              starts it, gives it orders, hears it; what of it outlives a launch
    server.py               what it is told, and when: the driver of core/warming.py
    learned.py              which modules a script needs, learned by earlier runs
    keep.py                 launchers that stay (--warm keep), and how a launch is handed to one

The warm server is the user's own command line, stopped where its interpreter looks for
``sitecustomize``: in a forked rank that import returns, and Python itself goes on to the script.
"""
