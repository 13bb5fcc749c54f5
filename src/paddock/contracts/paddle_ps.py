"""Paddle, parameter-server modes: servers, trainers and heterogeneous trainers.

Source: paddlepaddle 3.3.1, distributed/launch/controllers/ps.py (modes ps) and
fleet/launch_utils.py, ParameterServerLauncher (mode ps-heter, which only the older launcher had);
reader: fleet/base/role_maker.py, _ps_env. A server or heter trainer finds its index as the
position of POD_IP:PADDLE_PORT in the list, so both must stand in it exactly.
"""

from __future__ import annotations

from paddock.contracts import TRAINING_ROLES, selected_flag, servers_env

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The parameter-server environment of one process of any role."""
    plan = world.plan
    common = servers_env(world, proc)
    found = {
        **common,
        "PADDLE_NNODES": str(plan.nnodes),
        "PADDLE_TRAINER_ENDPOINTS": world.worker_endpoints,
        "PADDLE_ROLE": common["TRAINING_ROLE"],
        "PADDLE_GLOO_RENDEZVOUS": "3",  # HTTP; role_maker.py, _gloo_init
        # Never created, as in Paddle: only rendezvous kinds 1 and 2 would use it.
        "PADDLE_GLOO_FS_PATH": f"/tmp/paddle-gloo-{plan.job_id}-{plan.attempt}",
        "PADDLE_GLOO_HTTP_ENDPOINT": world.gloo_http,
        "PADDLE_WITH_GLOO": plan.with_gloo,
        "PADDLE_COORDINATOR_ENDPOINTS": "",  # federated mode is not offered
    }
    if proc.device_indices:
        found[selected_flag(proc.device_kind)] = ",".join(map(str, proc.device_indices))
    elif proc.role == "heter" and proc.stage_device not in ("", "cpu"):
        # As Paddle does: which device of its node a stage computes on is not said, it is the first.
        found[selected_flag(proc.stage_device)] = "0"
    if plan.mode == "ps-heter":
        found.update(_heter_env(world, proc))
    return found


def pod_env(role: str, port: int, workers: str, servers: str) -> dict[str, str]:
    """The variables by which the launcher in a pod of one process learns its job.

    port: of every process. workers, servers: their endpoints, with commas; servers may be "".
    Reader: jobfile/environment.py.
    """
    found = {
        "TRAINING_ROLE": TRAINING_ROLES[role],
        "PADDLE_PORT": str(port),
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_TRAINER_ENDPOINTS": workers,
    }
    return found | ({"PADDLE_PSERVERS_IP_PORT_LIST": servers} if servers else {})


def _heter_env(world: World, proc: Proc) -> dict[str, str]:
    everywhere = {"PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": world.heter_endpoints}
    if proc.role == "ps":
        return everywhere
    stage = 1 if proc.role == "worker" else proc.stage
    before = world.stage_endpoints.get(stage - 1, "") if stage > 1 else ""
    return {
        **everywhere,
        "STAGE_ID": str(stage),
        "STAGE_NUM": str(len(world.stage_sizes)),
        # Python list text, read with re.findall(r"\d+"); role_maker.py line 995.
        "PADDLE_STAGE_TRAINERS_NUM": str(list(world.stage_sizes)),
        "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST": before,
        "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST": world.stage_endpoints.get(stage + 1, ""),
        # launch_utils.py: stage 1 is always the CPU trainer.
        "HETER_DEVICE_TYPE": proc.stage_device or "cpu",
    }
