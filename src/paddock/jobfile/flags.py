"""The flags of ``paddock launch``, which are the fields of a job: one table.

Parsing, help, completion and docs read it. Derived from it are the variables (environment.py), the
configuration block (configuration.py), the fields that ``paddock explain`` shows, and the config
fingerprint, which nodes compare. A new flag is a row here and an attribute of core/job.py's Job;
where its text is not the value (not is_plain), parse.py reads it, or the file that parse.py calls.
Its help in Chinese goes to docs/chinese.txt; `make reference` writes docs/reference/flags.md.

Sources: distributed/launch/context/args_envs.py (paddle) and distributed/fleet/launch.py (legacy)
of paddlepaddle 3.3.1; torch/distributed/run.py (torchrun) of torch 2.15.
"""

from __future__ import annotations

from paddock.command_line import HELP_ALL, Flag, FlagTable, spelled
from paddock.core.job import FRAMEWORKS, MODES, ON_STALL, WARM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Job

# By what people want to do.
PROCS, NODES, FAILURE, LOGS, SERVERS, NETWORK, OTHER, OLD = (
    "Choose ranks and devices",
    "Run on several nodes",
    "Restart after a failure, resize",
    "Read the output",
    "Run parameter servers",
    "Secure the network",
    "Other",
    "Accepted and ignored",
)
GROUPS = (PROCS, NODES, FAILURE, LOGS, SERVERS, NETWORK, OTHER, OLD)
# What `paddock launch --help` shows; --help-all has the others, too.
COMMON = (
    "nproc_per_node",
    "devices",
    "nnodes",
    "master",
    "max_restart",
    "log_dir",
    "tail",
    "module",
    "file",
    "warm",
)

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
BACKENDS = ("auto", "gloo", "nccl", "bkcl", "hccl", "heter", "xccl", "flagcx")
RDZV_BACKENDS = ("c10d", "static", "etcd", "etcd-v2")
PREFIXES = ("auto", "always", "never")
CONSOLES = ("auto", "paddle", "short")

