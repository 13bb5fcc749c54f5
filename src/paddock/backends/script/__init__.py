"""Jobs by the commands that a site names: qsub, PaddleCloud's client, or any other queue.

    render   submission -> the files of its directory, and the commands (pure)
    parse    output of the commands -> id, state (pure)
    driver   the backend

Every submission has a directory that people may read, edit and run again: paddock submit --from.
"""
