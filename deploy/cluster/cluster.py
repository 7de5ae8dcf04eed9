# SPDX-License-Identifier: Apache-2.0
"""A test's hands on the cluster: kubectl and helm, pods, DNS, and the load that runs in there."""
import json
import os
import pathlib
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
K8S_ROOT = pathlib.Path(os.environ.get("K8S_ROOT") or pathlib.Path(
    os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "continuo-cluster")
NAMESPACE, RELEASE = "continuo", "continuo"
GATEWAY = "continuo-gateway.continuo.svc.cluster.local:50050"
# The family of addresses of the cluster that is up, as env.sh has it.
_FILE = K8S_ROOT / "run/family"
FAMILY = _FILE.read_text().strip() if _FILE.exists() else "ipv4"
NODE_PORT, DNS = {"ipv4": ("10.250.0.11:30050", "10.96.0.10"),
                  "ipv6": ("[fd0c:250::11]:30050", "fd0c:96::a")}[FAMILY]
# What the chart is told on such a cluster, beside values.yaml.
OPTIONS = {"ipv4": (), "ipv6": ("--set=ipFamilies={IPv6}", "--set=ipFamilyPolicy=SingleStack")}[FAMILY]
# The chart asks for more than nodes of two cores have beside all else.
SMALL_WORKER = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
ENVIRONMENT = {**os.environ, "KUBECONFIG": str(K8S_ROOT / "pki/admin.conf")}


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], env=ENVIRONMENT, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def kubectl(*arguments):
    return run(K8S_ROOT / "bin/kubectl", "-n", NAMESPACE, *arguments)


def helm(*arguments):
    return run(K8S_ROOT / "bin/helm", *arguments, "-n", NAMESPACE)


def helm_upgrade(*arguments):
    """The chart with the values of this folder; returns when everything is rolled out. What an upgrade
    that fails has brought goes again."""
    helm("upgrade", "--install", RELEASE, ROOT / "helm/continuo", "-f", HERE / "values.yaml", *OPTIONS,
         "--wait", "--timeout=300s", "--cleanup-on-fail", *arguments)
    # Old pods still drain when the new ones are ready.
    wait_until(lambda: not any(p["metadata"].get("deletionTimestamp") for p in pods()), 180,
               "old pods to end")


def put_secret(name, data):
    """Makes it or takes its place; `data` as {key: text}."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(secret, file)
        file.flush()
        kubectl("apply", "-f", file.name)


def pods(component=None):
    selector = f"app.kubernetes.io/instance={RELEASE}"
    if component:
        selector += f",app.kubernetes.io/component={component}"
    return json.loads(kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]


def is_ready(pod):
    return not pod["metadata"].get("deletionTimestamp") and any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def ready(component):
    return [p for p in pods(component) if is_ready(p)]


def wait_until(holds, timeout, what):
    """Polls the cluster; returns what `holds` returned."""
    deadline = time.monotonic() + timeout
    while True:
        result = holds()
        if result:
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"{timeout} s passed without {what}")
        time.sleep(0.2)


def resolve(name):
    """The addresses that CoreDNS tells at this moment; none where its answer is lost."""
    question = b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0"
    family, record = (socket.AF_INET, 1) if FAMILY == "ipv4" else (socket.AF_INET6, 28)
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.sendto(struct.pack(">6H", 1, 0x100, 1, 0, 0, 0) + question + struct.pack(">2H", record, 1), (DNS, 53))
        try:
            data = s.recv(4096)
        except TimeoutError:
            return []
    count = struct.unpack(">6H", data[:12])[3]
    at = 12 + len(question) + 4
    addresses = []
    for _ in range(count):
        while data[at] and data[at] < 0xC0:  # a name: labels, or a pointer of two bytes
            at += data[at] + 1
        at += 2 if data[at] >= 0xC0 else 1
        kind, _, _, size = struct.unpack(">HHIH", data[at:at + 10])
        at += 10
        if kind == record:
            addresses.append(socket.inet_ntop(family, data[at:at + size]))
        at += size
    return addresses


def at(pod, port):
    """A pod's HOST:PORT."""
    address = pod["status"]["podIP"]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def metrics(address, path="/metrics"):
    """A pod's page as {series: value}; the host has a route to every pod."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as page:
        lines = page.read().decode().splitlines()
    return {l.rsplit(" ", 1)[0]: float(l.rsplit(" ", 1)[1]) for l in lines if l and l[0] != "#"}


def https_code(address, authority, key=None):
    """Status of a gateway's HTTP over TLS, its certificate checked, its name not."""
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    request = urllib.request.Request(f"https://{address}/v1/models",
                                     headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def answers(address):
    try:
        return bool(metrics(address))
    except OSError:
        return False


class Load:
    """load.py in a pod or in a node's network namespace."""

    def __init__(self, name, *command):
        self.name = name
        self.log = open(K8S_ROOT / f"log/load-{name}.log", "a+")
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=ENVIRONMENT)
        self.answer()

    def answer(self):
        while True:
            line = self.process.stdout.readline()
            if line.startswith("{"):
                return json.loads(line)
            if not line:
                self.log.seek(0)
                raise RuntimeError(f"the load {self.name} ended: {self.log.read()[-2000:]}")

    def tell(self, command):
        self.send(command)
        return self.answer()

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def tell_all(loads, command):
    """Sends the command to all at once, so that none waits for another's streams; {name: report}.
   """
    for load in loads:
        load.send(command)
    reports = {load.name: load.answer() for load in loads}
    assert len(reports) == len(loads), reports.keys()
    return reports


def load_in_pod(*options, streams=6, address=GATEWAY):
    return Load("pod", K8S_ROOT / "bin/kubectl", "-n", "default", "exec", "-i", "client", "--",
                "/venv/bin/python", "deploy/cluster/load.py", address, f"--streams={streams}",
                "--seed=pod", *options)


def load_on_node(*options, streams=4, seed="node"):
    """`seed` is its name and part of its requests', of which no two may be the same at a time."""
    return Load(seed, "nsenter", "--net=/run/netns/kube1", ROOT / "build/venv/bin/python",
                HERE / "load.py", NODE_PORT, f"--streams={streams}", f"--seed={seed}", *options)
