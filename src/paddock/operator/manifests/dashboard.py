"""deploy/grafana/paddock-operator.json: the operator's metrics, as a Grafana dashboard. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass

Tree = dict[str, object]
WIDTH = 24  # of Grafana's grid
HEIGHT = 8
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. queries: (PromQL, legend). unit: as Grafana names it."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = WIDTH // 2
    is_number: bool = False


def _quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket{RATE})))", f"{q:.0%}")
        for q in (0.5, 0.9, 0.99)
    )


PANELS = (
    Panel("Leader", "Operators that lead: 1 when all is well.", (("sum(paddock_is_leader)", ""),),
          width=4, is_number=True),
    Panel("Running", "Jobs that train.", (('sum(paddock_jobs{phase="Running"})', ""),), width=4,
          is_number=True),
    Panel("Waiting", "Jobs whose pods are not all up.",
          (('sum(paddock_jobs{phase=~"Pending|Starting|Restarting"})', ""),), width=4,
          is_number=True),
    Panel("Failed", "Failed jobs that are still there.",
          (('sum(paddock_jobs{phase="Failed"})', ""),), width=4, is_number=True),
    Panel("Queue", "Jobs to look at. It is 0 but for moments.", (("sum(paddock_queue_depth)", ""),),
          width=4, is_number=True),
    Panel("Errors", "Passes over a job that failed, in an hour. Each is a fault of the operator.",
          (("sum(increase(paddock_reconcile_errors_total[1h]))", ""),), width=4, is_number=True),
    Panel("Jobs", "By phase.", (("sum by (phase) (paddock_jobs)", "{{phase}}"),)),
    Panel("Restarts", "Restarts of jobs in an hour, by cause.",
          (("sum by (cause) (increase(paddock_job_restarts_total[1h]))", "{{cause}}"),)),
    Panel("Time of a pass over a job", "From the queue to the last write.",
          _quantiles("paddock_reconcile_seconds"), "s"),
    Panel("Time of a request to the API server", "99 of 100 are faster, by verb.",
          (("histogram_quantile(0.99, sum by (le, verb)"
            f" (rate(paddock_api_request_seconds_bucket{RATE})))", "{{verb}}"),), "s"),
    Panel("Requests", "To the API server, by verb and resource.",
          (("sum by (verb, resource)"
            f" (rate(paddock_api_requests_total{RATE}))", "{{verb}} {{resource}}"),), "reqps"),
    Panel("Refused requests", "By verb, resource and code; 409 now and then is no fault.",
          (("sum by (verb, resource, code)"
            f' (rate(paddock_api_requests_total{{code!~"2.."}}{RATE}))',
            "{{verb}} {{resource}} {{code}}"),), "reqps"),
    Panel("Watches begun again", "In an hour. Each ends by itself after some minutes.",
          (("sum by (resource) (increase(paddock_watch_restarts_total[1h]))", "{{resource}}"),)),
    Panel("Queue over time", "Jobs to look at.", (("sum(paddock_queue_depth)", "jobs"),)),
)  # fmt: skip


def dashboard_text() -> str:
    """JSON for Grafana's "import"; it asks for the Prometheus to use."""
    dashboard: Tree = {
        "uid": "paddock-operator",
        "title": "Paddock operator",
        "tags": ["paddock", "PaddleJob"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source()]},
        "panels": _panels(),
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _source() -> Tree:
    return {
        "name": "source",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }


def _panels() -> list[Tree]:
    """The panels one after the other, from left to right and down."""
    found: list[Tree] = []
    x = y = 0
    for number, panel in enumerate(PANELS, start=1):
        height = HEIGHT // 2 if panel.is_number else HEIGHT
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        found.append(_panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": height}))
        x += panel.width
        if x == WIDTH:
            x, y = 0, y + height
    return found


def _panel(panel: Panel, number: int, place: Tree) -> Tree:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.text,
        "type": "stat" if panel.is_number else "timeseries",
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": source,
                "expr": expr,
                "legendFormat": legend,
            }
            for at, (expr, legend) in enumerate(panel.queries)
        ],
    }
