{{- /* The spec of a pool's pods. (list $ NAME POOL SELECTOR) */ -}}
{{- define "continuo.workerPod" -}}
{{- $root := index . 0 }}
{{- $name := index . 1 }}
{{- $p := index . 2 }}
{{- $selector := index . 3 }}
{{- $gpus := int $p.gpus }}
{{- $downloads := or $p.model.hub $p.model.objectStore }}
{{- $cache := and $p.weightsCache.enabled (eq $gpus 0) }}
{{- $otlpTls := include "continuo.otlpTls" $root }}
{{- $claimed := dict }}
{{- range $adapter, $source := $p.loraAdapters }}
{{- if $source.pvc }}{{ $_ := set $claimed $adapter (printf "adapter-%d" (len $claimed)) }}{{ end }}
{{- end }}
{{- $loraClaim := (($p.loraRoot | default dict).pvc | default dict).claim }}
{{- $mounts := or $cache $claimed $loraClaim (not $p.model.path) (gt $gpus 1) $root.Values.tls.enabled $root.Values.token.enabled $root.Values.monitoring.tokenSecret.name $otlpTls }}
{{- $clientNames := ternary (include "continuo.workerClientNames" $root) "" $root.Values.tls.enabled }}
{{- $ca := and $downloads $root.Values.download.caConfigMap }}
{{- $path := include "continuo.modelPath" (list $root $name $p.model) }}
{{- include "continuo.podSpec" (list $root $p $selector) | trim }}
# The wait before the drain, the drain with the second over which its streams migrate, and the
# 20 s that a worker takes at most to end.
terminationGracePeriodSeconds: {{ add $p.preStopSeconds $p.drainSeconds 25 }}
{{- if or $downloads $p.extraInitContainers }}
initContainers:
  {{- if $downloads }}
  - name: download
    {{- if $p.model.hub }}
    image: {{ $root.Values.download.hubImage | quote }}
    command: [sh, -c]
    args:
      - |
        {{- $root.Files.Get "files/fetch_hub.sh" | nindent 8 }}
    env:
      - {name: HUB, value: {{ $p.model.hub.endpoint | default $root.Values.download.hubEndpoint | quote }}}
      - {name: REPOSITORY, value: {{ $p.model.hub.repository | quote }}}
      - {name: REVISION, value: {{ $p.model.hub.revision | default "main" | quote }}}
      - {name: TARGET, value: {{ $path | quote }}}
      - {name: STREAMS, value: {{ $root.Values.download.streams | quote }}}
      {{- with $p.model.hub.tokenSecret }}
      - name: HUB_TOKEN
        valueFrom:
          secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | default "token" | quote }}}
      {{- end }}
      {{- include "continuo.downloadEnv" (list $root "CURL_CA_BUNDLE") | trim | nindent 6 }}
    {{- else }}
    image: {{ $root.Values.download.objectStoreImage | quote }}
    command: [sh, -c]
    args:
      - |
        {{- $root.Files.Get "files/fetch_store.sh" | nindent 8 }}
    env:
      - {name: SOURCE, value: {{ regexReplaceAll "^gs://" (regexReplaceAll "^s3://" $p.model.objectStore.uri ":s3,env_auth:") ":gcs,env_auth:" | quote }}}
      - {name: TARGET, value: {{ $path | quote }}}
      - {name: STREAMS, value: {{ $root.Values.download.streams | quote }}}
      - {name: HOME, value: /tmp}
      - {name: RCLONE_CONFIG, value: /tmp/rclone.conf}
      {{- include "continuo.downloadEnv" (list $root "RCLONE_CA_CERT") | trim | nindent 6 }}
    {{- with $p.model.objectStore.secretName }}
    envFrom:
      - secretRef: {name: {{ . | quote }}}
    {{- end }}
    {{- end }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    resources:
      {{- toYaml $root.Values.download.resources | nindent 6 }}
    securityContext:
      {{- include "continuo.containerSecurity" $root | nindent 6 }}
    volumeMounts:
      - {name: model, mountPath: /models}
      - {name: tmp, mountPath: /tmp}
      {{- if $ca }}
      - {name: download-ca, mountPath: /etc/continuo/download-ca, readOnly: true}
      {{- end }}
  {{- end }}
  {{- with $p.extraInitContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - name: worker
    image: {{ include "continuo.image" (list $root $p.image (ternary "worker-cuda" "worker-cpu" (gt $gpus 0))) | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      - {{ printf "--model=%s" $path | quote }}
      - {{ printf "--model_name=%s" ($p.model.name | default $name) | quote }}
      {{- if $gpus }}
      - --device=cuda:{{ untilStep 0 $gpus 1 | join "," }}
      {{- end }}
      {{- with $gpus | default $p.tensorParallel }}
      - --tensor_parallel={{ . }}
      {{- end }}
      {{- if $cache }}
      - --weights_cache=/var/cache/continuo
      {{- end }}
      {{- range $adapter, $source := $p.loraAdapters }}
      {{- if $source.pvc }}
      - {{ printf "--lora_adapter=%s=%s" $adapter (printf "/adapters/%s/%s" (get $claimed $adapter) ($source.pvc.path | default "") | trimSuffix "/") | quote }}
      {{- else }}
      - {{ printf "--lora_adapter=%s=%s" $adapter $source.path | quote }}
      {{- end }}
      {{- end }}
      {{- with $p.loraRoot }}
      - {{ printf "--lora_root=%s" (.path | default (printf "/lora/%s" ((.pvc | default dict).path | default "") | trimSuffix "/")) | quote }}
      {{- end }}
      - --drain_grace={{ $p.drainSeconds }}s
      {{- if $root.Values.tls.enabled }}
      - --tls_cert_file=/etc/continuo/tls/tls.crt
      - --tls_key_file=/etc/continuo/tls/tls.key
      - --tls_ca_file=/etc/continuo/tls/ca.crt
      {{- with $clientNames }}
      - {{ printf "--tls_client_names=%s" . | quote }}
      {{- end }}
      {{- end }}
      {{- if $root.Values.token.enabled }}
      - {{ printf "--token_file=/etc/continuo/token/%s" $root.Values.token.key | quote }}
      {{- end }}
      {{- if $root.Values.monitoring.tokenSecret.name }}
      - {{ printf "--metrics_token_file=/etc/continuo/metrics/%s" $root.Values.monitoring.tokenSecret.key | quote }}
      {{- end }}
      {{- if and (eq (include "continuo.inferencePoolOf" $root) "workers") (or $root.Values.token.enabled $clientNames) }}
      - --open_inference=true
      {{- end }}
      {{- if $root.Values.otlpEndpoint }}
      {{- include "continuo.otlpFlags" $root | trim | nindent 6 }}
      {{- end }}
      {{- with $p.flags }}
      {{- include "continuo.flags" . | trim | nindent 6 }}
      {{- end }}
    {{- with include "continuo.environment" $p | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    ports:
      - {name: grpc, containerPort: 50051}
      - {name: metrics, containerPort: 9090}
    startupProbe:
      {{- include "continuo.probe" (list $root 50051) | nindent 6 }}
      periodSeconds: 2
      failureThreshold: {{ div (add $p.loadSeconds 1) 2 }}
    readinessProbe:
      {{- include "continuo.probe" (list $root 50051) | nindent 6 }}
      periodSeconds: 2
      failureThreshold: 2
    # Health is "steps are being made": an engine that hangs is restarted.
    livenessProbe:
      {{- include "continuo.probe" (list $root 50051) | nindent 6 }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    {{- if $p.preStopSeconds }}
    lifecycle:
      preStop:
        sleep: {seconds: {{ $p.preStopSeconds }}}
    {{- end }}
    {{- $resources := deepCopy $p.resources }}
    {{- if and $gpus $p.gpuResource }}
    {{- $_ := set $resources "limits" (merge (dict $p.gpuResource $gpus) ($resources.limits | default dict)) }}
    {{- end }}
    {{- with $p.resourceClaims }}
    {{- $claims := list }}
    {{- range . }}{{ $claims = append $claims (dict "name" .name) }}{{ end }}
    {{- $_ := set $resources "claims" $claims }}
    {{- end }}
    resources:
      {{- toYaml $resources | nindent 6 }}
    securityContext:
      {{- include "continuo.containerSecurity" $root | nindent 6 }}
    {{- if or $mounts $p.extraVolumeMounts }}
    volumeMounts:
      {{- if not $p.model.path }}
      - {name: model, mountPath: /models, readOnly: true}
      {{- end }}
      {{- if $cache }}
      - {name: weights-cache, mountPath: /var/cache/continuo}
      {{- end }}
      {{- if $loraClaim }}
      - {name: lora, mountPath: /lora, readOnly: true}
      {{- end }}
      {{- range $adapter, $volume := $claimed }}
      - {name: {{ $volume }}, mountPath: /adapters/{{ $volume }}, readOnly: true}
      {{- end }}
      {{- if gt $gpus 1 }}
      - {name: shm, mountPath: /dev/shm}
      {{- end }}
      {{- if $root.Values.tls.enabled }}
      - {name: tls, mountPath: /etc/continuo/tls, readOnly: true}
      {{- end }}
      {{- if $root.Values.token.enabled }}
      - {name: token, mountPath: /etc/continuo/token, readOnly: true}
      {{- end }}
      {{- if $root.Values.monitoring.tokenSecret.name }}
      - {name: metrics-token, mountPath: /etc/continuo/metrics, readOnly: true}
      {{- end }}
      {{- if $otlpTls }}
      - {name: otlp-tls, mountPath: /etc/continuo/otlp, readOnly: true}
      {{- end }}
      {{- with $p.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
  {{- with $p.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $p.resourceClaims }}
resourceClaims:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or $mounts $p.extraVolumes }}
volumes:
  {{- if $p.model.pvc }}
  - name: model
    persistentVolumeClaim: {claimName: {{ $p.model.pvc.claim | quote }}, readOnly: true}
  {{- else if $p.model.image }}
  - name: model
    image: {reference: {{ $p.model.image.reference | quote }}, pullPolicy: {{ $root.Values.image.pullPolicy }}}
  {{- else if and $downloads $p.storage.claim }}
  - name: model
    persistentVolumeClaim: {claimName: {{ $p.storage.claim | quote }}}
  {{- else if and $downloads $p.storage.hostPath }}
  - name: model
    hostPath: {path: {{ $p.storage.hostPath | quote }}, type: Directory}
  {{- else if and $downloads $p.storage.class }}
  - name: model
    ephemeral:
      volumeClaimTemplate:
        spec:
          accessModes: [ReadWriteOnce]
          storageClassName: {{ $p.storage.class | quote }}
          resources:
            requests: {storage: {{ $p.storage.size }}}
  {{- else if $downloads }}
  - name: model
    emptyDir: {sizeLimit: {{ $p.storage.size }}}
  {{- end }}
  {{- if $downloads }}
  - name: tmp
    emptyDir: {sizeLimit: 1Gi}
  {{- end }}
  {{- if $cache }}
  - name: weights-cache
    {{- with $p.weightsCache.claim }}
    persistentVolumeClaim: {claimName: {{ . | quote }}}
    {{- else }}
    emptyDir: {sizeLimit: {{ $p.weightsCache.size }}}
    {{- end }}
  {{- end }}
  {{- range $adapter, $volume := $claimed }}
  - name: {{ $volume }}
    persistentVolumeClaim: {claimName: {{ (get $p.loraAdapters $adapter).pvc.claim | quote }}, readOnly: true}
  {{- end }}
  {{- if $loraClaim }}
  - name: lora
    persistentVolumeClaim: {claimName: {{ $loraClaim | quote }}, readOnly: true}
  {{- end }}
  {{- if gt $gpus 1 }}
  # NCCL's shared memory among the ranks.
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: 1Gi}
  {{- end }}
  {{- if $root.Values.tls.enabled }}
  - name: tls
    secret: {secretName: {{ include "continuo.workersSecret" $root | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $root.Values.token.enabled }}
  - name: token
    secret: {secretName: {{ include "continuo.tokenSecret" $root | quote }}, defaultMode: 0440}
  {{- end }}
  {{- with $root.Values.monitoring.tokenSecret.name }}
  - name: metrics-token
    secret: {secretName: {{ . | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $otlpTls }}
  - name: otlp-tls
    secret: {secretName: {{ $root.Values.otlpTls.secretName | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $ca }}
  - name: download-ca
    configMap: {name: {{ $ca | quote }}}
  {{- end }}
  {{- with $p.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Environment of a download: proxy and authority. (list $ VARIABLE-OF-THE-AUTHORITY) */ -}}
{{- define "continuo.downloadEnv" -}}
{{- with index . 0 }}
{{- with .Values.download }}
{{- if .caConfigMap }}
- {name: {{ index $ 1 }}, value: /etc/continuo/download-ca/ca.crt}
{{- end }}
{{- with .proxy }}
- {name: HTTPS_PROXY, value: {{ . | quote }}}
- {name: https_proxy, value: {{ . | quote }}}
- {name: http_proxy, value: {{ . | quote }}}
{{- end }}
{{- with .noProxy }}
- {name: NO_PROXY, value: {{ . | quote }}}
- {name: no_proxy, value: {{ . | quote }}}
{{- end }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
