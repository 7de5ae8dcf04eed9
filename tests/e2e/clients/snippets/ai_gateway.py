# SPDX-License-Identifier: Apache-2.0
"""A configuration of Envoy's for the resources of Envoy AI Gateway: its route becomes one by the header x-ai-eg-model,
into which it writes the model of the body, to the backend's address with the host name of that, its path as it is and
the key of the policy in `authorization`."""


def named(resources, kind, reference):
    """The resource that a reference names."""
    (found,) = (r for r in resources if r["kind"] == kind and r["metadata"]["name"] == reference["name"])
    return found


def envoy_configuration(resources, port):
    (route,) = (r for r in resources if r["kind"] == "AIGatewayRoute")
    routes, clusters = [], []
    for rule in route["spec"]["rules"]:
        (reference,) = rule["backendRefs"]
        service = named(resources, "AIServiceBackend", reference)
        if service["spec"]["schema"] != {"name": "OpenAI"}:
            raise ValueError("only OpenAI's bodies and paths stay as they are")
        backend = named(resources, service["spec"]["backendRef"]["kind"], service["spec"]["backendRef"])
        (endpoint,) = backend["spec"]["endpoints"]
        (policy,) = (r for r in resources if r["kind"] == "BackendSecurityPolicy" and any(
            target["kind"] == "AIServiceBackend" and target["name"] == reference["name"]
            for target in r["spec"]["targetRefs"]))
        key = named(resources, "Secret", policy["spec"]["apiKey"]["secretRef"])["stringData"]["apiKey"]
        address = {"address": endpoint["fqdn"]["hostname"], "port_value": endpoint["fqdn"]["port"]}
        clusters.append({
            "name": backend["metadata"]["name"], "type": "STRICT_DNS", "connect_timeout": "10s",
            "load_assignment": {"cluster_name": backend["metadata"]["name"], "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": {"socket_address": address}, "hostname": address["address"]}}]}]}})
        for match in rule["matches"]:
            (header,) = match["headers"]
            if (header["type"], header["name"]) != ("Exact", "x-ai-eg-model"):
                raise ValueError("only routes by the model")
            routes.append({
                "match": {"prefix": "/", "headers": [
                    {"name": header["name"], "string_match": {"exact": header["value"]}}]},
                "request_headers_to_add": [{"header": {"key": "authorization", "value": "Bearer " + key},
                                            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
                "route": {"cluster": backend["metadata"]["name"], "auto_host_rewrite": True,
                          "timeout": rule["timeouts"]["request"]}})
    filters = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": filters + ".network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": filters + ".http.router.v3.Router"}}]}
    listener = {"name": "http", "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
                "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager",
                                                "typed_config": manager}]}]}
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}
