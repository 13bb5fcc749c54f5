"""The meaning of torchrun's own flags and variables. Read only where one of them is given.

Sources: torch/distributed/run.py, torch/distributed/argparse_util.py (PET_*),
torch/distributed/elastic/multiprocessing/api.py (Std, DefaultLogsSpecs), torch 2.15.
"""

from __future__ import annotations

from paddock.command_line import nearest, to_seconds
from paddock.core.endpoint import without_login
from paddock.core.job import ValueSource
from paddock.jobfile.args import TORCHRUN_RANK, ArgValue, to_integer
from paddock.jobfile.flags import BY_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.jobfile.args import EnvironmentReading, FieldReader

PET_PREFIX = "PET_"
# One variable for each of torchrun's flags, PET_ and its name in capitals.
PET_FLAGS = tuple(
    """
    nnodes nproc_per_node rdzv_backend rdzv_endpoint rdzv_id rdzv_conf standalone max_restarts
    monitor_interval start_method event_log_handler role module no_python run_path log_dir redirects
    tee log_line_prefix_template local_ranks_filter duplicate_stdout_filters
    duplicate_stderr_filters node_rank master_addr master_port local_addr signals_to_handle
    shutdown_timeout virtual_local_rank
    """.split()  # noqa: SIM905 - a list of quoted names would be four times as long
)
# The other variables of torchrun that stand for a flag.
OTHER_VARIABLES = (
    ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "log_line_prefix_template"),
    ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "grace"),
)
ADDRESSES = ("master_addr", "master_port", "rdzv_endpoint")
OTHER_MEETINGS = ("master", "elastic_server", "standalone", "ips", "rdzv_endpoint")

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
STDOUT, STDERR, BOTH = 1, 2, 3  # Std
ALL_RANKS = -1
# --rdzv-conf: key -> our value. Two keys may fill one; the first that is given counts.
CONF_VALUES = (
    ("join_timeout", "join_timeout"),
    ("timeout", "join_timeout"),
    ("last_call_timeout", "elastic_timeout"),
)
CONF_WITHOUT_EFFECT = frozenset(
    """
    close_timeout heartbeat_timeout keep_alive_interval keep_alive_max_attempt read_timeout is_host
    store_type use_libuv rank protocol cacert cert key
    """.split()  # noqa: SIM905 - as above
)


def apply_pet(reading: EnvironmentReading) -> None:
    """Take PET_* for values that neither the command line nor a variable of Paddle gives.

    torchrun's order: the command line wins over the variable.
    """
    if reading.get(TORCHRUN_RANK):  # PET_* is the configuration of the launcher around us
        return
    has_meeting = any(name in reading.values for name in OTHER_MEETINGS)
    used = []
    pairs = [(PET_PREFIX + name.upper(), BY_NAME[name].name) for name in PET_FLAGS]
    for variable, name in (*pairs, *OTHER_VARIABLES):
        text = reading.get(variable)
        is_ignored = BY_NAME[name].status == "ignored"
        if not text or is_ignored or name in reading.values:
            continue
        if name in ADDRESSES and has_meeting:
            continue
        source = ValueSource("environment", variable, without_login(text))
        reading.values[name] = ArgValue(text, source)
        used.append(f"{variable}={without_login(text)}")
    if used:
        reading.notes.append(f"from the environment, as in torchrun: {' '.join(used)}")


def apply_rdzv_conf(reader: FieldReader) -> None:
    """--rdzv-conf KEY=VALUE,...: the waits become values of ours, unless those are given."""
    if not reader.has("rdzv_conf"):
        return
    found: dict[str, str] = {}
    source = reader.source("rdzv_conf")
    for item in reader.text("rdzv_conf").strip("'\"").split(","):
        key, equals, text = (part.strip() for part in item.partition("="))
        if not (key and equals and text):
            reader.fault("rdzv_conf", f"'{item}' is not KEY=VALUE", "write join_timeout=600,...")
        else:
            found[key] = text
    for key, name in CONF_VALUES:
        text = found.pop(key, "")
        if not text:
            continue
        if to_seconds(text) is None:
            reader.fault("rdzv_conf", f"{key}={text} is not a number of seconds")
        elif name not in reader.values:
            reader.values[name] = ArgValue(
                text, ValueSource(source.kind, source.name, f"{key}={text}")
            )
    for key in [k for k in found if k not in CONF_WITHOUT_EFFECT]:
        known = [*(k for k, _ in CONF_VALUES), *sorted(CONF_WITHOUT_EFFECT)]
        reader.fault("rdzv_conf", f"there is no key '{key}'", nearest(key, known))
    unused = ", ".join(k for k in found if k in CONF_WITHOUT_EFFECT)
    if unused:
        reader.notes.append(f"{source.name}: {unused} has no counterpart and is ignored")


def read_streams(reader: FieldReader) -> tuple[tuple[int, int], ...]:
    """The streams that the console shows: (local rank, 0 to 3), ALL_RANKS for those not named.

    As in torchrun: a stream is shown unless it is redirected and not teed, or its rank is not in
    the filter.
    """
    redirected, teed = _stream_map(reader, "redirects"), _stream_map(reader, "tee")
    ranks = None
    if reader.has("local_ranks_filter"):
        ranks = frozenset(map(to_integer, reader.items("local_ranks_filter")))
        if any(rank is None or rank < 0 for rank in ranks):
            reader.fault("local_ranks_filter", "not a list of local ranks", "write for example 0,1")

    def shown(rank: int) -> int:
        if ranks is not None and rank not in ranks:
            return 0
        hidden = redirected.get(rank, redirected.get(ALL_RANKS, 0))
        return BOTH & ~(hidden & ~teed.get(rank, teed.get(ALL_RANKS, 0)))

    named = {ALL_RANKS, *redirected, *teed, *(rank for rank in ranks or () if rank is not None)}
    return tuple((rank, shown(rank)) for rank in sorted(named))


def _stream_map(reader: FieldReader, name: str) -> dict[int, int]:
    """Std.from_str: 3 is {ALL_RANKS: 3}, 0:1,1:2 is {0: 1, 1: 2}; {} where nothing is given."""
    if not reader.has(name):
        return {}
    found: dict[int, int] = {}
    for item in reader.text(name).split(","):
        left, colon, right = item.strip().partition(":")
        rank = to_integer(left) if colon else ALL_RANKS
        streams = to_integer(right if colon else left)
        is_rank = rank is not None and (rank >= 0 or not colon)
        if streams is None or not 0 <= streams <= BOTH or not is_rank:
            hint = "write 1 (stdout), 2 (stderr), 3 (both), or by local rank: 0:3,1:2"
            reader.fault(name, f"'{item}' names no streams", hint)
            return {}
        assert rank is not None
        found[rank] = streams
    if ALL_RANKS in found and len(found) > 1:
        reader.fault(name, "either one value for all ranks, or RANK:VALUE for each")
    return found


def check_others(reader: FieldReader) -> None:
    """The flags that are accepted in one meaning only."""
    for name in reader.items("signals_to_handle"):
        if name.upper() not in SIGNALS:
            reader.fault(
                "signals_to_handle",
                f"{name} is not handled",
                f"choose from {','.join(SIGNALS)}; of these all are handled in any case",
            )
    if reader.has("logs_specs") and reader.text("logs_specs") != "default":
        reader.fault(
            "logs_specs",
            "a plug-in of torchrun, which is not loaded here",
            "leave it out; --log-dir, --tee and --redirects say where output goes",
        )
