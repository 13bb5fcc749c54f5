"""Read flags, environment and PaddleJob files into a Job, remembering each source.

parse            the entry: command line and environment -> ParsedLaunch, with the Job
flags            the table of all fields and their flags
args             values of flags and variables as texts with their sources; the typed reader
environment      the rules of environment variables
nodes, servers   nodes, rendezvous and roles of the job; the servers' command
document         load a job file, YAML or JSON
configuration    the configuration block of Paddle's launcher
imagined         the plan of a job whose nodes have not met yet
masked           a command line without secrets: for records, for people to copy
misplaced        flags of the launcher after the script
dialects         what others spell otherwise: torchrun, Slurm, MPI, PBS, PaddleJob
"""
