"""The flow of a job, the one picture of the README: ways in, plan, launchers, ranks.

The names of ways in and frameworks are those of the tables in the code.
"""

from __future__ import annotations

from paddock.backends.table import BACKENDS
from paddock.contracts import CONTRACTS
from pictures import svg

WIDTH, HEIGHT = 800, 396
SHOWN = {
    "ssh": "ssh",
    "slurm": "Slurm",
    "mpi": "MPI",
    "kubernetes": "Kubernetes",
    "script": "script",
}
FRAMEWORKS = {"paddle": "PaddlePaddle", "torch": "PyTorch", "jax": "JAX", "mpi": "MPI"}
NODES = ("node-a", "node-b", "node-c")
SAID = {
    "en": {
        "title": "The flow of a job",
        "job": "one job description",
        "job_of": "flags, PaddleJob file or resource",
        "here": "paddock launch",
        "here_of": "this machine, or the same line on each",
        "there": "paddock submit",
        "cluster": "kubectl apply",
        "cluster_of": "the operator makes the pods",
        "plan": "plan",
        "plan_of": "job + hosts + attempt: the same bytes on every node",
        "launcher": "launcher",
        "ranks": "your script, unchanged",
        "back": "a rank fails, a node is lost or joins: all stop; the next attempt, or the verdict",
    },
    "zh": {
        "title": "一个任务的流程",
        "job": "一份任务描述",
        "job_of": "命令行参数、PaddleJob 文件或资源",
        "here": "paddock launch",
        "here_of": "本机，或在每台机器上执行同一行命令",
        "there": "paddock submit",
        "cluster": "kubectl apply",
        "cluster_of": "由 operator 创建 Pod",
        "plan": "计划",
        "plan_of": "任务 + 主机 + 第几次尝试：各节点算出的字节完全相同",
        "launcher": "启动器",
        "ranks": "你的脚本，无需改动",
        "back": "rank 失败、节点丢失或加入：全部停止，再次尝试，或给出结论",
    },
}


def draw(language: str) -> svg.Picture:
    """From top to bottom: the job, three ways in, the plan, a launcher on each node, its ranks."""
    said = SAID[language]
    by = ", ".join(SHOWN[b] for b in BACKENDS if b in SHOWN)
    frameworks = ", ".join(FRAMEWORKS[c] for c in CONTRACTS if c in FRAMEWORKS)
    ways = [
        (said["here"], said["here_of"]),
        (said["there"], by),
        (said["cluster"], said["cluster_of"]),
    ]
    body = card(200, 14, 400, said["job"], said["job_of"])
    for number, (name, text) in enumerate(ways):
        x = 20 + 260 * number
        middle = x + 120
        body.append(svg.arrow([(400, 64), (400, 74), (middle, 74), (middle, 88)]))
        body += card(x, 88, 240, name, text, is_typed=True)
        body.append(svg.arrow([(middle, 138), (middle, 148), (400, 148), (400, 162)]))
    body += card(200, 162, 400, said["plan"], said["plan_of"], stroke="forward")
    for number, node in enumerate(NODES):
        x = 20 + 260 * number
        middle = x + 120
        body.append(svg.arrow([(400, 212), (400, 224), (middle, 224), (middle, 240)]))
        body.append(svg.box(x, 240, 240, 76))
        body.append(svg.words(x + 12, 260, f"{said['launcher']} · {node}", font_weight="600"))
        for rank in range(4):
            left = x + 12 + 55 * rank
            body.append(svg.box(left, 272, 50, 32, rx="5", fill="ground", stroke="good"))
            text = f"rank {4 * number + rank}"
            body.append(svg.words(left + 25, 292, text, text_anchor="middle", font_size="11"))
    middle = {"text_anchor": "middle"}
    ranks = f"{said['ranks']}: {frameworks}"
    body.append(svg.words(400, 338, ranks, **middle))
    loop = [(140, 316), (140, 352), (790, 352), (790, 187), (600, 187)]
    body.append(svg.arrow(loop, "back", stroke_dasharray="5 4"))
    body.append(svg.words(400, 374, said["back"], fill="back", **middle))
    described = " -> ".join([said["job"], ", ".join(w for w, _ in ways), said["plan"]])
    described += f" ({said['plan_of']}) -> {said['launcher']} -> {ranks}. {said['back']}"
    return svg.Picture(WIDTH, HEIGHT, said["title"], described, body)


def card(
    x: float, y: float, width: float, name: str, text: str, *, is_typed: bool = False, **how: object
) -> list[str]:
    """A box with a name and a line below it."""
    middle = x + width / 2
    family = {"font_family": svg.MONO} if is_typed else {}
    return [
        svg.box(x, y, width, 50, **how),
        svg.words(middle, y + 21, name, text_anchor="middle", font_weight="600", **family),
        svg.words(middle, y + 39, text, text_anchor="middle", font_size="12", fill="quiet"),
    ]
