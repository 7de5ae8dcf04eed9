# SPDX-License-Identifier: Apache-2.0
"""Bad values of helm/continuo are refused before anything is made, with a message that names the
value and what is allowed."""
import json
import unittest

import chart

P = "pools.m"
POOL = "inferencePool.enabled=true,inferencePool.endpointPicker.name=e"
# --set arguments, and the error of helm.
SCHEMA = [
    ("gatway.replicas=2", "at '': additional properties 'gatway' not allowed"),
    ("gateway.replica=2", "at '/gateway': additional properties 'replica' not allowed"),
    ("gateway.replicas=two", "at '/gateway/replicas': got string, want integer"),
    ("gateway.replicas=-1", "at '/gateway/replicas': minimum: got -1, want 0"),
    ("gateway.routingPolicy=best", "at '/gateway/routingPolicy': value must be one of "
     "'least_loaded', 'prefix_affinity', 'session_affinity', 'affinity', 'random'"),
    ("gateway.drainSeconds=10m", "at '/gateway/drainSeconds': got string, want integer"),
    ("gateway.connectionSeconds=5000", "at '/gateway/connectionSeconds': maximum: got 5,000, want 3,600"),
    ("gateway.service.type=Internal", "at '/gateway/service/type': value must be one of "
     "'ClusterIP', 'NodePort', 'LoadBalancer'"),
    ("gateway.service.nodePorts.grpc=70000", "maximum: got 70,000, want 65,535"),
    ("gateway.flags.max_open_request=1", "at '/gateway/flags': additional properties "
     "'max_open_request' not allowed"),
    ("gateway.flags.max_open_requests=many", "at '/gateway/flags/max_open_requests': got string"),
    ("gateway.flags.max_request_bytes=8megs", "at '/gateway/flags/max_request_bytes': '8megs' does "
     "not match pattern"),
    ("gateway.flags.listen=0.0.0.0:1", "at '/gateway/flags': additional properties 'listen'"),
    ("gateway.spread=maybe", "at '/gateway/spread': value must be one of"),
    ("gateway.maxUnavailable=half", "at '/gateway/maxUnavailable': 'half' does not match pattern"),
    *((f"{of}.maxUnavailable={value}", f"at '/{of.replace('.', '/')}/maxUnavailable': {message}")
      for of in ("gateway", "worker", P)
      for value, message in ((0, "minimum: got 0, want 1"), ("0%", "'0%' does not match pattern"),
                             ("00%", "'00%' does not match pattern"))),
    ("gateway.resources.limits.memory=2 GB", "'2 GB' does not match pattern"),
    ("gateway.resources.memory=2Gi", "at '/gateway/resources': additional properties 'memory'"),
    ("gateway.resources.limits.memory=4K", "'4K' does not match pattern"),
    ("gateway.env[0].value=x", "at '/gateway/env/0': missing property 'name'"),
    ("gateway.env.TZ=UTC", "at '/gateway/env': got object, want array"),
    ("monitoring.tokenSecret.name=A", "at '/monitoring/tokenSecret/name': 'A' does not match pattern"),
    ("download.proxy=p:3128", "at '/download/proxy': 'p:3128' does not match pattern"),
    ("ipFamilyPolicy=Dual", "at '/ipFamilyPolicy': value must be one of"),
    (f"{P}.gpuResource=gpu", "at '/pools/m/gpuResource': 'gpu' does not match pattern"),
    ("fullnameOverride=a.b", "at '/fullnameOverride': 'a.b' does not match pattern"),
    ("fullnameOverride=1a", "at '/fullnameOverride': '1a' does not match pattern"),
    ("nameOverride=a.b", "at '/nameOverride': 'a.b' does not match pattern"),
    ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"),
    ("image.prefix=a b", "at '/image/prefix': 'a b' does not match pattern"),
    ("worker.gpus=3", "at '/worker/gpus': value must be one of 0, 1, 2, 4, 8"),
    ("worker.model.path=/x", "at '/worker': additional properties 'model' not allowed"),
    (f"{P}.gpus=many", "at '/pools/m/gpus': value must be one of 0, 1, 2, 4, 8"),
    (f"{P}.tensorParallel=3", "at '/pools/m/tensorParallel': value must be one of 0, 1, 2, 4, 8"),
    (f"{P}.drainSeconds=31", "at '/pools/m/drainSeconds': maximum: got 31, want 30"),
    (f"{P}.weight=-1", "at '/pools/m/weight': minimum: got -1, want 0"),
    (f"{P}.loraAdapters.a.path=a", "at '/pools/m/loraAdapters/a/path': 'a' does not match pattern"),
    (f"{P}.loadSeconds=0", "at '/pools/m/loadSeconds': minimum: got 0, want 2"),
    (f"{P}.flags.threads=0", "at '/pools/m/flags/threads': minimum: got 0, want 1"),
    (f"{P}.flags.max_running=0", "at '/pools/m/flags/max_running': minimum: got 0, want 1"),
    (f"{P}.flags.kv_blocks=-5", "at '/pools/m/flags/kv_blocks': minimum: got -5, want 0"),
    (f"{P}.flags.block_size=0", "at '/pools/m/flags/block_size': minimum: got 0, want 1"),
    (f"{P}.flags.max_draft_tokens=65", "at '/pools/m/flags/max_draft_tokens': maximum: got 65, want 64"),
    (f"{P}.flags.max_receive_bytes=1000", "max_receive_bytes': minimum: got 1,000, want 1.048576"),
    ("gateway.flags.max_open_requests=0", "at '/gateway/flags/max_open_requests': minimum: got 0, want 1"),
    ("gateway.flags.tenant_requests_per_second=-1", "minimum: got -1, want 0"),
    (f"{P}.flags.isa=sse", "at '/pools/m/flags/isa': value must be one of 'auto', 'scalar'"),
    (f"{P}.flags.model=/x", "at '/pools/m/flags': additional properties 'model' not allowed"),
    (f"{P}.autoscaling.by=cron", "at '/pools/m/autoscaling/by': value must be one of 'hpa', 'keda'"),
    (f"{P}.autoscaling.kvOccupancy=70", "kvOccupancy': maximum: got 70, want 1"),
    (f"{P}.autoscaling.tokenTime=50", "tokenTime': maximum: got 50, want 1"),
    (f"{P}.autoscaling.kvOccupancy=0", "kvOccupancy': minimum: got 0, want 0.01"),
    (f"{P}.storage.size=lots", "at '/pools/m/storage/size': 'lots' does not match pattern"),
    (f"{P}.storage.hostPath=/a/../b", "at '/pools/m/storage/hostPath': '/a/../b' does not match pattern"),
    ("download.streams=0", "at '/download/streams': minimum: got 0, want 1"),
    (f"{P}.weightsCache.size=lots", "at '/pools/m/weightsCache/size': 'lots' does not match pattern"),
    (f"{P}.weightsCache.path=/x", "at '/pools/m/weightsCache': additional properties 'path' not allowed"),
    (f"{P}.model.url=x", "at '/pools/m/model': additional properties 'url' not allowed"),
    (f"{P}.model.path=relative", "at '/pools/m/model/path': 'relative' does not match pattern"),
    (f"{P}.model.pvc.path=../x", "at '/pools/m/model/pvc/path': '../x' does not match pattern"),
    (f"{P}.model.pvc.path=x", "at '/pools/m/model/pvc': missing property 'claim'"),
    (f"{P}.model.hub.revision=x", "at '/pools/m/model/hub': missing property 'repository'"),
    (f"{P}.model.hub.repository=a/b/c", "at '/pools/m/model/hub/repository': 'a/b/c' does not match"),
    (f"{P}.model.objectStore.uri=bucket/x", "'bucket/x' does not match pattern"),
    (f"{P}.model.name=a b", "at '/pools/m/model/name': 'a b' does not match pattern"),
    ("pools.UPPER.model.path=/x", "'UPPER' does not match pattern"),
    ("pools.a-name-of-more-than-20.model.path=/x", "does not match pattern"),
    ("pools.x.gpus=1", "at '/pools/x': missing property 'model'"),
    ("runAsUser=0", "at '/runAsUser': minimum: got 0, want 1"),
    ("otlpTls.secretName=My_Secret", "at '/otlpTls/secretName': 'My_Secret' does not match pattern"),
    ("networkPolicy.otlpPort=65536", "at '/networkPolicy/otlpPort': maximum: got 65,536, want 65,535"),
    ("networkPolicy.dnsPorts[0]=0", "at '/networkPolicy/dnsPorts/0': minimum: got 0, want 1"),
    ("networkPolicy.dnsCaches[0]=169.254.20.10", "'169.254.20.10' does not match pattern"),
    ("networkPolicy.dnsPorts=null", "at '/networkPolicy': missing property 'dnsPorts'"),
    ("networkPolicy.downloadPorts=null", "at '/networkPolicy': missing property 'downloadPorts'"),
    ("tls=null", "missing property 'tls'"),
    ("gateway=null", "missing property 'gateway'"),
    ("tls.clients=null", "at '/tls': missing property 'clients'"),
    ("otlpEndpoint=http://collector", "at '/otlpEndpoint': 'http://collector' does not match"),
    *((f"{value}{port}", f"'{value.split('=')[1]}{port}' does not match pattern")
      for value in ("otlpEndpoint=collector:", f"{P}.model.hub.endpoint=http://hub:",
                    "download.hubEndpoint=https://hub:", "monitoring.prometheusAddress=http://p:")
      for port in ("0", "65536", "99999", "080", "")),
    ("image.prefix=registry:70000/x", "at '/image/prefix': 'registry:70000/x' does not match"),
    ("monitoring.prometheusAddress=http://p:9090x", "does not match pattern"),
    ("clusterDomain=cluster.local.", "at '/clusterDomain': 'cluster.local.' does not match"),
    ("networkPolicy.downloadPorts[0]=0", "at '/networkPolicy/downloadPorts/0': minimum: got 0, want 1"),
    ("networkPolicy.clients=all", "at '/networkPolicy/clients': got string, want array"),
    ("networkPolicy.clients[0].pods=x", "at '/networkPolicy/clients/0': additional properties 'pods'"),
    ("monitoring.scrape=pods", "at '/monitoring/scrape': value must be one of 'podMonitor', "
     "'serviceMonitor', 'annotations', 'none'"),
    ("monitoring.interval=15", "at '/monitoring/interval': got number, want string"),
    ("monitoring.slo.firstTokenSeconds=0", "exclusiveMinimum: got 0, want 0"),
    ("tls.enabled=yes", "at '/tls/enabled': got string, want boolean"),
    ("apiKeys.secretName=My_Keys", "at '/apiKeys/secretName': 'My_Keys' does not match pattern"),
    ("ingress.paths[0]=v1", "at '/ingress/paths/0': 'v1' does not match pattern"),
    ("mesh=consul", "at '/mesh': value must be one of '', 'istio', 'linkerd'"),
    ("inferencePool.endpoints=pods", "value must be one of 'gateways', 'workers'"),
    ("inferencePool.endpointPicker.failureMode=Open", "value must be one of 'FailOpen', 'FailClose'"),
]
# The schema cannot express these: values that exclude or need each other.
CHECKS = [
    (f"{P}.model.pvc.claim=x", "pools.m.model: needs one of pvc, image, hub, objectStore and path, "
     "has pvc and path"),
    ("pools.x.model.name=x", "pools.x.model: needs one of pvc, image, hub, objectStore and path, "
     "has none"),
    (f"{P}.gpus=2,{P}.tensorParallel=4", "pools.m.tensorParallel: is 4, but the model is split over "
     "its 2 GPUs; leave it 0"),
    (f"{P}.storage.claim=c,{P}.storage.hostPath=/x", "pools.m.storage: claim and hostPath exclude each other"),
    ("worker.storage.class=s,worker.storage.claim=c", "pools.m.storage: class and claim exclude each other"),
    (f"{P}.autoscaling.minReplicas=9", "pools.m.autoscaling: minReplicas 9 is above maxReplicas 4"),
    (f"{P}.autoscaling.enabled=true,{P}.autoscaling.minReplicas=0",
     "pools.m.autoscaling.minReplicas: 0 needs by: keda; an HPA reads what workers report, and a pool "
     "at zero reports nothing"),
    (f"fullnameOverride={'n' * 35},pools.a-pool.model.path=/x,pools.a-pool.autoscaling.enabled=true,"
     "pools.a-pool.autoscaling.by=keda", f"pools.a-pool.autoscaling: by keda, whose query knows pods by "
     f"their name, that of {'n' * 35}-worker-a-pool has 49 letters and may have 46"),
    (r"labels.app\.kubernetes\.io/name=x", "labels: app.kubernetes.io/name is the chart's own"),
    ("gateway.podLabels.continuo/pool=x", "gateway.podLabels: continuo/pool is the chart's own"),
    (rf"{P}.podLabels.app\.kubernetes\.io/component=x",
     "pools.m.podLabels: app.kubernetes.io/component is the chart's own"),
    ("monitoring.labels.continuo/scrape=x", "monitoring.labels: continuo/scrape is the chart's own"),
    (r"monitoring.dashboardLabels.app\.kubernetes\.io/instance=x",
     "monitoring.dashboardLabels: app.kubernetes.io/instance is the chart's own"),
    (f"{P}.gpus=1,{P}.rollout.maxUnavailable=0", "pools.m.rollout: neither maxSurge nor maxUnavailable "
     "is above 0, so no pod could ever be replaced"),
    (f"{P}.rollout.maxSurge=0%", "pools.m.rollout: neither maxSurge nor maxUnavailable"),
    ("tls.enabled=true,tls.issuer.name=i,tls.clientsIssuer.name=p",
     "tls.clients.dnsNames: is needed with tls.clientsIssuer: the names in its certificate"),
    ("tls.enabled=true,tls.issuer.name=i,tls.clientsIssuer.name=p,tls.clients.dnsNames[0]=a.example,"
     "tls.clients.requireCertificates=true", "tls.clients.requireCertificates: with tls.clientsIssuer it "
     "needs tls.clients.secretName"),
    ("tls.enabled=true,tls.issuer.name=i,grpcRoute.enabled=true,grpcRoute.parentRefs[0].name=g",
     "tls.clients.caConfigMap: is needed for Gateways to know the gateways' certificate"),
    ("otlpTls.secretName=s", "otlpTls.secretName: needs otlpEndpoint"),
    ("otlpEndpoint=c:4317,otlpTls.clientCertificate=true",
     "otlpTls.clientCertificate: needs otlpTls.secretName"),
    ("tls.enabled=true,tls.issuer.name=i,tls.workers.gatewaySecretName=g",
     "tls.workers.gatewaySecretName: needs tls.workers.secretName"),
    ("tls.enabled=true,tls.issuer.name=i,tls.workers.names={w.test}",
     "tls.workers.names: needs tls.workers.secretName"),
    ("tls.enabled=true,tls.clients.secretName=c,tls.workers.secretName=s,tls.workers.serverName=n,"
     "tls.workers.names={w.test}", "tls.workers: serverName and names exclude each other"),
    ("token.enabled=false,token.secretName=t", "token.secretName: needs token.enabled"),
    ("enabled=false", "enabled: is read by charts that depend on this one"),
    ("gateway.podSpec.containers[0].name=x", "gateway.podSpec.containers: say it by extraContainers"),
    (f"{P}.podSpec.terminationGracePeriodSeconds=9",
     "pools.m.podSpec.terminationGracePeriodSeconds: say it by drainSeconds"),
    (f"{P}.podSpec.runtimeClassName=x", "pools.m.podSpec.runtimeClassName: say it by runtimeClassName"),
    (f"{P}.podSpec.resourceClaims[0].name=x",
     "pools.m.podSpec.resourceClaims: say it by resourceClaims"),
    (f"{P}.gpus=1,{P}.gpuResource=", "pools.m: has GPUs and neither gpuResource nor resourceClaims"),
    (f"{P}.loraAdapters.a.path=/a,{P}.loraAdapters.a.pvc.claim=c", "pools.m.loraAdapters.a: needs one of pvc and path"),
    (f"{P}.loraRoot.path=/a,{P}.loraRoot.pvc.claim=c", "pools.m.loraRoot: needs one of pvc and path"),
    (f"{P}.loraAdapters.a.path=/a,pools.n.model.path=/n,pools.n.loraAdapters.a.path=/a",
     "pools.n.loraAdapters.a: is an adapter of m in another pool, and of n here"),
    (f"{P}.loraAdapters.a.path=/a,pools.a.model.path=/n",
     "pools.a.model: a is an adapter of m in another pool"),
    (f"{P}.gpus=1,{P}.resources.limits.nvidia\\.com/gpu=2",
     "pools.m.resources.limits: nvidia.com/gpu is made of gpus"),
    ("gateway.service.loadBalancerClass=x", "gateway.service: loadBalancerClass and "
     "loadBalancerSourceRanges need type: LoadBalancer"),
    ("gateway.service.externalTrafficPolicy=Local", "gateway.service.externalTrafficPolicy: needs type"),
    ("gateway.service.labels.continuo/x=y", "gateway.service.labels: continuo/x is the chart's own"),
    ("grpcRoute.envoyGateway=true", "grpcRoute.envoyGateway: needs grpcRoute.enabled"),
    ("gateway.autoscaling.minReplicas=9", "gateway.autoscaling: minReplicas 9 is above maxReplicas 8"),
    ("tls.enabled=true", "tls: workers need tls.workers.secretName, or tls.issuer.name"),
    ("tls.enabled=true,tls.workers.secretName=s,tls.workers.serverName=n",
     "tls: clients need tls.clients.secretName, or tls.issuer.name"),
    ("tls.enabled=true,tls.issuer.name=i,tls.workers.secretName=s",
     "tls.workers.serverName: is needed with tls.workers.secretName"),
    ("ingress.enabled=true,ingress.hosts[0]=x,gateway.http=false",
     "ingress and httpRoute need gateway.http"),
    ("ingress.enabled=true", "ingress.hosts: at least one is needed"),
    ("httpRoute.enabled=true", "httpRoute.parentRefs: the Gateway that it belongs to is needed"),
    ("grpcRoute.enabled=true", "grpcRoute.parentRefs: the Gateway that it belongs to is needed"),
    ("inferencePool.enabled=true", "inferencePool.endpointPicker.name: the endpoint picker's Service"),
    (f"{POOL},inferencePool.endpoints=workers,inferencePool.clients[0].podSelector.x=y,"
     "monitoring.tokenSecret.name=s", "monitoring.tokenSecret: an endpoint picker"),
    (f"{POOL},inferencePool.endpoints=workers", "inferencePool.clients: is "
     "needed: the peers that may call workers, which ask for no keys"),
    (f"{POOL},networkPolicy.clients[0].podSelector.x=y", "inferencePool.clients: is needed with "
     "networkPolicy.clients: the endpoint picker and the proxies that it sends to the gateways"),
    (f"{POOL},gateway.http=false", "inferencePool.endpoints: gateways need gateway.http"),
    (f"{POOL},inferencePool.appProtocol=kubernetes.io/h2c",
     "inferencePool.appProtocol: gateways speak HTTP/1.1 to an InferencePool's proxies"),
    (f"{POOL},tls.enabled=true,tls.issuer.name=i,tls.clients.caConfigMap=c,httpRoute.enabled=true,"
     "httpRoute.parentRefs[0].name=g", "inferencePool: with tls.enabled no httpRoute can lead to it"),
    (f"{POOL},tls.enabled=true,tls.issuer.name=i,tls.clients.requireCertificates=true",
     "tls.clients.requireCertificates: an endpoint picker (inferencePool) reads the gateways' load"),
]


