{{- /* Of a text, what the names of Services may begin with; room is left for a pool's. */ -}}
{{- define "continuo.dnsName" -}}
{{- . | replace "." "-" | trunc 35 | trimAll "-" }}
{{- end }}

{{- define "continuo.name" -}}
{{- include "continuo.dnsName" (default .Chart.Name .Values.nameOverride) }}
{{- end }}

{{- /* Names of objects begin with it; a pool's with it and the pool's name. */ -}}
{{- define "continuo.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- include "continuo.dnsName" .Values.fullnameOverride }}
{{- else if contains (include "continuo.name" .) .Release.Name }}
{{- include "continuo.dnsName" .Release.Name }}
{{- else }}
{{- include "continuo.dnsName" (printf "%s-%s" .Release.Name (include "continuo.name" .)) }}
{{- end }}
{{- end }}

{{- define "continuo.selector" -}}
app.kubernetes.io/name: {{ include "continuo.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "continuo.gatewaySelector" -}}
{{ include "continuo.selector" . }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "continuo.workerSelector" -}}
{{ include "continuo.selector" . }}
app.kubernetes.io/component: worker
{{- end }}

{{- /* What a label may hold of the version. */ -}}
{{- define "continuo.version" -}}
{{- .Values.image.tag | default .Chart.AppVersion | trimAll "-._" | trunc 63 | trimAll "-._" }}
{{- end }}

{{- /* Labels of an object beside its selector's; what it has of its own comes first. (list $ OWN) */ -}}
{{- define "continuo.labelsAnd" -}}
{{- $root := index . 0 }}
{{- $chart := dict
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_")
  "app.kubernetes.io/managed-by" $root.Release.Service }}
{{- toYaml (merge (include "continuo.podLabelsAnd" . | fromYaml) $chart) }}
{{- end }}
{{- define "continuo.labels" -}}
{{- include "continuo.labelsAnd" (list . dict) }}
{{- end }}

{{- /* Those of pods: a label that changes without need would restart them all. (list $ OWN) */ -}}
{{- define "continuo.podLabelsAnd" -}}
{{- $root := index . 0 }}
{{- $chart := dict
  "app.kubernetes.io/version" (include "continuo.version" $root)
  "app.kubernetes.io/part-of" "continuo" }}
{{- toYaml (merge dict (index . 1 | default dict) ($root.Values.labels | default dict) $chart) }}
{{- end }}

{{- define "continuo.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "continuo.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* A pool with everything that `worker` says and it does not. (list $ NAME) → YAML */ -}}
{{- define "continuo.pool" -}}
{{- $root := index . 0 }}
{{- $own := index $root.Values.pools (index . 1) }}
{{- $inherited := deepCopy $root.Values.worker }}
{{- /* A place that the pool names is instead of the one of all pools, also where it is of another kind. */ -}}
{{- with $own.storage }}
{{- if or .class .claim .hostPath }}
{{- $_ := mergeOverwrite $inherited.storage (dict "class" "" "claim" "" "hostPath" "") }}
{{- end }}
{{- end }}
{{- $pool := mergeOverwrite $inherited (deepCopy $own) }}
{{- with $own.loraRoot }}
{{- $_ := set $pool "loraRoot" . }}
{{- end }}
{{- toYaml $pool }}
{{- end }}

{{- /* (list $ NAME) */ -}}
{{- define "continuo.poolName" -}}
{{- printf "%s-worker-%s" (include "continuo.fullname" (index . 0)) (index . 1) }}
{{- end }}

{{- /* Where the gateways find a pool's workers: a Service, or an absolute name, asked for as it is. */ -}}
{{- define "continuo.poolTarget" -}}
{{- $root := index . 0 -}}
{{- $service := printf "%s.%s" (include "continuo.poolName" .) $root.Release.Namespace -}}
{{- if eq $root.Values.gateway.discovery "kubernetes" -}}
kubernetes:///{{ $service }}:50051
{{- else -}}
dns:///{{ $service }}.svc.{{ $root.Values.clusterDomain }}.:50051
{{- end }}
{{- end }}

{{- define "continuo.workers" -}}
{{- $targets := list }}
{{- range $name := keys .Values.pools | sortAlpha }}
{{- $pool := include "continuo.pool" (list $ $name) | fromYaml }}
{{- $target := include "continuo.poolTarget" (list $ $name) }}
{{- if gt (len $.Values.pools) 1 }}
{{- $target = printf "%s@%s" $target (include "continuo.number" $pool.weight) }}
{{- end }}
{{- $target = printf "%s=%s" $name $target }}
{{- $targets = append $targets $target }}
{{- end }}
{{- join ";" $targets }}
{{- end }}

{{- /* Gateways are told the models of all pools and their adapters, so that they know those without a
worker, too. */ -}}
{{- define "continuo.models" -}}
{{- $models := list }}
{{- $adapters := list }}
{{- range $name := keys .Values.pools | sortAlpha }}
{{- $pool := include "continuo.pool" (list $ $name) | fromYaml }}
{{- $model := $pool.model.name | default $name }}
{{- $models = append $models $model }}
{{- range $adapter := keys ($pool.loraAdapters | default dict) }}
{{- $adapters = append $adapters (printf "%s=%s" $adapter $model) }}
{{- end }}
{{- end }}
{{- concat ($models | uniq | sortAlpha) ($adapters | uniq | sortAlpha) | join "," }}
{{- end }}

{{- /* A request may wait so long for a pool that scales from zero: a node, an image and a download come
before the loading. Empty where there is no such pool, or where the operator says it. */ -}}
{{- define "continuo.coldStartSeconds" -}}
{{- $seconds := 0 }}
{{- range $name := keys .Values.pools | sortAlpha }}
{{- $pool := include "continuo.pool" (list $ $name) | fromYaml }}
{{- if and $pool.autoscaling.enabled (not $pool.autoscaling.minReplicas) }}
{{- $seconds = max $seconds (add (int $pool.loadSeconds) 600) }}
{{- end }}
{{- end }}
{{- if and $seconds (not (hasKey .Values.gateway.flags "cold_start_wait")) }}{{ $seconds }}{{ end }}
{{- end }}

{{- /* Not empty where gateways know each other by the DNS name of a headless Service: where it is asked for,
and where a pool can have more workers than a gateway is to watch. */ -}}
{{- define "continuo.gatewaysHeadless" -}}
{{- $size := 200 }}
{{- $flags := .Values.gateway.flags | default dict }}
{{- if hasKey $flags "subset_size" }}{{ $size = int $flags.subset_size }}{{ end }}
{{- if .Values.gateway.service.headless }}yes{{ end }}
{{- range $name := keys .Values.pools | sortAlpha }}
{{- $pool := include "continuo.pool" (list $ $name) | fromYaml }}
{{- if and $size (gt (int (ternary $pool.autoscaling.maxReplicas $pool.replicas $pool.autoscaling.enabled)) $size) }}yes{{ end }}
{{- end }}
{{- end }}

{{- /* Not empty where gateways tell KEDA who waits: a pool of it goes down to zero. */ -}}
{{- define "continuo.scaler" -}}
{{- range $name := keys .Values.pools | sortAlpha }}
{{- $pool := include "continuo.pool" (list $ $name) | fromYaml }}
{{- if and $pool.autoscaling.enabled (eq $pool.autoscaling.by "keda") (not $pool.autoscaling.minReplicas) }}yes{{ end }}
{{- end }}
{{- end }}
{{- define "continuo.scalerAddress" -}}
{{ include "continuo.fullname" . }}-gateway-scaler.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}.:50052
{{- end }}

{{- /* What an endpoint picker chooses from; empty where there is none. */ -}}
{{- define "continuo.inferencePoolOf" -}}
{{- if .Values.inferencePool.enabled }}{{ .Values.inferencePool.endpoints }}{{ end }}
{{- end }}

{{- /* A number as the programs read it: 4194304, not 4.194304e+06. */ -}}
{{- define "continuo.number" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* A map of flags as a list of arguments. */ -}}
{{- define "continuo.flags" -}}
{{- range $flag, $value := . }}
- {{ printf "--%s=%s" $flag (include "continuo.number" $value) | quote }}
{{- end }}
{{- end }}

{{- /* (list $ IMAGE SUFFIX) */ -}}
{{- define "continuo.image" -}}
{{- $root := index . 0 }}
{{- index . 1 | default (printf "%s-%s:%s" $root.Values.image.prefix (index . 2) ($root.Values.image.tag | default $root.Chart.AppVersion)) }}
{{- end }}

{{- define "continuo.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "continuo.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* What a gateway's and a worker's pod have in common. (list $ VALUES SELECTOR) */ -}}
{{- define "continuo.podSpec" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 }}
serviceAccountName: {{ $values.serviceAccountName | default (include "continuo.serviceAccountName" $root) | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "continuo.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- if ne $values.spread "off" }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $values.spread }}
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- index $ 2 | nindent 8 }}
  {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy ($values.affinity | default dict) }}
{{- if and (eq $values.spread "ScheduleAnyway") (not (hasKey $affinity "podAntiAffinity")) }}
{{- /* Nodes without a zone count for none of the constraints above. */ -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "matchLabelKeys" (list "pod-template-hash") "labelSelector" (dict "matchLabels" (fromYaml (index . 2))) }}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term))) }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- with $values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The environment of a container, of `env` and `envFrom`. */ -}}
{{- define "continuo.environment" -}}
{{- with .env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A pod's spec with the operator's members over it. (list TEXT MEMBERS) */ -}}
{{- define "continuo.overlaid" -}}
{{- if index . 1 }}
{{- toYaml (mergeOverwrite (index . 0 | fromYaml) (index . 1)) }}
{{- else }}
{{- index . 0 }}
{{- end }}
{{- end }}

