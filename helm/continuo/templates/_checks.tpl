{{- /* What the schema cannot say: values that exclude or need each other. */ -}}
{{- define "continuo.checks" -}}
{{- if eq (toString .Values.enabled) "false" }}
{{- fail "enabled: is read by charts that depend on this one, as their condition; this one renders nothing where it is not installed" }}
{{- end }}
{{- include "continuo.checkPodSpec" (list "gateway" .Values.gateway.podSpec dict) }}
{{- if and .Values.grpcRoute.envoyGateway (not .Values.grpcRoute.enabled) }}
{{- fail "grpcRoute.envoyGateway: needs grpcRoute.enabled" }}
{{- end }}
{{- if and (ne .Values.gateway.service.type "LoadBalancer") (or .Values.gateway.service.loadBalancerClass .Values.gateway.service.loadBalancerSourceRanges) }}
{{- fail "gateway.service: loadBalancerClass and loadBalancerSourceRanges need type: LoadBalancer" }}
{{- end }}
{{- if and .Values.gateway.service.externalTrafficPolicy (eq .Values.gateway.service.type "ClusterIP") }}
{{- fail "gateway.service.externalTrafficPolicy: needs type: LoadBalancer or NodePort" }}
{{- end }}
{{- if not .Values.pools }}
{{- fail "pools: at least one is needed, such as --set pools.qwen.model.hub.repository=Qwen/Qwen3-0.6B" }}
{{- end }}
{{- if gt (len .Values.pools) 16 }}
{{- fail (printf "pools: there are %d, a gateway takes 16" (len .Values.pools)) }}
{{- end }}
{{- if and .Values.otlpTls.secretName (not .Values.otlpEndpoint) }}
{{- fail "otlpTls.secretName: needs otlpEndpoint" }}
{{- end }}
{{- if and .Values.otlpTls.clientCertificate (not .Values.otlpTls.secretName) }}
{{- fail "otlpTls.clientCertificate: needs otlpTls.secretName; without it spans go in the clear" }}
{{- end }}
{{- $full := include "continuo.fullname" . }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "names of Services begin with a letter, %s does not; set fullnameOverride" $full) }}
{{- end }}
{{- include "continuo.checkLabels" (list "labels" .Values.labels) }}
{{- include "continuo.checkLabels" (list "gateway.podLabels" .Values.gateway.podLabels) }}
{{- include "continuo.checkLabels" (list "gateway.service.labels" .Values.gateway.service.labels) }}
{{- include "continuo.checkLabels" (list "monitoring.labels" .Values.monitoring.labels) }}
{{- include "continuo.checkLabels" (list "monitoring.dashboardLabels" .Values.monitoring.dashboardLabels) }}
{{- $parents := dict }}
{{- range $name, $said := .Values.pools }}
{{- $pool := include "continuo.pool" (list $ $name) | fromYaml }}
{{- $model := $pool.model.name | default $name }}
{{- $sources := list }}
{{- range list "pvc" "image" "hub" "objectStore" "path" }}
{{- if hasKey $said.model . }}{{ $sources = append $sources . }}{{ end }}
{{- end }}
{{- include "continuo.checkLabels" (list (printf "pools.%s.podLabels" $name) $pool.podLabels) }}
{{- include "continuo.checkPodSpec" (list (printf "pools.%s" $name) $pool.podSpec
  (dict "runtimeClassName" "runtimeClassName" "resourceClaims" "resourceClaims")) }}
{{- if and $pool.gpus (not $pool.gpuResource) (not $pool.resourceClaims) }}
{{- fail (printf "pools.%s: has GPUs and neither gpuResource nor resourceClaims, so nobody would give it any" $name) }}
{{- end }}
{{- if and $pool.gpus $pool.gpuResource (hasKey ($pool.resources.limits | default dict) $pool.gpuResource) }}
{{- fail (printf "pools.%s.resources.limits: %s is made of gpus" $name $pool.gpuResource) }}
{{- end }}
{{- if ne (len $sources) 1 }}
{{- fail (printf "pools.%s.model: needs one of pvc, image, hub, objectStore and path, has %s" $name (join " and " $sources | default "none")) }}
{{- end }}
{{- range $adapter, $source := $pool.loraAdapters }}
{{- if ne (len $source) 1 }}
{{- fail (printf "pools.%s.loraAdapters.%s: needs one of pvc and path" $name $adapter) }}
{{- end }}
{{- $parent := get $parents $adapter | default $model }}
{{- if ne $parent $model }}
{{- fail (printf "pools.%s.loraAdapters.%s: is an adapter of %s in another pool, and of %s here" $name $adapter $parent $model) }}
{{- end }}
{{- $_ := set $parents $adapter $model }}
{{- end }}
{{- if gt (len ($pool.loraRoot | default dict)) 1 }}
{{- fail (printf "pools.%s.loraRoot: needs one of pvc and path" $name) }}
{{- end }}
{{- $places := list }}
{{- range list "class" "claim" "hostPath" }}
{{- if index $pool.storage . }}{{ $places = append $places . }}{{ end }}
{{- end }}
{{- if gt (len $places) 1 }}
{{- fail (printf "pools.%s.storage: %s exclude each other" $name (join " and " $places)) }}
{{- end }}
{{- if and $pool.gpus $pool.tensorParallel (ne (int $pool.gpus) (int $pool.tensorParallel)) }}
{{- fail (printf "pools.%s.tensorParallel: is %v, but the model is split over its %v GPUs; leave it 0" $name $pool.tensorParallel $pool.gpus) }}
{{- end }}
{{- $rollout := include "continuo.rollout" (list $pool.gpus $pool.rollout) | fromYaml }}
{{- if and (regexMatch "^0+%?$" (toString $rollout.maxSurge)) (regexMatch "^0+%?$" (toString $rollout.maxUnavailable)) }}
{{- fail (printf "pools.%s.rollout: neither maxSurge nor maxUnavailable is above 0, so no pod could ever be replaced" $name) }}
{{- end }}
{{- if gt (int $pool.autoscaling.minReplicas) (int $pool.autoscaling.maxReplicas) }}
{{- fail (printf "pools.%s.autoscaling: minReplicas %v is above maxReplicas %v" $name $pool.autoscaling.minReplicas $pool.autoscaling.maxReplicas) }}
{{- end }}
{{- /* Kubernetes cuts longer names in those of pods. */ -}}
{{- $deployment := include "continuo.poolName" (list $ $name) }}
{{- if and $pool.autoscaling.enabled (eq $pool.autoscaling.by "keda") (gt (len $deployment) 46) }}
{{- fail (printf "pools.%s.autoscaling: by keda, whose query knows pods by their name, that of %s has %d letters and may have 46; set fullnameOverride" $name $deployment (len $deployment)) }}
{{- end }}
{{- if and $pool.autoscaling.enabled (eq $pool.autoscaling.by "hpa") (lt (int $pool.autoscaling.minReplicas) 1) }}
{{- fail (printf "pools.%s.autoscaling.minReplicas: 0 needs by: keda; an HPA reads what workers report, and a pool at zero reports nothing" $name) }}
{{- end }}
{{- end }}
{{- range $name, $said := .Values.pools }}
{{- $model := $said.model.name | default $name }}
{{- if hasKey $parents $model }}
{{- fail (printf "pools.%s.model: %s is an adapter of %s in another pool" $name $model (get $parents $model)) }}
{{- end }}
{{- end }}
{{- if gt (int .Values.gateway.autoscaling.minReplicas) (int .Values.gateway.autoscaling.maxReplicas) }}
{{- fail (printf "gateway.autoscaling: minReplicas %v is above maxReplicas %v" .Values.gateway.autoscaling.minReplicas .Values.gateway.autoscaling.maxReplicas) }}
{{- end }}
{{- if and .Values.token.secretName (not .Values.token.enabled) }}
{{- fail "token.secretName: needs token.enabled" }}
{{- end }}
{{- with .Values.tls }}
{{- if .enabled }}
{{- if and (not .issuer.name) (not .workers.secretName) }}
{{- fail "tls: workers need tls.workers.secretName, or tls.issuer.name for cert-manager to make one" }}
{{- end }}
{{- if and (not .issuer.name) (not .clientsIssuer.name) (not .clients.secretName) }}
{{- fail "tls: clients need tls.clients.secretName, or tls.issuer.name or tls.clientsIssuer.name for cert-manager to make one" }}
{{- end }}
{{- if and .clientsIssuer.name (not .clients.secretName) (not .clients.dnsNames) }}
{{- fail "tls.clients.dnsNames: is needed with tls.clientsIssuer: the names in its certificate" }}
{{- end }}
{{- if and .clients.requireCertificates .clientsIssuer.name (not .clients.secretName) }}
{{- fail "tls.clients.requireCertificates: with tls.clientsIssuer it needs tls.clients.secretName, a Secret whose ca.crt is of clients' certificates; that of a public authority is in none, or would let anybody in" }}
{{- end }}
{{- if and (or $.Values.httpRoute.enabled $.Values.grpcRoute.enabled) (not .clients.caConfigMap) (not .clients.secretName) (not .clientsIssuer.name) }}
{{- fail "tls.clients.caConfigMap: is needed for Gateways to know the gateways' certificate" }}
{{- end }}
{{- if and .workers.gatewaySecretName (not .workers.secretName) }}
{{- fail "tls.workers.gatewaySecretName: needs tls.workers.secretName; without it cert-manager makes both" }}
{{- end }}
{{- if and .workers.secretName (not .workers.serverName) (not .workers.names) }}
{{- fail "tls.workers.serverName: is needed with tls.workers.secretName: the name in that certificate; or tls.workers.names" }}
{{- end }}
{{- if and .workers.serverName .workers.names }}
{{- fail "tls.workers: serverName and names exclude each other, both say what names workers' certificates have" }}
{{- end }}
{{- if and .workers.names (not .workers.secretName) }}
{{- fail "tls.workers.names: needs tls.workers.secretName; cert-manager's certificate has the name that gateways expect" }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (or .Values.ingress.enabled .Values.httpRoute.enabled) (not .Values.gateway.http) }}
{{- fail "ingress and httpRoute need gateway.http" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}
{{- fail "ingress.hosts: at least one is needed" }}
{{- end }}
{{- range list "httpRoute" "grpcRoute" }}
{{- $route := index $.Values . }}
{{- if and $route.enabled (not $route.parentRefs) }}
{{- fail (printf "%s.parentRefs: the Gateway that it belongs to is needed" .) }}
{{- end }}
{{- end }}
{{- if and .Values.inferencePool.enabled (not .Values.inferencePool.endpointPicker.name) }}
{{- fail "inferencePool.endpointPicker.name: the endpoint picker's Service is needed" }}
{{- end }}
{{- if eq (include "continuo.inferencePoolOf" .) "workers" }}
{{- if and .Values.networkPolicy.enabled (not .Values.inferencePool.clients) }}
{{- fail "inferencePool.clients: is needed: the peers that may call workers, which ask for no keys" }}
{{- end }}
{{- if .Values.monitoring.tokenSecret.name }}
{{- fail "monitoring.tokenSecret: an endpoint picker (inferencePool) reads the workers' metrics and shows no token" }}
{{- end }}
{{- end }}
{{- if eq (include "continuo.inferencePoolOf" .) "gateways" }}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.clients (not .Values.inferencePool.clients) }}
{{- fail "inferencePool.clients: is needed with networkPolicy.clients: the endpoint picker and the proxies that it sends to the gateways, which could not reach them" }}
{{- end }}
{{- if not .Values.gateway.http }}
{{- fail "inferencePool.endpoints: gateways need gateway.http" }}
{{- end }}
{{- if eq .Values.inferencePool.appProtocol "kubernetes.io/h2c" }}
{{- fail "inferencePool.appProtocol: gateways speak HTTP/1.1 to an InferencePool's proxies, not kubernetes.io/h2c; leave it auto" }}
{{- end }}
{{- if and .Values.tls.enabled .Values.httpRoute.enabled }}
{{- fail "inferencePool: with tls.enabled no httpRoute can lead to it, since a BackendTLSPolicy is for Services alone" }}
{{- end }}
{{- if and .Values.tls.enabled .Values.tls.clients.requireCertificates }}
{{- fail "tls.clients.requireCertificates: an endpoint picker (inferencePool) reads the gateways' load and shows no certificate" }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Labels by which objects find each other are not the operator's. (list NAME LABELS) */ -}}
{{- define "continuo.checkLabels" -}}
{{- range $label, $_ := index . 1 }}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|managed-by)|continuo/.*)$" $label }}
{{- fail (printf "%s: %s is the chart's own" (index $ 0) $label) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Members of a pod's spec that have values of their own, or that follow from others; MORE are those of
this component alone. (list NAME MEMBERS MORE) */ -}}
{{- define "continuo.checkPodSpec" -}}
{{- $values := merge (index . 2) (dict
  "containers" "extraContainers" "initContainers" "extraInitContainers" "volumes" "extraVolumes"
  "serviceAccountName" "serviceAccountName" "schedulerName" "schedulerName" "nodeSelector" "nodeSelector"
  "tolerations" "tolerations" "affinity" "affinity" "priorityClassName" "priorityClassName"
  "topologySpreadConstraints" "spread" "terminationGracePeriodSeconds" "drainSeconds"
  "imagePullSecrets" "image.pullSecrets") }}
{{- range $member, $_ := index . 1 }}
{{- with index $values $member }}
{{- fail (printf "%s.podSpec.%s: say it by %s" (index $ 0) $member .) }}
{{- end }}
{{- end }}
{{- end }}
