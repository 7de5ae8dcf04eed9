{{- /* The spec of the gateways' pods. */ -}}
{{- define "continuo.gatewayPod" -}}
{{- $g := .Values.gateway }}
{{- $otlpTls := include "continuo.otlpTls" . }}
{{- $asksApi := eq $g.discovery "kubernetes" }}
{{- $mounts := or .Values.tls.enabled .Values.token.enabled .Values.apiKeys.secretName .Values.monitoring.tokenSecret.name $otlpTls $asksApi }}
{{- /* Connections end after up to a tenth more than their time. */ -}}
{{- $connections := int (ceil (mulf $g.connectionSeconds 1.1)) }}
{{- include "continuo.podSpec" (list . $g (include "continuo.gatewaySelector" .)) | trim }}
# The drain, what comes before it, and the end of the process after it.
terminationGracePeriodSeconds: {{ add $g.preStopSeconds $connections $g.drainSeconds 15 }}
{{- with $g.extraInitContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: gateway
    image: {{ include "continuo.image" (list . $g.image "gateway") | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
      - {{ printf "--workers=%s" (include "continuo.workers" .) | quote }}
      - {{ printf "--models=%s" (include "continuo.models" .) | quote }}
      {{- with include "continuo.coldStartSeconds" . }}
      - --cold_start_wait={{ . }}s
      {{- end }}
      {{- if include "continuo.gatewaysHeadless" . }}
      - {{ printf "--gateways=dns:///%s-gateway-headless.%s.svc.%s.:50050" (include "continuo.fullname" .) .Release.Namespace .Values.clusterDomain | quote }}
      {{- end }}
      - --routing_policy={{ $g.routingPolicy }}
      - --drain_grace={{ $g.drainSeconds }}s
      {{- if $g.connectionSeconds }}
      - --max_connection_age={{ $g.connectionSeconds }}s
      - --drain_delay={{ $connections }}s
      {{- end }}
      {{- if not $g.http }}
      - --http_listen=off
      {{- end }}
      {{- if include "continuo.scaler" . }}
      - --scaler_listen=0.0.0.0:50052
      - {{ printf "--scaler_peers=dns:///%s" (include "continuo.scalerAddress" .) | quote }}
      {{- end }}
      {{- if .Values.tls.enabled }}
      - --tls_cert_file=/etc/continuo/clients/tls.crt
      - --tls_key_file=/etc/continuo/clients/tls.key
      {{- if .Values.tls.clients.requireCertificates }}
      - --tls_ca_file=/etc/continuo/clients/ca.crt
      {{- end }}
      - --worker_tls_cert_file=/etc/continuo/workers/tls.crt
      - --worker_tls_key_file=/etc/continuo/workers/tls.key
      - --worker_tls_ca_file=/etc/continuo/workers/ca.crt
      {{- if .Values.tls.workers.names }}
      - {{ printf "--worker_tls_names=%s" (join "," .Values.tls.workers.names) | quote }}
      {{- else }}
      - {{ printf "--worker_tls_server_name=%s" (include "continuo.workerServerName" .) | quote }}
      {{- end }}
      {{- end }}
      {{- if .Values.token.enabled }}
      - {{ printf "--token_file=/etc/continuo/token/%s" .Values.token.key | quote }}
      {{- end }}
      {{- if .Values.monitoring.tokenSecret.name }}
      - {{ printf "--metrics_token_file=/etc/continuo/metrics/%s" .Values.monitoring.tokenSecret.key | quote }}
      {{- end }}
      {{- if .Values.apiKeys.secretName }}
      - {{ printf "--api_keys_file=/etc/continuo/keys/%s" .Values.apiKeys.key | quote }}
      {{- end }}
      {{- if .Values.otlpEndpoint }}
      {{- include "continuo.otlpFlags" . | trim | nindent 6 }}
      {{- end }}
      {{- with $g.flags }}
      {{- include "continuo.flags" . | trim | nindent 6 }}
      {{- end }}
    {{- with include "continuo.environment" $g | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    ports:
      - {name: grpc, containerPort: 50050}
      {{- if $g.http }}
      - {name: http, containerPort: 8080}
      {{- end }}
      - {name: metrics, containerPort: 9091}
      {{- if include "continuo.scaler" . }}
      - {name: scaler, containerPort: 50052}
      {{- end }}
    readinessProbe:
      {{- include "continuo.probe" (list . 50050) | nindent 6 }}
      periodSeconds: 2
      failureThreshold: 2
    livenessProbe:
      {{- include "continuo.probe" (list . 50050) | nindent 6 }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    {{- if $g.preStopSeconds }}
    lifecycle:
      preStop:
        sleep: {seconds: {{ $g.preStopSeconds }}}
    {{- end }}
    resources:
      {{- toYaml $g.resources | nindent 6 }}
    securityContext:
      {{- include "continuo.containerSecurity" . | nindent 6 }}
    {{- if or $mounts $g.extraVolumeMounts }}
    volumeMounts:
      {{- if .Values.tls.enabled }}
      - {name: clients-tls, mountPath: /etc/continuo/clients, readOnly: true}
      - {name: workers-tls, mountPath: /etc/continuo/workers, readOnly: true}
      {{- end }}
      {{- if .Values.token.enabled }}
      - {name: token, mountPath: /etc/continuo/token, readOnly: true}
      {{- end }}
      {{- if .Values.monitoring.tokenSecret.name }}
      - {name: metrics-token, mountPath: /etc/continuo/metrics, readOnly: true}
      {{- end }}
      {{- if .Values.apiKeys.secretName }}
      - {name: keys, mountPath: /etc/continuo/keys, readOnly: true}
      {{- end }}
      {{- if $otlpTls }}
      - {name: otlp-tls, mountPath: /etc/continuo/otlp, readOnly: true}
      {{- end }}
      {{- if $asksApi }}
      - {name: api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
      {{- end }}
      {{- with $g.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
  {{- with $g.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or $mounts $g.extraVolumes }}
volumes:
  {{- if .Values.tls.enabled }}
  - name: clients-tls
    secret: {secretName: {{ include "continuo.clientsSecret" . | quote }}, defaultMode: 0440}
  - name: workers-tls
    secret: {secretName: {{ include "continuo.gatewaySecret" . | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if .Values.token.enabled }}
  - name: token
    secret: {secretName: {{ include "continuo.tokenSecret" . | quote }}, defaultMode: 0440}
  {{- end }}
  {{- with .Values.monitoring.tokenSecret.name }}
  - name: metrics-token
    secret: {secretName: {{ . | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if .Values.apiKeys.secretName }}
  - name: keys
    secret: {secretName: {{ .Values.apiKeys.secretName | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $otlpTls }}
  - name: otlp-tls
    secret: {secretName: {{ .Values.otlpTls.secretName | quote }}, defaultMode: 0440}
  {{- end }}
  {{- if $asksApi }}
  # What the kubelet mounts where tokens are mounted automatically, into this container alone.
  - name: api-access
    projected:
      defaultMode: 0440
      sources:
        - serviceAccountToken: {path: token, expirationSeconds: 3607}
        - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
        - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
  {{- end }}
  {{- with $g.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