{{- /* The address families of a Service. */ -}}
{{- define "continuo.ipFamilies" -}}
{{- with .Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The kubelet's gRPC probes know no TLS: then the page beside the metrics, which says the same.
(list $ PORT-NAME PORT) */ -}}
{{- define "continuo.probe" -}}
{{- if (index . 0).Values.tls.enabled -}}
httpGet: {path: /healthz, port: metrics}
{{- else -}}
grpc: {port: {{ index . 1 }}}
{{- end }}
{{- end }}

{{- /* How a monitor shows the token that readers of metrics need. (monitoring.tokenSecret) */ -}}
{{- define "continuo.scrapeAuthorization" -}}
{{- if .name -}}
authorization:
  credentials: {name: {{ .name | quote }}, key: {{ .key | quote }}}
{{- end }}
{{- end }}

{{- /* Annotations of a pod: where its metrics are, and the operator's. (list $ CONTAINER PORT OWN) */ -}}
{{- define "continuo.podAnnotations" -}}
{{- $chart := dict "kubectl.kubernetes.io/default-container" (index . 1) }}
{{- if eq (index . 0).Values.monitoring.scrape "annotations" }}
{{- $chart = merge $chart (dict "prometheus.io/scrape" "true" "prometheus.io/port" (index . 2 | toString)) }}
{{- end }}
{{- toYaml (merge dict (index . 3 | default dict) $chart (include "continuo.meshAnnotations" . | fromYaml)) }}
{{- end }}

