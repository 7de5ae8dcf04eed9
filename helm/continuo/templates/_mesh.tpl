{{- /* What a service mesh needs to know of the pods, and what NetworkPolicies have to let through for it. */ -}}

{{- /* Ports of the mesh: what its proxies send each other, what Prometheus reads of them, and what they ask the
control plane in that namespace.
istio: "Ports used by Istio" (istio.io/docs/ops/deployment/application-requirements), and "Ambient and Kubernetes
NetworkPolicy" (istio.io/docs/ambient/usage/networkpolicy), from where the source of the kubelet's probes is.
linkerd: "Network Policy" (linkerd.io/2/common-errors/network-policy), and the addresses in its chart's
partials/templates/_proxy.tpl: identity, destination and policy. */ -}}
{{- define "continuo.meshPorts" -}}
{{- if eq .Values.mesh "istio" }}
proxy: [15008]
telemetry: [15020, 15090]
control: [15012]
namespace: istio-system
probes: [169.254.7.127/32, "fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"]
{{- else if eq .Values.mesh "linkerd" }}
proxy: [4143]
telemetry: [4191]
control: [8080, 8086, 8090]
namespace: linkerd
{{- end }}
{{- end }}

{{- /* Rules of NetworkPolicies. Whoever may reach any port of the pods may reach the mesh's: what is in its tunnel,
only the mesh can tell. (list $ PEERS OPEN); OPEN: from anywhere */ -}}
{{- define "continuo.meshIngress" -}}
{{- with index . 0 }}
{{- $ports := include "continuo.meshPorts" . | fromYaml }}
# Proxies of the mesh.
- ports:
    {{- range $ports.proxy }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- if not (index $ 2) }}
  from:
    {{- index $ 1 | toYaml | nindent 4 }}
  {{- end }}
{{- if ne .Values.monitoring.scrape "none" }}
# Prometheus reads the proxies' metrics, too.
- ports:
    {{- range $ports.telemetry }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.prometheus }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- with $ports.probes }}
# The kubelet's probes, which ambient mode gives an address of their own.
- from:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whom pods may reach through proxies: a mesh's proxies are pods. So peers that are addresses are reached without
one, and where nobody is named (OPEN) it is the pods of the cluster. (list $ PEERS OPEN) */ -}}
{{- define "continuo.meshEgress" -}}
{{- with index . 0 }}
{{- $ports := include "continuo.meshPorts" . | fromYaml }}
{{- $pods := list }}
{{- range index $ 1 }}
{{- if not .ipBlock }}{{ $pods = append $pods . }}{{ end }}
{{- end }}
{{- if index $ 2 }}{{ $pods = list (dict "namespaceSelector" dict) }}{{ end }}
{{- with $pods }}
# Proxies of the mesh.
- ports:
    {{- range $ports.proxy }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  to:
    {{- toYaml . | nindent 4 }}
{{- end }}
# The mesh's control plane.
- ports:
    {{- range $ports.control }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  to:
    {{- with .Values.networkPolicy.meshControlPlane }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ $ports.namespace }}}}
    {{- end }}
{{- end }}
{{- end }}

{{- /* Protocol of a Service's port whose peers speak PLAIN where there is no TLS. (list $ PLAIN) */ -}}
{{- define "continuo.appProtocol" -}}
{{- (index . 0).Values.tls.enabled | ternary "https" (index . 1) }}
{{- end }}

{{- /* The member of a port of the gateways' Service. Load balancers of clouds may probe what says http or https by
requests for /, not by connections: without a mesh none of their ports says so. (list $ PLAIN) */ -}}
{{- define "continuo.gatewayProtocol" -}}
{{- $protocol := include "continuo.appProtocol" . }}
{{- with (index . 0).Values }}
{{- if or .mesh (ne .gateway.service.type "LoadBalancer") (not (hasPrefix "http" $protocol)) -}}
appProtocol: {{ $protocol }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Protocol of a port of pods that gateways choose by themselves. Istio would choose by the Host header instead,
and call again what had failed. (list $ PROTOCOL) */ -}}
{{- define "continuo.podProtocol" -}}
{{- eq (index . 0).Values.mesh "istio" | ternary "tcp" (index . 1) }}
{{- end }}

{{- /* Ports whose protocol Linkerd need not detect, of gateways or workers; empty: none. (list $ COMPONENT) */ -}}
{{- define "continuo.opaquePorts" -}}
{{- with (index . 0).Values }}
{{- if ne .mesh "linkerd" }}
{{- else if eq (index $ 1) "worker" -}}
50051
{{- else if .tls.enabled -}}
50050{{ if .gateway.http }},8080{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The proxy has to be there before a pod's downloads, and until its drain is over: as a native sidecar.
(list $ COMPONENT) → map */ -}}
{{- define "continuo.meshAnnotations" -}}
{{- $mesh := (index . 0).Values.mesh }}
{{- if eq $mesh "istio" }}
sidecar.istio.io/nativeSidecar: "true"
{{- else if eq $mesh "linkerd" }}
config.beta.linkerd.io/proxy-enable-native-sidecar: "true"
{{- with include "continuo.opaquePorts" . }}
config.linkerd.io/opaque-ports: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Of a Service. (list $ COMPONENT OWN) */ -}}
{{- define "continuo.serviceAnnotations" -}}
{{- $chart := dict }}
{{- with include "continuo.opaquePorts" . }}{{ $_ := set $chart "config.linkerd.io/opaque-ports" . }}{{ end }}
{{- with merge dict (index . 2 | default dict) $chart }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
