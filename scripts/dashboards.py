#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes Grafana's dashboards of helm/continuo/files/dashboards from the panels below.

    scripts/dashboards.py            writes them
    scripts/dashboards.py --check    tells what would change, exit code 1
"""
import json
import pathlib
import sys

OUT = pathlib.Path(__file__).resolve().parents[1] / "helm/continuo/files/dashboards"
G = 'namespace=~"$namespace",model=~"$model"'  # gateways and workers, by model
N = 'namespace=~"$namespace"'                  # what has no model
W = 'namespace=~"$namespace",pod=~"$pod"'      # one worker
BAD = 'code=~"INTERNAL|UNKNOWN|DATA_LOSS|UNAVAILABLE|DEADLINE_EXCEEDED",reason!~"CONTINUE|DRAINING"'


def rate(metric, labels, by="", window="$__rate_interval"):
    return f"sum{f' by ({by}) ' if by else ''}(rate({metric}{{{labels}}}[{window}]))"


def quantile(q, metric, labels, by="le"):
    return f"histogram_quantile({q}, {rate(metric + '_bucket', labels, by)})"


def quantiles(metric, labels):
    return {f"p{round(q * 100)}": quantile(q, metric, labels) for q in (0.5, 0.95, 0.99)}


def share(part, whole):
    return f"{part} / ({whole} > 0)"


# A worker that loads has no blocks yet, so this is of those that serve.
KV_OCCUPANCY = share(f"continuo_kv_blocks_used{{{G}}}", f"continuo_kv_blocks_total{{{G}}}")


# (title, unit, {legend: query}, what it shows[, more]); a string begins a row.
FLEET = [
    "Now",
    ("Requests", "reqps", {"": rate("continuo_gateway_requests_total", G)}, "Ended, a second", "stat"),
    ("Open streams", "short", {"": f"sum(continuo_gateway_open_streams{{{N}}})"}, "", "stat"),
    ("Generated tokens", "short", {"": rate("continuo_generated_tokens_total", G)}, "A second", "stat"),
    ("Serving workers", "short",
     {"": f'sum(max by (namespace, model, pool) (continuo_gateway_workers{{{G},parent="",state="serving"}}))'}, "",
     "stat"),
    ("Failed", "percentunit", {"": share(rate("continuo_gateway_requests_total", f"{G},{BAD}"),
                                         rate("continuo_gateway_requests_total", G))},
     "Share of requests, for reasons of ours", "stat"),
    ("KV cache in use", "percentunit",
     {"": share(f"sum(continuo_kv_blocks_used{{{G}}})", f"sum(continuo_kv_blocks_total{{{G}}})")}, "",
     "stat"),
    "Traffic",
    ("Requests by status", "reqps",
     {"{{code}}": rate("continuo_gateway_requests_total", G, "code") + " > 0"}, "As clients see it"),
    ("Tokens", "short", {"prompt": rate("continuo_prompt_tokens_total", G),
                         "generated": rate("continuo_generated_tokens_total", G)},
     "A second, on the workers"),
    ("Streams", "short", {"open": f"sum(continuo_gateway_open_streams{{{N}}})",
                          "without an answer": f"sum(continuo_gateway_queued_requests{{{N}}})"},
     "At the gateways"),
    ("Prompt tokens without an answer", "short",
     {"{{pod}}": f"sum by (pod) (continuo_gateway_queued_prompt_tokens{{{N}}})"},
     "Estimated; --max_queued_tokens bounds them at each gateway"),
    ("Rejected or given up", "reqps",
     {"{{reason}}": rate("continuo_gateway_rejected_total", N, "reason"),
      "no known key": rate("continuo_gateway_unauthenticated_total", N)}, "A second"),
    ("Tokens by tenant", "short",
     {"{{tenant}} {{kind}}":
      f"topk(10, {rate('continuo_gateway_tenant_tokens_total', N, 'tenant, kind')})"},
     "The ten largest, a second"),
    "Latency",
    ("Time to first token", "s", quantiles("continuo_gateway_time_to_first_token_seconds", G),
     "From admission at the gateway"),
    ("Inter-token latency", "s", quantiles("continuo_gateway_inter_token_seconds", G),
     "As the gateway sees them arrive"),
    ("Queue time at workers", "s", quantiles("continuo_queue_seconds", G),
     "From arrival to the first step"),
    ("Request latency", "s", quantiles("continuo_request_seconds", G), "On a worker"),
    "Limits of gateways",
    ("Open streams", "percentunit",
     {"{{pod}}": share(f"continuo_gateway_open_streams{{{N}}}", f"continuo_gateway_max_open_streams{{{N}}}")},
     "Share of --max_open_requests"),
    ("Bytes of open requests", "percentunit",
     {"{{pod}}": share(f"continuo_gateway_open_bytes{{{N}}}", f"continuo_gateway_max_open_bytes{{{N}}}")},
     "Share of --max_open_bytes"),
    ("Queued prompt tokens", "percentunit",
     {"{{pod}}": share(f"sum by (pod) (continuo_gateway_queued_prompt_tokens{{{N}}})",
                       f"sum by (pod) (continuo_gateway_max_queued_prompt_tokens{{{N}}})")},
     "Share of --max_queued_tokens"),
    ("Requests without a worker", "short", {"{{pod}}": f"continuo_gateway_cold_requests{{{N}}}"},
     "They wait for models of pools at zero"),
    "Workers",
    ("Workers by state", "short",
     {"{{state}}": f"sum by (state) (max by (namespace, model, pool, state) "
                   f'(continuo_gateway_workers{{{G},parent=""}}))'}, "As gateways see them"),
    ("KV occupancy", "percentunit",
     {"{{pod}}": KV_OCCUPANCY}, ""),
    ("Batch size", "short", {"{{pod}}": f"continuo_running_requests{{{G}}}"}, "Sequences that run"),
    ("Queue", "short", {"{{pod}}": f"continuo_waiting_requests{{{G}}}"}, "Sequences that wait"),
    ("Waiting prompt tokens", "short", {"{{pod}}": f"continuo_waiting_prompt_tokens{{{G}}}"}, ""),
    ("Preemptions", "ops", {"{{pod}}": rate("continuo_preemptions_total", G, "pod")},
     "Sequences that gave their blocks back, a second"),
    ("Prefix cache hits", "percentunit",
     {"{{model}}": share(rate("continuo_prefix_cache_hit_tokens_total", G, "model"),
                         rate("continuo_prefix_cache_queried_tokens_total", G, "model"))},
     "Share of prompt tokens found in the cache"),
    ("Errors of workers", "reqps",
     {"{{code}}": rate("continuo_requests_total", f'{G},code!="OK"', "code")},
     "Calls that ended otherwise than OK; streams that migrate are CANCELLED or UNAVAILABLE here"),
    "Migrations",
    ("Migrations by reason", "ops",
     {"{{reason}}": rate("continuo_gateway_migrations_total", G, "reason")}, "A second"),
    ("Stall of a migration", "s",
     {"p50": quantile(0.5, "continuo_gateway_migration_stall_seconds", G),
      "p95": quantile(0.95, "continuo_gateway_migration_stall_seconds", G)},
     "From the loss to the next worker's first response"),
    ("Load report age", "s", {"{{pod}}": f"continuo_gateway_load_age_seconds{{{N}}}"},
     "The oldest that a gateway routes by"),
    "Processes",
    ("CPU", "short", {"{{pod}}": rate("process_cpu_seconds_total", f'{N},pod=~".*(gateway|worker).*"',
                                      "pod")}, "Cores"),
    ("Memory", "bytes",
     {"{{pod}}": f'process_resident_memory_bytes{{{N},pod=~".*(gateway|worker).*"}}'}, ""),
    ("Uptime", "s",
     {"{{pod}}": f'time() - process_start_time_seconds{{{N},pod=~".*(gateway|worker).*"}}'}, ""),
    ("Builds", "short",
     {"workers {{version}} {{fingerprint}}":
      f"count by (version, fingerprint) (continuo_build_info{{{G}}})",
      "gateways {{version}}": f"count by (version) (continuo_gateway_build_info{{{N}}})"}, ""),
]
WORKER = [
    "Load",
    ("KV blocks", "short", {"used": f"sum(continuo_kv_blocks_used{{{W}}})",
                            "kept for their prefix": f"sum(continuo_kv_blocks_cached{{{W}}})",
                            "all": f"sum(continuo_kv_blocks_total{{{W}}})"}, ""),
    ("Sequences", "short", {"running": f"sum(continuo_running_requests{{{W}}})",
                            "waiting": f"sum(continuo_waiting_requests{{{W}}})"}, ""),
    ("Waiting prompt tokens", "short", {"": f"sum(continuo_waiting_prompt_tokens{{{W}}})"}, ""),
    "Steps",
    ("Steps", "ops", {"": rate("continuo_step_seconds_count", W)}, "A second"),
    ("Step duration", "s", quantiles("continuo_step_seconds", W), ""),
    ("Time of tokens", "percentunit", {"": rate("continuo_token_seconds_total", W)},
     "Share of workers' time that tokens take, beyond what any step takes; autoscaling goes by it"),
    ("Tokens of a step", "short",
     {**quantiles("continuo_step_rows", W),
      "mean": share(rate("continuo_step_rows_sum", W), rate("continuo_step_rows_count", W))},
     "Tokens that a step computes"),
    ("Tokens", "short", {"prompt": rate("continuo_prompt_tokens_total", W),
                         "generated": rate("continuo_generated_tokens_total", W)}, "A second"),
    ("Preemptions", "ops", {"": rate("continuo_preemptions_total", W)}, "A second"),
    ("Prefix cache hits", "percentunit",
     {"": share(rate("continuo_prefix_cache_hit_tokens_total", W),
                rate("continuo_prefix_cache_queried_tokens_total", W))},
     "Share of prompt tokens found in the cache"),
    "Requests",
    ("Grammars", "ops", {"compiled": rate("continuo_grammar_compiles_total", W),
                         "refused": rate("continuo_grammar_refusals_total", W),
                         "found compiled": rate("continuo_grammar_cache_hits_total", W)},
     "Grammars of requests whose answers have to match"),
    ("Grammar compilation", "s", {"mean": share(rate("continuo_grammar_compile_seconds_total", W),
                                                rate("continuo_grammar_compiles_total", W))}, ""),
    ("Calls by status", "reqps", {"{{code}}": rate("continuo_requests_total", W, "code") + " > 0"}, ""),
    ("Queue time", "s", quantiles("continuo_queue_seconds", W), "From arrival to the first step"),
    ("Time to first token", "s", quantiles("continuo_time_to_first_token_seconds", W), "From arrival"),
    ("Inter-token latency", "s", quantiles("continuo_inter_token_seconds", W), ""),
    ("Request latency", "s", quantiles("continuo_request_seconds", W), ""),
    "Process",
    ("CPU", "short", {"": rate("process_cpu_seconds_total", W)}, "Cores"),
    ("Memory", "bytes", {"resident": f"sum(process_resident_memory_bytes{{{W}}})"}, ""),
    ("File descriptors", "short", {"": f"sum(process_open_fds{{{W}}})"}, ""),
    ("Defects", "short", {"KV blocks unaccounted": f"sum(continuo_kv_blocks_unaccounted{{{W}}})",
                          "spans dropped": f"sum(continuo_spans_dropped_total{{{W}}})"},
     "0 where all is well"),
]
SLO = [
    "Errors: 99.9 % of the requests do not fail for reasons of ours",
    ("Failed", "percentunit", {"5 minutes {{model}}": f"continuo:errors:ratio_rate5m{{{G}}}",
                               "1 hour {{model}}": f"continuo:errors:ratio_rate1h{{{G}}}",
                               "6 hours {{model}}": f"continuo:errors:ratio_rate6h{{{G}}}"},
     "14.4 times the budget for an hour alerts at once, 6 times for 6 hours later"),
    ("Budget used, 6 hours", "percentunit",
     {"{{model}}": f"continuo:errors:ratio_rate6h{{{G}}} / 0.001"}, "1 is exactly the budget"),
    ("Failed requests by status", "reqps",
     {"{{code}}": rate("continuo_gateway_requests_total", f"{G},{BAD}", "code")}, ""),
    "Latency: 95 % of the answers",
    ("First token", "s", {"{{model}} p95": f"continuo:first_token_seconds:p95{{{G}}}",
                          "objective": f"max(continuo:slo_first_token_seconds{{{N}}})"}, ""),
    ("Inter-token latency", "s", {"{{model}} p95": f"continuo:inter_token_seconds:p95{{{G}}}",
                             "objective": f"max(continuo:slo_inter_token_seconds{{{N}}})"}, ""),
    ("First tokens by duration", "short",
     {"{{le}}": rate("continuo_gateway_time_to_first_token_seconds_bucket", G, "le")}, "", "heatmap"),
    ("Inter-token latencies by duration", "short",
     {"{{le}}": rate("continuo_gateway_inter_token_seconds_bucket", G, "le")}, "", "heatmap"),
    "Capacity",
    ("KV occupancy", "percentunit",
     {"{{model}}": f"avg by (model) ({KV_OCCUPANCY})"},
     "Workers are scaled by it"),
    ("Rejected for overload", "percentunit",
     {"": share(rate("continuo_gateway_rejected_total", f'{N},reason="OVERLOADED"'),
                rate("continuo_gateway_requests_total", N))}, "Share of requests"),
]
# Each panel has a line for each pool, so that a canary stands beside the stable pool.
CANARY = [
    "Traffic",
    ("Requests", "reqps", {"{{pool}}": rate("continuo_gateway_requests_total", G, "pool")}, "Ended, a second"),
    ("Share of requests", "percentunit",
     {"{{pool}}": rate("continuo_gateway_requests_total", G, "pool") + " / on () group_left () (" +
                  rate("continuo_gateway_requests_total", G) + " > 0)"},
     "As the weights say, where each pool has workers"),
    ("Serving workers", "short",
     {"{{pool}}": f'sum by (pool) (max by (namespace, model, pool) '
                  f'(continuo_gateway_workers{{{G},parent="",state="serving"}}))'}, "As gateways see them"),
    "Errors",
    ("Failed", "percentunit", {"{{pool}}": share(rate("continuo_gateway_requests_total", f"{G},{BAD}", "pool"),
                                                 rate("continuo_gateway_requests_total", G, "pool"))},
     "Share of requests, for reasons of ours"),
    ("Ends by status", "reqps",
     {"{{pool}} {{code}} {{reason}}":
      rate("continuo_gateway_requests_total", G, "pool, code, reason") + " > 0"}, "As clients see it"),
    ("Migrations away", "ops",
     {"{{pool}} {{reason}}": rate("continuo_gateway_migrations_total", G, "pool, reason")},
     "By the pool that was left, a second"),
    "Latency",
    *((title, "s", {f"{{{{pool}}}} p{round(q * 100)}": quantile(q, metric, G, "pool, le") for q in (0.5, 0.95)}, what)
      for title, metric, what in (
          ("First token", "continuo_gateway_time_to_first_token_seconds", "From admission at the gateway"),
          ("Between tokens", "continuo_gateway_inter_token_seconds", "As the gateway sees them arrive"),
          ("Request", "continuo_gateway_request_seconds", "Those that end well, until the client has all"),
          ("Queue", "continuo_gateway_queue_seconds", "Until a worker begins the prompt"),
          ("Stall of a migration", "continuo_gateway_migration_stall_seconds", "By the pool that goes on"))),
    ("First token, canary to stable", "short",
     {"{{pool}}": "(" + quantile(0.95, "continuo_gateway_time_to_first_token_seconds", G, "pool, le") +
      ") / scalar(min(" + quantile(0.95, "continuo_gateway_time_to_first_token_seconds", G, "pool, le") + "))"},
     "p95, relative to the fastest pool"),
    "Builds",
    ("Workers by fingerprint", "short",
     {"{{pool}} {{fingerprint}}": f"sum by (pool, fingerprint) (max by (namespace, model, pool, fingerprint) "
                                  f"(continuo_gateway_fingerprint_workers{{{G}}}))"},
     "Streams go on byte for byte among equal ones"),
]
DASHBOARDS = {"fleet": ("Continuo / Fleet", FLEET), "worker": ("Continuo / Worker", WORKER),
              "slo": ("Continuo / SLOs", SLO), "canary": ("Continuo / Canary", CANARY)}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name, query, many=True):
    return {"name": name, "label": name, "type": "query", "datasource": SOURCE, "refresh": 2,
            "query": {"query": query, "refId": name}, "sort": 1, "multi": many, "includeAll": many,
            "allValue": ".*" if many else None,
            "current": {"text": "All", "value": "$__all"} if many else {}}


def panel(number, place, title, unit, queries, description="", kind="timeseries"):
    targets = [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr,
                "legendFormat": legend or "__auto",
                **({"format": "heatmap"} if kind == "heatmap" else {}),
                **({"instant": True} if kind == "stat" else {})}
               for i, (legend, expr) in enumerate(queries.items())]
    options = {"timeseries": {"legend": {"displayMode": "list", "placement": "bottom"},
                              "tooltip": {"mode": "multi", "sort": "desc"}},
               "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"},
               "heatmap": {"calculate": False, "yAxis": {"unit": "s"}}}[kind]
    return {"id": number, "type": kind, "title": title, "description": description,
            "datasource": SOURCE, "gridPos": place, "targets": targets, "options": options,
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []}}


def dashboard(uid, title, rows):
    panels, x, y, height = [], 0, 0, 0
    for number, row in enumerate(rows, 1):
        if isinstance(row, str):
            y, x = y + height, 0
            panels.append({"id": number, "type": "row", "title": row, "collapsed": False,
                           "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
            y, height = y + 1, 0
            continue
        stat = row[-1] == "stat"
        w, h = (4, 4) if stat else (8, 8)
        if x + w > 24:
            x, y = 0, y + h
        panels.append(panel(number, {"x": x, "y": y, "w": w, "h": h}, *row))
        x, height = x + w, h
    variables = [{"name": "datasource", "label": "Prometheus", "type": "datasource",
                  "query": "prometheus", "current": {}},
                 variable("namespace", "label_values(continuo_gateway_build_info, namespace)")]
    if uid == "worker":
        variables.append(variable(
            "pod", 'label_values(continuo_build_info{namespace=~"$namespace"}, pod)', many=False))
    else:
        variables.append(variable(
            "model", 'label_values(continuo_gateway_workers{namespace=~"$namespace"}, model)'))
    return {"uid": f"continuo-{uid}", "title": title, "tags": ["continuo"], "schemaVersion": 39,
            "editable": True, "refresh": "10s", "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser", "templating": {"list": variables},
            "links": [{"type": "dashboards", "tags": ["continuo"], "title": "Continuo",
                       "asDropdown": True, "keepTime": True, "includeVars": True}],
            "annotations": {"list": [{
                "name": "Alerts", "enable": True, "iconColor": "red", "datasource": SOURCE,
                "expr": 'ALERTS{alertname=~"Continuo.*",alertstate="firing"}',
                "titleFormat": "{{alertname}}"}]},
            "panels": panels}


def main():
    stale = []
    for uid, (title, rows) in DASHBOARDS.items():
        path = OUT / f"{uid}.json"
        text = json.dumps(dashboard(uid, title, rows), indent=1, ensure_ascii=False) + "\n"
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        sys.exit(f"helm/continuo/files/dashboards: {', '.join(stale)} out of date; run "
                 "scripts/dashboards.py")


main()