{{- /* A pool's maxSurge and maxUnavailable: GPUs are rarely free for one more pod. (list GPUS ROLLOUT) */ -}}
{{- define "continuo.rollout" -}}
{{- $onGpus := gt (int (index . 0)) 0 }}
{{- with index . 1 }}
maxSurge: {{ kindIs "invalid" .maxSurge | ternary (ternary 0 1 $onGpus) .maxSurge }}
maxUnavailable: {{ kindIs "invalid" .maxUnavailable | ternary (ternary 1 0 $onGpus) .maxUnavailable }}
{{- end }}
{{- end }}

{{- /* Names of the Secrets with certificates. */ -}}
{{- define "continuo.clientsSecret" -}}
{{- .Values.tls.clients.secretName | default (printf "%s-clients-tls" (include "continuo.fullname" .)) }}
{{- end }}
{{- /* A name in the gateways' certificate: one of the cluster, where the chart asks for it. */ -}}
{{- define "continuo.clientsServerName" -}}
{{- $c := .Values.tls.clients }}
{{- if and $c.dnsNames (or $c.secretName .Values.tls.clientsIssuer.name) }}{{ first $c.dnsNames }}
{{- else }}{{ printf "%s-gateway.%s.svc" (include "continuo.fullname" .) .Release.Namespace }}
{{- end }}
{{- end }}
{{- define "continuo.workersSecret" -}}
{{- .Values.tls.workers.secretName | default (printf "%s-workers-tls" (include "continuo.fullname" .)) }}
{{- end }}
{{- define "continuo.gatewaySecret" -}}
{{- if .Values.tls.workers.secretName -}}
{{- .Values.tls.workers.gatewaySecretName | default .Values.tls.workers.secretName }}
{{- else -}}
{{- printf "%s-gateway-tls" (include "continuo.fullname" .) }}
{{- end }}
{{- end }}
{{- /* Names that workers take in certificates; empty: all of the CA. */ -}}
{{- define "continuo.workerClientNames" -}}
{{- $names := .Values.tls.workers.clientNames | default list }}
{{- if not .Values.tls.workers.secretName }}
{{- $names = prepend $names (printf "%s-gateway.%s.svc" (include "continuo.fullname" .) .Release.Namespace) }}
{{- end }}
{{- uniq $names | join "," }}
{{- end }}
{{- define "continuo.tokenSecret" -}}
{{- .Values.token.secretName | default (printf "%s-token" (include "continuo.fullname" .)) }}
{{- end }}
{{- define "continuo.workerServerName" -}}
{{- .Values.tls.workers.serverName | default (printf "%s-workers.%s.svc" (include "continuo.fullname" .) .Release.Namespace) }}
{{- end }}

