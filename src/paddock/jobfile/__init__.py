"""Read flags, environment and PaddleJob files into a Job, remembering each source.

flags.py is the table of all fields. words.py splits a command line, environment.py adds what
variables say, reader.py checks single values, build.py makes the Job with nodes.py and roles.py;
parse.py does all of that. dialects/ has what others spell otherwise.
"""
