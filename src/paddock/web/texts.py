"""All words of the pages, in English and Chinese. Names of states and phases are keys as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LANGUAGES = {"en": "English", "zh": "中文"}
# key -> English, Chinese
TEXTS = {
    "runs": ("Runs", "作业"),
    "run": ("Run", "作业"),
    "overview": ("Overview", "概览"),
    "logs": ("Logs", "日志"),
    "failure": ("Failure", "故障"),
    "compare": ("Compare", "对比"),
    "report": ("Report", "报告"),
    "state": ("State", "状态"),
    "ranks": ("Ranks", "rank"),
    "rank": ("Rank", "rank"),
    "age": ("Age", "距今"),
    "duration": ("Duration", "时长"),
    "backend": ("Backend", "后端"),
    "command": ("Command", "命令"),
    "progress": ("Progress", "进度"),
    "step": ("Step", "步"),
    "epoch": ("Epoch", "轮"),
    "loss": ("Loss", "损失"),
    "rate": ("Rate", "速度"),
    "cpu": ("CPU", "CPU"),
    "gpu": ("device", "设备"),
    "memory": ("Memory", "内存"),
    "line_age": ("Last line", "最后一行"),
    "node": ("Node", "节点"),
    "nodes": ("Nodes", "节点"),
    "attempt": ("Attempt", "尝试"),
    "attempts": ("Timeline", "时间线"),
    "curves": ("Curves", "曲线"),
    "cores": ("Cores", "核数"),
    "bill": ("Bill", "时间账单"),
    "bill_so_far": ("So far", "截至目前"),
    "rank_hours": ("rank-hours", "rank·小时"),
    "servers": ("Parameter servers", "参数服务器"),
    "server": ("Server", "服务器"),
    "table": ("Table", "表"),
    "rows": ("Rows", "行数"),
    "connections": ("Connections", "连接"),
    "rows_by_server": ("Rows of each server", "各服务器的行数"),
    "pushes": ("Pushes/s", "每秒 push"),
    "pulls": ("Pulls/s", "每秒 pull"),
    "lag": ("Steps apart", "训练进程相差步数"),
    "behind": ("Records the replica lacks", "副本落后的记录数"),
    "primary": ("primary", "主"),
    "replica": ("replica", "副本"),
    "notices": ("What happened", "事件"),
    "stall": ("Nothing moved", "没有进展"),
    "stall_over": ("The ranks moved again", "恢复进展"),
    "held": ("A rank was stopped by a signal or a debugger", "有 rank 被信号或调试器暂停"),
    "stacks": ("Stacks", "调用栈"),
    "suspects": ("Suspects", "可疑的 rank"),
    "suspect": ("suspect", "可疑"),
    "place": ("Where", "位置"),
    "culprit": ("What failed first", "最先失败的"),
    "traceback": ("Traceback, or last lines", "Traceback 或最后几行"),
    "no_failure": ("This run has not failed.", "该作业没有失败。"),
    "no_stacks": (
        "No stacks were taken. Paddock takes them when the ranks stand still.",
        "没有调用栈。各 rank 停止不动时，Paddock 会采集调用栈。",
    ),
    "no_history": (
        "No history is here: the run has just begun, is older than this version, or elsewhere.",
        "此处没有历史记录：作业刚启动、由旧版本启动，或在其他机器上。",
    ),
    "no_runs": (
        "No runs yet. Start one with `paddock launch train.py` or `paddock submit`.",
        "还没有作业。用 `paddock launch train.py` 或 `paddock submit` 启动一个。",
    ),
    "no_match": ("No run has this in its name, command or state.", "没有符合条件的作业。"),
    "not_shown": ("more runs are not shown", "个作业未显示"),
    "no_lines": ("No lines.", "没有日志。"),
    "no_values": ("No values yet", "还没有数据"),
    "damaged": ("records cannot be read", "条记录无法读取"),
    "skipped": ("damaged rows of the history were skipped", "行历史记录已损坏，已跳过"),
    "newer": (
        "A newer Paddock wrote this history. Some of it may be missing here.",
        "该历史由更新版本的 Paddock 写入，此处可能显示不全。",
    ),
    "more_ranks": ("more ranks", "个 rank 未显示"),
    "older_lines": ("Older lines", "更早的日志"),
    "newer_lines": ("Newer lines", "更新的日志"),
    "newest_lines": ("Newest lines", "最新的日志"),
    "to_failure": ("Jump to the failure", "跳到故障处"),
    "search": ("Search", "搜索"),
    "only_ranks": ("Only ranks, as 0,4-7", "只看这些 rank，如 0,4-7"),
    "fold": ("Fold equal lines", "折叠相同的行"),
    "show": ("Show", "显示"),
    "left_out": ("lines left out", "行未显示"),
    "cut": ("bytes cut", "字节已截断"),
    "live": ("Live", "实时"),
    "paused": ("Paused", "已暂停"),
    "offline": ("No answer from `paddock web`", "`paddock web` 没有响应"),
    "stop": ("Stop", "停止"),
    "stop_now": ("Stop without grace", "立即停止"),
    "stop_sure": ("Stop this run?", "确定停止该作业？"),
    "stopping_asked": ("The run was asked to stop.", "已请求停止该作业。"),
    "exit_code": ("exit code", "退出码"),
    "profile": ("Progress is read from lines of", "进度来源（日志格式）"),
    "by_step": ("By step", "按步"),
    "by_time": ("By time", "按时间"),
    "choose": (
        "Choose two or more runs on the first page, then Compare.",
        "请先在首页勾选两个或更多作业，再点“对比”。",
    ),
    "keys": ("Keys", "快捷键"),
    "key_rows": ("next, previous row", "下一行、上一行"),
    "key_open": ("open the row", "打开该行"),
    "key_pages": ("runs, overview, logs, failure", "作业、概览、日志、故障"),
    "key_search": ("search", "搜索"),
    "key_pause": ("pause or go on", "暂停或继续"),
    "key_help": ("this list", "本列表"),
    "close": ("Close", "关闭"),
    "language": ("Language", "语言"),
    "made_at": ("Made by Paddock at", "由 Paddock 生成于"),
    "start": ("start", "启动"),
    "rendezvous": ("rendezvous", "等待节点"),
    "warm-up": ("warm-up", "预热"),
    "useful": ("useful", "有效训练"),
    "stalled": ("stalled", "停滞"),
    "lost": ("lost", "丢失"),
    "restart": ("restart", "重启"),
    "draining": ("draining", "收尾"),
    "pending": ("pending", "排队中"),
    "starting": ("starting", "启动中"),
    "running": ("running", "运行中"),
    "stopping": ("stopping", "停止中"),
    "succeeded": ("succeeded", "成功"),
    "failed": ("failed", "失败"),
    "cancelled": ("stopped", "已停止"),
    "ended": ("ended", "已结束"),
    "unknown": ("unknown", "未知"),
}


def translator(language: str) -> Callable[[str], str]:
    """A call that gives the text of a key; a key without text is its own, as an exit's cause.

    >>> translator("zh")("runs"), translator("en")("exited with code 7")
    ('作业', 'exited with code 7')
    """
    column = list(LANGUAGES).index(language)
    return lambda key: TEXTS[key][column] if key in TEXTS else key


def chosen_language(asked: str, accepted: str) -> str:
    """The language of a page. asked: by the switch; accepted: the header Accept-Language.

    >>> chosen_language("", "zh-CN,zh;q=0.9,en;q=0.8"), chosen_language("en", "zh")
    ('zh', 'en')
    """
    if asked in LANGUAGES:
        return asked
    weighted = []
    for number, part in enumerate(accepted.split(",")[:20]):
        name, _, weight = part.strip().partition(";q=")
        try:
            weighted.append((-float(weight or 1), number, name[:2].lower()))
        except ValueError:
            continue
    return next((name for _, _, name in sorted(weighted) if name in LANGUAGES), "en")
