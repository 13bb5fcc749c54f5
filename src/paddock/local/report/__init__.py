"""The launcher's messages to the people at its node.

reporter  every message: in the wording of Paddle's launcher, and on the short screen
text      the sentences and tables of both
width     the terminal's width, and texts fitted to it
"""