{{- /* Not empty where spans go over TLS. */ -}}
{{- define "continuo.otlpTls" -}}
{{- if .Values.otlpEndpoint }}{{ .Values.otlpTls.secretName }}{{ end }}
{{- end }}
{{- define "continuo.otlpFlags" -}}
- {{ printf "--otlp_endpoint=%s" .Values.otlpEndpoint | quote }}
{{- if include "continuo.otlpTls" . }}
- --otlp_tls_ca_file=/etc/continuo/otlp/ca.crt
{{- if .Values.otlpTls.clientCertificate }}
- --otlp_tls_cert_file=/etc/continuo/otlp/tls.crt
- --otlp_tls_key_file=/etc/continuo/otlp/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- /* Where a pool's model lies in the worker's pod; each source of a download has a folder of its own,
for on a claim the former one is there beside it. (list $ NAME MODEL) */ -}}
{{- define "continuo.modelPath" -}}
{{- $model := index . 2 }}
{{- if $model.pvc }}{{ printf "/models/%s" ($model.pvc.path | default "") | trimSuffix "/" }}
{{- else if $model.image }}{{ printf "/models/%s" ($model.image.path | default "") | trimSuffix "/" }}
{{- else if or $model.hub $model.objectStore }}
{{- $source := "" }}
{{- $hub := "" }}
{{- with $model.hub }}
{{- $source = printf "%s@%s" .repository (.revision | default "main") }}
{{- $hub = .endpoint | default (index $ 0).Values.download.hubEndpoint }}
{{- else }}
{{- $source = $model.objectStore.uri }}
{{- end }}
{{- $readable := regexReplaceAll "[^A-Za-z0-9.]+" $source "-" | trunc 48 | trimAll "-." }}
{{- printf "/models/%s/%s-%s" (index . 1) $readable (printf "%s %s" $hub $source | sha256sum | trunc 8) }}
{{- else }}{{ $model.path }}
{{- end }}
{{- end }}

{{- /* What says how many pods a Deployment has. One that is scaled keeps the number that it has, for
without one Kubernetes would leave a single pod when scaling is switched on. (list $ NAME VALUES) */ -}}
{{- define "continuo.replicas" -}}
{{- $root := index . 0 }}
{{- $values := index . 2 }}
{{- if not $values.autoscaling.enabled -}}
replicas: {{ $values.replicas }}
{{- else }}
{{- with lookup "apps/v1" "Deployment" $root.Release.Namespace (index . 1) -}}
replicas: {{ .spec.replicas }}
{{- end }}
{{- end }}
{{- end }}