# A table reads better than one argument a line.
# fmt: off
# (name, kind, origin, what to say)
IGNORED = (
    ("legacy", "bool", "paddle", "there is only one launcher"),
    ("enable_gpu_log", "bool", "paddle", "GPUs are not sampled"),
    ("auto_cluster_config", "bool", "paddle", "auto parallel is not launched"),
    ("auto_tuner_json", "text", "paddle", "the auto tuner is not launched"),
    ("coordinators", "text", "legacy", "FL-PS coordinators are not launched"),
    ("coordinator_num", "text", "legacy", "FL-PS coordinators are not launched"),
    ("scale", "text", "legacy", "it never had an effect"),
    ("force", "text", "legacy", "it never had an effect"),
    ("cluster_topo_path", "text", "legacy", "auto mapping is not done"),
    ("rank_mapping_path", "text", "legacy", "auto mapping is not done"),
    ("enable_auto_mapping", "bool", "legacy", "auto mapping is not done"),
    ("monitor_interval", "text", "torchrun", "the kernel tells, nothing is polled"),
    ("start_method", "text", "torchrun", "processes are always spawned"),
    ("event_log_handler", "text", "torchrun", "what happens is said on stderr"),
    ("duplicate_stdout_filters", "text", "torchrun", "search the log files in --log-dir"),
    ("duplicate_stderr_filters", "text", "torchrun", "search the log files in --log-dir"),
    ("numa_binding", "text", "torchrun", "processes are not bound; numactl(8) does it"),
)
FLAGS: tuple[Flag, ...] = (
    Flag("nproc_per_node", "text", "roles.worker.count", "processes on this node; gpu, xpu, "
         "...: one per device of that kind, cpu: one per core, auto: one per device, or per "
         "core where there is none", PROCS, metavar="N|auto|gpu|cpu|KIND",
         default="None", env=("PADDLE_NPROC_PER_NODE",), is_listed=True),
    Flag("devices", "text", "devices", "device labels of this node, absolute numbers; all: "
         "every visible one, cpu: none", PROCS,
         aliases=("gpus", "npus", "xpus", "dcus", "selected_gpus", "selected_xpus"),
         metavar="0,1", default="None", env=("PADDLE_DEVICES",), is_listed=True),
    Flag("run_mode", "choice", "mode", "kind of job; told from the other flags if absent", PROCS,
         metavar="MODE", default="None", env=("PADDLE_RUN_MODE",), choices=MODES,
         is_shared=True, is_listed=True),
    Flag("framework", "choice", "framework", "whose environment the processes get; auto: "
         "all that do not conflict", PROCS, metavar="NAME", default="auto", choices=FRAMEWORKS,
         origin="paddock", is_plain=True, is_shared=True),
    Flag("module", "switch", "command.kind", "run the script as a module, like python -m", PROCS,
         short="m", origin="torchrun"),
    Flag("no_python", "switch", "command.kind", "run the script itself, without python", PROCS,
         origin="torchrun"),
    Flag("run_path", "switch", "command.kind", "run the script with python, whatever its "
         "name (torchrun)", PROCS, status="synonym", origin="torchrun"),
    Flag("use_env", "switch", "", "LOCAL_RANK is always set, and --local-rank is not passed "
         "(torch.distributed.launch)", PROCS, status="synonym", origin="torchrun"),
    Flag("warm", "choice", "warm", "on, or nothing: import modules once per node, "
         "and fork the processes from there; keep: for the next launch, too", PROCS,
         metavar="WHEN", default="off", choices=WARM, origin="paddock", bare="on",
         is_plain=True),
    Flag("role", "text", "role_name", "ROLE_NAME of the processes (torchrun)", PROCS,
         metavar="NAME", default="default", status="synonym", origin="torchrun",
         is_plain=True),
    Flag("virtual_local_rank", "switch", "virtual_local_rank", "every process sees its own "
         "device only, as number 0, and LOCAL_RANK=0 (torchrun)", PROCS, status="synonym",
         origin="torchrun", is_plain=True),
    Flag("auto_parallel_config", "text", "extra_env", "PADDLE_AUTO_PARALLEL_CONFIG of the "
         "processes; the tuner is not run", PROCS, metavar="FILE",
         env=("PADDLE_AUTO_PARALLEL_CONFIG",)),
    Flag("allow_uneven", "switch", "allow_uneven", "nodes may run different numbers of "
         "processes", PROCS, origin="paddock", is_plain=True),
    Flag("omp_num_threads", "text", "omp_num_threads", "OMP_NUM_THREADS of the processes; "
         "auto: 1 unless set, share: cores / processes, keep: as it is", PROCS,
         metavar="N|auto|share|keep", default="auto",
         origin="paddock"),
    Flag("backend", "choice", "extra_env", "what the processes communicate with, as "
         "PADDLE_DISTRI_BACKEND (where the nodes meet: --master)", PROCS, metavar="NAME",
         default="auto", choices=BACKENDS, origin="legacy"),
    Flag("env", "text", "extra_env", "set a variable for every process (repeatable)", PROCS,
         metavar="KEY=VALUE", origin="paddock", repeats=True),
    Flag("master", "text", "rendezvous.host", "where the nodes meet: host:port, [v6]:port, "
         "http://host:port, or etcd://host:port[,host:port]", NODES,
         metavar="ADDRESS", default="None", env=("PADDLE_MASTER",), is_listed=True),
    Flag("nnodes", "text", "nnodes_min nnodes_max", "number of nodes, or MIN:MAX "
         "for an elastic job", NODES, aliases=("np",), metavar="N|MIN:MAX", default="1",
         env=("PADDLE_NNODES",), is_shared=True, is_listed=True),
    Flag("rank", "int", "rendezvous.node_rank", "rank of this node; -1: decided at the "
         "meeting point", NODES, aliases=("node_rank",), metavar="N", default="-1",
         env=("PADDLE_TRAINER_ID", "PADDLE_RANK"), is_listed=True),
    Flag("ips", "text", "rendezvous.ips", "addresses of all nodes, in node order, the same "
         "on every node", NODES, aliases=("cluster_node_ips",), metavar="IP,IP", default="None",
         env=("PADDLE_IPS",), is_shared=True, is_listed=True),
    Flag("host", "text", "rendezvous.own_host", "address of this node as the others reach "
         "it", NODES, aliases=("local_addr", "node_ip"), metavar="HOST", default="None",
         env=("POD_IP",), is_listed=True),
    Flag("start_port", "int", "start_port", "first port of the processes; with --ips the "
         "nodes meet one port below (6069)", NODES, aliases=("started_port",), metavar="PORT",
         default="6070 with several --ips",
         env=("PADDLE_START_PORT",), is_listed=True),
    Flag("job_id", "text", "job_id", "name of the job; several jobs may share one meeting "
         "point", NODES, aliases=("rdzv_id",), metavar="NAME", default="default",
         env=("PADDLE_JOB_ID",), is_listed=True),
    Flag("sort_ip", "bool", "rendezvous.sort_ip", "order the nodes by address", NODES,
         metavar="BOOL", default="False", env=("PADDLE_SORT_IP",),
         is_plain=True, is_listed=True),
    Flag("join_timeout", "seconds", "rendezvous.join_timeout_seconds", "how long to wait "
         "for missing nodes", NODES, metavar="DURATION", default="300",
         origin="paddock"),
    Flag("standalone", "switch", "rendezvous.kind", "one node, no network (torchrun)", NODES,
         status="synonym", origin="torchrun"),
    Flag("rdzv_endpoint", "text", "rendezvous.host", "same as --master (torchrun); port "
         "29400 if absent", NODES, metavar="HOST[:PORT]", status="synonym",
         origin="torchrun"),
    Flag("rdzv_backend", "choice", "rendezvous.kind", "how the nodes meet; c10d and "
         "static: built in; etcd: as --master etcd:// (torchrun)", NODES, metavar="NAME",
         choices=RDZV_BACKENDS, status="synonym", origin="torchrun"),
    Flag("master_addr", "text", "rendezvous.host", "host of --master (torchrun)", NODES,
         metavar="HOST", status="synonym", origin="torchrun"),
    Flag("master_port", "int", "rendezvous.port", "port of --master (torchrun)", NODES,
         metavar="PORT", default="29500", status="synonym", origin="torchrun"),
    Flag("rdzv_conf", "text", "rendezvous.join_timeout_seconds", "join_timeout and timeout: "
         "as --join-timeout; last_call_timeout: as --elastic-timeout (torchrun)", NODES,
         metavar="KEY=VALUE,...", status="synonym", origin="torchrun"),
    Flag("elastic_server", "text", "rendezvous.etcd", "same as --master etcd://host:port",
         NODES, metavar="HOST:PORT", status="synonym",
         origin="legacy"),
    Flag("max_restart", "int", "restart.max_restarts", "restarts after a failure; default 3 "
         "for an elastic job, else 0", FAILURE, aliases=("max_restarts",), metavar="N",
         default="0 or 3", env=("PADDLE_MAX_RESTART",), is_shared=True, is_listed=True),
    Flag("restart_on", "text", "restart.restart_on", "restart for these causes or exit "
         "codes only", FAILURE, metavar="CAUSE|CODE,...", default="any", origin="paddock"),
    Flag("restart_backoff", "text", "restart.backoff_initial_seconds "
         "restart.backoff_max_seconds", "pause before a restart, doubled up to the "
         "maximum", FAILURE, metavar="DURATION[:MAX]", default="1:60", origin="paddock"),
    Flag("elastic_level", "int", "elastic.level", "-1: off, 0: a failed node leaves, 1: it "
         "restarts; a range of nodes implies 1", FAILURE, metavar="LEVEL", default="-1",
         env=("PADDLE_ELASTIC_LEVEL",), is_shared=True, is_listed=True),
    Flag("elastic_timeout", "seconds", "elastic.timeout_seconds", "how long to wait for "
         "more nodes than MIN, and below MIN", FAILURE, metavar="DURATION", default="30",
         env=("PADDLE_ELASTIC_TIMEOUT",), is_plain=True, is_listed=True),
    Flag("nnodes_wanted", "int", "elastic.wanted", "nodes that are being made: the first "
         "attempt waits for no more; an operator says it", FAILURE, metavar="N", default="MAX",
         env=("PADDOCK_NNODES_WANTED",), origin="paddock"),
    Flag("elastic_pre_hook", "text", "pre_hook", "shell command run before each start", FAILURE,
         metavar="COMMAND", origin="legacy", is_plain=True),
    Flag("lease", "seconds", "rendezvous.lease_seconds", "a silent node is lost after this "
         "long; 3 s where the job can go on without it", FAILURE, metavar="DURATION",
         default="120", origin="paddock"),
    Flag("grace", "seconds", "grace_seconds", "time to save between SIGTERM, or Ctrl-C's SIGINT, "
         "and SIGKILL", FAILURE, aliases=("shutdown_timeout",), metavar="DURATION", default="10",
         origin="paddock", is_plain=True),
    Flag("signals_to_handle", "text", "", "SIGTERM, SIGINT, SIGHUP and SIGQUIT end the job, "
         "SIGUSR1 and SIGUSR2 reach every process, always (torchrun)", FAILURE, metavar="NAME,...",
         status="synonym", origin="torchrun"),
    Flag("timeout", "seconds", "timeout_seconds", "end the job after this long, exit code "
         "124; 0: never", FAILURE, metavar="DURATION", default="0", origin="paddock",
         is_plain=True),
    Flag("stall_after", "seconds", "stall_after_seconds", "ranks of which none moves for this long "
         "are stalled, at the latest; 0: do not look for stalls", FAILURE, metavar="DURATION",
         default="10m", origin="paddock", is_plain=True),
    Flag("on_stall", "choice", "on_stall", "report: say where every rank is; stop: end the job, "
         "exit code 124; restart: as after a failure (--max-restart)", FAILURE, metavar="WHAT",
         default="report", choices=ON_STALL, origin="paddock", is_plain=True, is_shared=True),
    Flag("debug_ranks", "switch", "debug_ranks", "Python ranks write their stacks themselves: "
         "without py-spy, and without a right to trace them", FAILURE,
         origin="paddock", is_plain=True),
    Flag("metrics_port", "int", "metrics_port", "Prometheus reads this node's ranks at "
         "http://NODE:PORT/metrics, at every address; 0 for any free port", LOGS, metavar="PORT",
         default="None", origin="paddock"),
    Flag("log_dir", "dir", "logs.directory", "where workerlog.N and serverlog.N go; {node}: "
         "this host's name", LOGS, metavar="DIR", default="log", env=("PADDLE_LOG_DIR",),
         is_listed=True),
    Flag("record", "dir", "record", "keep in DIR how the job is, in status.json and "
         "verdict.json, and beside each log when its lines came", LOGS, metavar="DIR",
         default="None", origin="paddock", is_plain=True),
    Flag("log_overwrite", "bool", "logs.overwrite", "truncate logs instead of appending", LOGS,
         metavar="BOOL", default="False", env=("PADDLE_LOG_OVERWRITE",),
         is_plain=True, is_listed=True),
    Flag("log_level", "choice", "logs.level", "how much Paddock itself says", LOGS,
         metavar="LEVEL", default="INFO", env=("PADDLE_LOG_LEVEL",), choices=LEVELS,
         is_listed=True),
    Flag("quiet", "switch", "logs.level", "nothing but what the ranks print, and failures; "
         "as --log-level ERROR", LOGS, origin="paddock"),
    Flag("console", "choice", "logs.console", "the lines of Paddle's launcher, or the "
         "short screen; auto: $PADDOCK_CONSOLE, else short", LOGS, metavar="WHICH",
         default="auto", choices=CONSOLES, origin="paddock", is_plain=True),
    Flag("tail", "text", "logs.tail", "whose output the console shows: all, none, ranks, "
         "roles", LOGS, metavar="all|0,3|ROLE", default="0", origin="paddock"),
    Flag("prefix", "choice", "logs.prefix", "put role and rank before console lines; auto: "
         "if several are shown", LOGS, metavar="WHEN", default="auto", choices=PREFIXES,
         origin="paddock", is_plain=True),
    Flag("tee", "text", "logs.streams", "1: stdout, 2: stderr, 3: both, 0:3,1:2: by local "
         "rank, are shown also if redirected (torchrun)", LOGS, short="t", metavar="STREAMS",
         status="synonym", origin="torchrun"),
    Flag("redirects", "text", "logs.streams", "streams that the console does not show; the "
         "log files have them in any case (torchrun)", LOGS, short="r", metavar="STREAMS",
         status="synonym", origin="torchrun"),
    Flag("local_ranks_filter", "text", "logs.streams", "local ranks that every node's "
         "console shows (torchrun)", LOGS, metavar="0,1", status="synonym", origin="torchrun"),
    Flag("log_line_prefix_template", "text", "logs.line_prefix", "what stands before console "
         "lines: ${role_name} ${local_rank} ${rank} ${hostname} (torchrun)", LOGS,
         metavar="TEXT", status="synonym", origin="torchrun"),
    Flag("logs_specs", "text", "", "default only; plug-ins are not loaded (torchrun)", LOGS,
         metavar="NAME", default="default", status="synonym", origin="torchrun"),
    Flag("servers", "text", "roles.ps.endpoints", "endpoints of the servers", SERVERS,
         metavar="IP:PORT,...", env=("PADDLE_SERVERS_ENDPOINTS",), is_listed=True),
    Flag("trainers", "text", "roles.worker.endpoints", "endpoints of the workers; the port "
         "may be left out", SERVERS, aliases=("workers",), metavar="IP[:PORT],...",
         env=("PADDLE_TRAINERS_ENDPOINTS",), is_listed=True),
    Flag("server_num", "int", "roles.ps.count", "servers per node", SERVERS, metavar="N",
         default="None", env=("PADDLE_SERVER_NUM",), is_listed=True),
    Flag("trainer_num", "int", "roles.worker.count", "workers per node", SERVERS,
         aliases=("worker_num",), metavar="N", default="None",
         env=("PADDLE_TRAINER_NUM",), is_listed=True),
    Flag("server_script", "text", "servers.command", "what the servers run: same (the "
         "script), pserver [FLAGS] (Paddock's own server) or a command; auto: pserver for a "
         "script that uses paddock.ps and runs no server itself, else same", SERVERS,
         metavar="auto|same|pserver|COMMAND", default="auto", origin="paddock"),
    Flag("server_restarts", "int", "servers.max_restarts", "how often in 10 minutes one of "
         "Paddock's own servers that died is started again in place", SERVERS, metavar="N",
         default="3", origin="paddock"),
    Flag("heter_workers", "text", "roles.heter.endpoints", "endpoints of the heter workers, "
         "stages separated by ';'", SERVERS, metavar="IP:PORT,...;...", origin="legacy"),
    Flag("heter_worker_num", "text", "roles.heter.count", "heter workers per node, stages "
         "separated by ';'", SERVERS, metavar="N;N", origin="legacy"),
    Flag("heter_devices", "text", "roles.heter.device", "device of each heter stage, "
         "separated by ';'", SERVERS, metavar="cpu;gpu", default="cpu", origin="legacy"),
    Flag("gloo_port", "int", "gloo_port", "port of the Gloo HTTP service", SERVERS,
         aliases=("http_port",), metavar="PORT", default="6767",
         env=("PADDLE_GLOO_PORT",), is_plain=True, is_listed=True),
    Flag("with_gloo", "choice", "with_gloo", "0: off, 1: workers, 2: workers and servers", SERVERS,
         metavar="N", default="1", env=("PADDLE_WITH_GLOO",),
         choices=("0", "1", "2"), is_plain=True, is_shared=True, is_listed=True),
    Flag("token_file", "file", "rendezvous.token_file", "file with the job's key", NETWORK,
         metavar="FILE", origin="paddock", is_plain=True),
    Flag("tls_cert", "file", "rendezvous.tls_cert", "certificate of this node", NETWORK,
         metavar="FILE", origin="paddock", is_plain=True),
    Flag("tls_key", "file", "rendezvous.tls_key", "private key of this node", NETWORK,
         metavar="FILE", origin="paddock", is_plain=True),
    Flag("tls_ca", "file", "rendezvous.tls_ca", "authority that signed the nodes' "
         "certificates", NETWORK, metavar="FILE", origin="paddock", is_plain=True),
    Flag("keep_proxy", "switch", "keep_proxy", "leave http_proxy and https_proxy to the "
         "processes", NETWORK, origin="paddock", is_plain=True),
    Flag("help", "switch", "", "show this help", OTHER, short="h"),
    HELP_ALL,
    Flag("file", "file", "", "read the job from a PaddleJob in YAML or JSON", OTHER, short="f",
         metavar="JOB.YAML", origin="paddock"),
    Flag("dry_run", "switch", "", "show what would be started, and start nothing; paddock "
         "explain shows more", OTHER, origin="paddock"),
    Flag("ignore_env", "switch", "", "read no configuration from the environment", OTHER,
         origin="paddock"),
    *(Flag(name, kind, "", why, OLD, metavar="VALUE", status="ignored", origin=origin)
      for name, kind, origin, why in IGNORED),
)
# fmt: on
# What other launchers call it: mpirun(1), srun(1), accelerate, deepspeed, horovodrun.
FOREIGN = {
    "n": "nproc_per_node",
    "np": "nproc_per_node",
    "N": "nnodes",
    "nodes": "nnodes",
    "ntasks": "nproc_per_node",
    "num_processes": "nproc_per_node",
    "num_proc": "nproc_per_node",
    "num_gpus": "nproc_per_node",
    "num_machines": "nnodes",
    "num_nodes": "nnodes",
    "machine_rank": "rank",
    "hosts": "ips",
    "hostfile": "ips",
    "main_process_ip": "master",
    "include": "devices",
    "x": "env",
    "o": "log_dir",
    "v": "log_level",
}
LAUNCH = FlagTable("launch", FLAGS, FOREIGN)
BY_NAME = LAUNCH.by_name
# Fields of a job that no flag names: (a flag of) an allocation, a file or a variable decides them.
NO_FLAG = (
    "command", "device_kind", "host_part", "rendezvous.among", "rendezvous.hostfile", "port_range",
    "fixed_port",
)  # fmt: skip

# What an alias of --devices says about the kind of device. --gpus says nothing: Paddle runs
# ROCm and DCU under that name (distributed/launch/context/device.py).
DEVICE_KIND_OF_ALIAS = {"npus": "npu", "xpus": "xpu", "dcus": "dcu", "selected_xpus": "xpu"}


def config_fingerprint(job: Job) -> tuple[tuple[str, str], ...]:
    """The fields that must be equal on every node, by the name of their flag."""
    roles = " ".join(
        f"{r.name}{' (pserver)' if r.name == 'ps' and job.servers.is_provided else ''}"
        f"{r.stage or ''}={','.join(r.endpoints) if r.endpoints else 'per-node'}"
        for r in job.roles
    )
    return (*((spelled(f.name), _text(f, job)) for f in FLAGS if f.is_shared), ("roles", roles))


def _text(flag: Flag, job: Job) -> str:
    values = [job.value_of(path) for path in flag.fields]
    return ":".join(",".join(v) if isinstance(v, tuple) else str(v) for v in values)
