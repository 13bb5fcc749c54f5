"""Read flags, environment and PaddleJob files into a Job, remembering each source.

parse                     the entry: command line and environment -> ParsedLaunch
flags                     the table of all fields and their flags
args                      split a command line into flags, script and its arguments
environment               values from environment variables
reader                    check single values
build                     the Job of all values
nodes, roles, servers     its nodes and rendezvous; roles and counts; the servers' command
document                  load a job file, YAML or JSON
configuration             the configuration block of Paddle's launcher
masked, shown             a command line without secrets: for records, for people to copy
misplaced                 flags of the launcher after the script
dialects                  what others spell otherwise: torchrun, Slurm, MPI, PBS, PaddleJob
"""
