"""Warm start: one process of the user's interpreter imports, and is forked into the ranks.

process   starts that process, sends orders, reads messages; it may outlive a launch
server    WarmServer: drives the state machine of core/attempt/warming.py
profile   the import profile of a script, learned by earlier runs
keep      launcher daemons (--warm keep), and how a launch is handed to one
hook      hook/sitecustomize.py, in the user's interpreter: the warm server and its ranks

The warm server is the user's own command line, stopped where its interpreter looks for
``sitecustomize``: in a forked rank that import returns, and Python itself goes on to the script.
"""
