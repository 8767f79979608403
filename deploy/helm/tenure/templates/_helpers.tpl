{{/* Names begin with the release's; a release "tenure" is not called tenure-tenure. At most 30, so that what is added fits. */}}
{{- define "tenure.fullname" -}}
{{- $name := .Release.Name }}
{{- if not (contains .Chart.Name $name) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end }}
{{- $name | trunc 30 | trimSuffix "-" }}
{{- end }}

{{/* What selects pods must never change: name, release and component; of a worker its group as well. */}}
{{- define "tenure.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .group }}
tenure/group: {{ . }}
{{- end }}
{{- end }}

{{- define "tenure.labels" -}}
{{ include "tenure.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* A group of workers: what it says over what all groups have. */}}
{{- define "tenure.group" -}}
{{- mergeOverwrite (deepCopy .root.Values.worker) (deepCopy .group) | toJson }}
{{- end }}

{{/* A worker that is killed before the end of its drain hands nothing back: its runs count a failure and start over. */}}
{{- define "tenure.checkDrain" -}}
{{- $least := addf .root.Values.drainSeconds .root.Values.longestGraceSeconds 10 | ceil | int }}
{{- $given := int .group.terminationGracePeriodSeconds }}
{{- if lt $given $least }}
{{- fail (printf "workers %q: terminationGracePeriodSeconds is %d, and must be at least %d: drainSeconds (%v) + longestGraceSeconds (%v) + 10" .group.name $given $least .root.Values.drainSeconds .root.Values.longestGraceSeconds) }}
{{- end }}
{{- end }}

{{- define "tenure.environment" -}}
- name: TENURE_NATS_URL
{{- if .Values.nats.secret.name }}
  valueFrom:
    secretKeyRef:
      name: {{ .Values.nats.secret.name }}
      key: {{ .Values.nats.secret.key }}
{{- else }}
  value: {{ .Values.nats.url | quote }}
{{- end }}
{{- with .Values.deployed }}
- name: TENURE_DEPLOYED
  value: {{ . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every pod's container has. */}}
{{- define "tenure.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  {{- include "tenure.environment" . | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "tenure.served" -}}
ports:
  - name: metrics
    containerPort: {{ .Values.metrics.port }}
# Answered by a thread of its own: it fails when the process is dead or frozen, not while a body blocks the loop.
livenessProbe:
  httpGet:
    path: /health
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
# Not ready while it does not pull, its session is not trusted, or it drains; it goes on by itself when the server is back.
readinessProbe:
  httpGet:
    path: /ready
    port: metrics
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
{{- end }}

{{/* What every pod has; each is the app's code with the rights of nobody. */}}
{{- define "tenure.pod" -}}
serviceAccountName: {{ .Values.serviceAccountName }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: tmp
    emptyDir: {}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Where a component's pods go: apart from each other if there is room. */}}
{{- define "tenure.placed" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tenure.selector" . | nindent 8 }}
{{- with .placing.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .placing.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .placing.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tenure.metricsService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  labels:
    {{- include "tenure.labels" . | nindent 4 }}
    tenure/job: tenure-{{ .component }}
spec:
  # For those who scrape each pod: no address of its own, and pods that are not ready too.
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "tenure.selector" . | nindent 4 }}
  ports:
    - name: metrics
      port: {{ .root.Values.metrics.port }}
      targetPort: metrics
{{- end }}

{{- define "tenure.budget" -}}
{{- if .root.Values.podDisruptionBudget.enabled -}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels:
    {{- include "tenure.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready protects nothing, and must not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tenure.selector" . | nindent 6 }}
{{- end }}
{{- end }}
