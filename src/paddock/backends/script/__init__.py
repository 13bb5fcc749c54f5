"""Jobs by the commands that a site names: qsub, PaddleCloud's client, or whatever there is.

render.py    submission -> the files of its directory, and the commands (pure)
parse.py     what the commands print -> id, state (pure)
driver.py    the backend

Every submission has a directory that people may read, edit and run again: paddock submit --from.
"""