def values_of(schema, path=()):
    """Paths of all values and sections."""
    for key, of in schema.get("properties", {}).items():
        yield (*path, key)
        yield from values_of(of, (*path, key))


class RefusalsTest(unittest.TestCase):
    def check(self, table):
        for values, message in table:
            with self.subTest(values=values):
                self.assertIn(message, chart.refusal(*chart.MINIMAL, "--set", values))

    def test_the_schema_names_the_value_and_what_is_allowed(self):
        self.check(SCHEMA)

    def test_values_that_exclude_or_need_each_other(self):
        self.check(CHECKS)

    def test_null_is_refused_by_name_or_is_the_default(self):
        """Helm drops what is null from the chart's values, and a template would read nothing there."""
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        default = chart.without_token(chart.render(*chart.MINIMAL))
        # values.yaml documents that null.
        for path in set(values_of(schema)) - {("global",), ("pools",), ("runAsUser",), ("enabled",)}:
            pool = [("pools", "m", *path[1:])] if path[0] == "worker" and path[1:] else []
            for name in (path, *pool):
                with self.subTest(null=".".join(name)):
                    done = chart.run("helm", "template", "r", chart.CHART, "--namespace", "prod",
                                     *chart.MINIMAL, "--set", f"{'.'.join(name)}=null")
                    if done.returncode == 0:
                        self.assertEqual(chart.without_token(done.stdout), default)
                    else:
                        self.assertRegex(done.stderr, rf"at '/?{'/'.join(name[:-1])}': missing property "
                                         rf"'{name[-1]}'|at '/{'/'.join(name)}': (got null|value must be)")

    def test_addresses_and_ports_that_there_are(self):
        for values in ("otlpEndpoint=a.b:1", "otlpEndpoint=[::1]:65535", "otlpEndpoint=a:9999",
                       "download.hubEndpoint=https://hub:59999", "download.hubEndpoint=http://[::1]",
                       "monitoring.prometheusAddress=http://p:9090/a/b",
                       "monitoring.prometheusAddress=https://u:w@p.example", "image.prefix=r:65529/x/y",
                       "monitoring.prometheusAddress=http://p:60123"):
            with self.subTest(values=values):
                chart.render(*chart.MINIMAL, "--set", values)

    def test_quantities_that_kubernetes_takes(self):
        for value in ("0.5", "2", "500m", "4k", "1e3", "1.5Gi", ".5", "12E", "+1"):
            with self.subTest(value=value):
                chart.render(*chart.MINIMAL, "--set", f"gateway.resources.requests.cpu={value}")
                chart.render(*chart.MINIMAL, "--set-string", f"gateway.resources.requests.cpu={value}")

    def test_a_condition_of_a_chart_that_depends_on_this_one(self):
        chart.render(*chart.MINIMAL, "--set", "enabled=true")

    def test_a_release_whose_services_would_begin_with_a_digit(self):
        self.assertIn("names of Services begin with a letter, 7-continuo does not; "
                      "set fullnameOverride",
                      chart.refusal(*chart.MINIMAL, release="7"))

    def test_no_pool(self):
        self.assertIn("pools: at least one is needed, such as --set pools.qwen.model.hub.repository=",
                      chart.refusal())

    def test_more_pools_than_a_gateway_takes(self):
        values = ",".join(f"pools.p{i}.model.path=/x" for i in range(17))
        self.assertIn("pools: there are 17, a gateway takes 16", chart.refusal("--set", values))


if __name__ == "__main__":
    unittest.main()
