{{/*
Names are fixed, not derived from the release: a cluster has one gpupack (one schedulerName, one kubelet
socket for each resource, one ledger). A second release fails at once at Helm's ownership check, instead
of running a second ledger for the same devices.
*/}}

{{- define "gpupack.labels" -}}
app.kubernetes.io/name: gpupack
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels that never change: selectors are immutable. Called with the name of a component. */}}
{{- define "gpupack.selector" -}}
app.kubernetes.io/name: gpupack
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Image of a component. Called with (list $ part.image). */}}
{{- define "gpupack.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $tag := $root.Values.image.tag | default $root.Chart.AppVersion -}}
{{- printf "%s/%s:%s" $root.Values.image.registry $image.repository $tag -}}
{{- end }}

{{/*
kube-scheduler in the cluster's own version, unless a tag is given. It must not be newer than the API
server, and at most one minor release older. A vendor's suffix (-gke.1) is not part of an upstream tag.
*/}}
{{- define "gpupack.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- $tag := $image.tag -}}
{{- if not $tag -}}
{{- $version := include "gpupack.kubeVersion" (list . "scheduler.kubeScheduler.image.tag") -}}
{{- $tag = regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $version -}}
{{- if not $tag -}}
{{- fail (printf "%s is not a complete version, which the tag of kube-scheduler's image needs: pass all three numbers to --kube-version, or set scheduler.kubeScheduler.image.tag" $version) -}}
{{- end -}}
{{- end -}}
{{- printf "%s/%s:%s" $image.registry $image.repository $tag -}}
{{- end }}

{{/* Placement of a component's pods: the images are for Linux. Called with the component's values. */}}
{{- define "gpupack.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  {{- merge (dict "kubernetes.io/os" "linux") (.nodeSelector | default dict) | toYaml | nindent 2 }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
Placement of pods that run on each node. Every term of the affinity excludes the excluded nodes, because
a node needs to match only one term. Called with the agent's values.
*/}}
{{- define "gpupack.nodePlacement" -}}
{{- $values := deepCopy . -}}
{{- $rules := list -}}
{{- range $label, $excluded := .excludedNodes }}
{{- with $excluded }}
{{- $rules = append $rules (dict "key" $label "operator" "NotIn" "values" .) -}}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $affinity := $values.affinity | default dict -}}
{{- $nodes := $affinity.nodeAffinity | default dict -}}
{{- $required := $nodes.requiredDuringSchedulingIgnoredDuringExecution | default (dict "nodeSelectorTerms" (list dict)) -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms }}
{{- $terms = append $terms (set . "matchExpressions" (concat (.matchExpressions | default list) $rules)) -}}
{{- end }}
{{- $_ := set $required "nodeSelectorTerms" $terms -}}
{{- $_ := set $nodes "requiredDuringSchedulingIgnoredDuringExecution" $required -}}
{{- $_ := set $affinity "nodeAffinity" $nodes -}}
{{- $_ := set $values "affinity" $affinity -}}
{{- end }}
{{- include "gpupack.placement" $values }}
{{- end }}

{{/*
Placement of the replicas of a component with a leader: on different nodes, always or if possible. They
do not stay on a dead node for five minutes, the default of Kubernetes. Called with (list "part"
.Values.part).
*/}}
{{- define "gpupack.spreadPlacement" -}}
{{- $part := index . 0 -}}
{{- $values := deepCopy (index . 1) -}}
{{- if not $values.affinity }}
{{- $labels := include "gpupack.selector" $part | fromYaml -}}
{{- /* Only pods of this revision count: pods that a rollout is about to replace do not block a node. */ -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) "matchLabelKeys" (list "pod-template-hash") -}}
{{- $rule := dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term)) -}}
{{- if eq $values.podAntiAffinity "required" }}
{{- $rule = dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term) -}}
{{- end }}
{{- $_ := set $values "affinity" (dict "podAntiAffinity" $rule) -}}
{{- end }}
{{- range list "not-ready" "unreachable" }}
{{- $gone := dict "key" (printf "node.kubernetes.io/%s" .) "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" ($values.unreachableSeconds | int) -}}
{{- $_ := set $values "tolerations" (append ($values.tolerations | default list) $gone) -}}
{{- end }}
{{- include "gpupack.placement" $values }}
{{- end }}

{{/*
A replica is replaced when the other one is ready; a drain waits for that too. Called with (list $
"part" .Values.part).
*/}}
{{- define "gpupack.disruptionBudget" -}}
{{- if gt (int (index . 2).replicas) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: gpupack-{{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "gpupack.labels" (index . 0) | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "gpupack.selector" (index . 1) | nindent 6 }}
{{- end }}
{{- end }}

{{- define "gpupack.rollingUpdate" -}}
type: RollingUpdate
rollingUpdate: {maxUnavailable: 1, maxSurge: 0}
{{- end }}

{{- define "gpupack.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* For components that create pods with images of gpupack. */}}
{{- define "gpupack.pullingEnv" -}}
- {name: GPUPACK_IMAGE_PULL_POLICY, value: {{ .Values.image.pullPolicy }}}
{{- $names := list }}
{{- range .Values.image.pullSecrets }}
{{- $names = append $names .name }}
{{- end }}
{{- with join "," $names }}
- {name: GPUPACK_IMAGE_PULL_SECRETS, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* Security context of a container that needs nothing of its node. */}}
{{- define "gpupack.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Security context of a pod that needs nothing of its node. 65532 is the user of the images. */}}
{{- define "gpupack.confinedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Environment that all components read. */}}
{{- define "gpupack.commonEnv" -}}
- name: GPUPACK_SYSTEM_NAMESPACE
  value: {{ .Release.Namespace }}
- name: GPUPACK_CHART_VERSION
  value: {{ .Chart.Version | quote }}
- name: GPUPACK_LOG_LEVEL
  value: {{ .Values.logLevel }}
- name: GPUPACK_MAX_OBJECT_MIB
  value: {{ .Values.maxObjectMib | int | quote }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.name
{{- end }}

{{/* Settings of the kubelets. A value that is not set is read from each node. */}}
{{- define "gpupack.kubeletEnv" -}}
{{- with .Values.kubelet.rootDir }}
- {name: GPUPACK_KUBELET_ROOT_DIR, value: {{ . | quote }}}
{{- end }}
{{- with .Values.kubelet.cgroupRoot }}
- {name: GPUPACK_KUBELET_CGROUP_ROOT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.kubelet.cgroupDriver }}
- {name: GPUPACK_KUBELET_CGROUP_DRIVER, value: {{ . | quote }}}
{{- end }}
{{- with .Values.kubelet.runtimeEndpoint }}
- {name: GPUPACK_KUBELET_RUNTIME_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* Port of operator and agent for metrics. Empty: no port. */}}
{{- define "gpupack.metricsPort" -}}
{{- if .Values.metricsPort }}
{{- .Values.metricsPort | int }}
{{- else if or .Values.monitoring.enabled (and .Values.api.enabled .Values.api.readings.enabled) }}
{{- 9443 }}
{{- end }}
{{- end }}

{{- define "gpupack.metricsEnv" -}}
- {name: GPUPACK_METRICS_PORT, value: {{ include "gpupack.metricsPort" . | default "0" | quote }}}
{{- if include "gpupack.metricsPort" . }}
- {name: GPUPACK_METRICS_TLS_CERT, value: /etc/gpupack-metrics/tls.crt}
- {name: GPUPACK_METRICS_TLS_KEY, value: /etc/gpupack-metrics/tls.key}
{{- end }}
{{- end }}

{{- define "gpupack.metricsPorts" -}}
{{- with include "gpupack.metricsPort" . }}
ports:
  - {name: metrics, containerPort: {{ . }}}
{{- end }}
{{- end }}

{{- define "gpupack.metricsMount" -}}
{{- if include "gpupack.metricsPort" . }}
- {name: metrics-tls, mountPath: /etc/gpupack-metrics, readOnly: true}
{{- end }}
{{- end }}

{{- define "gpupack.metricsVolume" -}}
{{- if include "gpupack.metricsPort" . }}
- name: metrics-tls
  secret:
    secretName: {{ include "gpupack.metricsTlsSecret" . }}
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
{{- end }}
{{- end }}

{{- define "gpupack.readingsEnv" -}}
{{- if .Values.api.readings.enabled }}
- {name: GPUPACK_READINGS_PORT, value: {{ include "gpupack.metricsPort" . | quote }}}
- {name: GPUPACK_READINGS_HOST, value: "gpupack-metrics.{{ .Release.Namespace }}.svc"}
- {name: GPUPACK_READINGS_CA, value: /etc/gpupack-readings/ca.crt}
- {name: GPUPACK_READINGS_TOKEN, value: /etc/gpupack-readings/token}
{{- end }}
{{- end }}

{{- define "gpupack.readingsMount" -}}
{{- if .Values.api.readings.enabled }}
- {name: readings, mountPath: /etc/gpupack-readings, readOnly: true}
{{- end }}
{{- end }}

{{- define "gpupack.readingsVolume" -}}
{{- if .Values.api.readings.enabled }}
# The CA of the agents' certificate, and a token that may only get /metrics.
- name: readings
  projected:
    sources:
      - secret:
          name: {{ include "gpupack.metricsTlsSecret" . }}
          items:
            - {key: ca.crt, path: ca.crt}
      - secret:
          name: {{ include "gpupack.metricsTokenSecret" . }}
          items:
            - {key: token, path: token}
{{- end }}
{{- end }}

{{- define "gpupack.metricsTokenSecret" -}}
{{- .Values.monitoring.tokenSecret | default "gpupack-metrics-token" -}}
{{- end }}

{{- define "gpupack.metricsTlsSecret" -}}
{{- .Values.monitoring.tls.existingSecret | default "gpupack-metrics-certificate" -}}
{{- end }}

{{- define "gpupack.apiTlsSecret" -}}
{{- .Values.api.tls.existingSecret | default "gpupack-api-certificate" -}}
{{- end }}

{{- define "gpupack.costTlsSecret" -}}
{{- .Values.cost.tls.existingSecret | default "gpupack-cost-certificate" -}}
{{- end }}

{{/* Rules for components that serve metrics: they authenticate callers and check their rights. */}}
{{- define "gpupack.metricsRules" -}}
{{- if include "gpupack.metricsPort" . }}
# Authenticates callers of /metrics and checks their rights.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{/*
Whether Helm's information about the cluster comes from a cluster. Every API server serves this group.
Helm's own list, which it uses without a cluster, does not contain it. Argo CD and Flux render with the
list of the cluster.
*/}}
{{- define "gpupack.clusterIsKnown" -}}
{{- if .Capabilities.APIVersions.Has "apiregistration.k8s.io/v1" }}true{{ end }}
{{- end }}

{{/*
The Kubernetes version of the cluster. Without a cluster Helm assumes a version that always ends in .0:
two settings would silently be those for another cluster. Called with (list $ "value to set").
*/}}
{{- define "gpupack.kubeVersion" -}}
{{- $root := index . 0 -}}
{{- $version := $root.Capabilities.KubeVersion.Version -}}
{{- if and (not (include "gpupack.clusterIsKnown" $root)) (regexMatch "^v[0-9]+\\.[0-9]+\\.0$" $version) -}}
{{- fail (printf "the chart is rendered without a cluster, so Helm assumes Kubernetes %s: pass the cluster's version with all three numbers, such as --kube-version 1.36.3 (if it ends with .0, also pass --api-versions apiregistration.k8s.io/v1), or set %s" $version (index . 1)) -}}
{{- end -}}
{{- $version -}}
{{- end }}

{{/*
Whether standalone pods wait behind a gate. In advisory mode kube-scheduler's own scores choose, and
behind a gate nothing would be left to choose from. The version decides, not what the API server serves,
so that a rendering without a cluster is the same: MutatingAdmissionPolicy is v1, and on by default,
from 1.36 on.
*/}}
{{- define "gpupack.gatesPods" -}}
{{- $wanted := toString .Values.admission.gatePods -}}
{{- if eq .Values.scheduler.mode "decisive" }}
{{- if eq $wanted "true" }}true
{{- else if and (eq $wanted "auto") (semverCompare ">=1.36.0-0" (include "gpupack.kubeVersion" (list . "admission.gatePods to true or false"))) }}true
{{- end }}
{{- end }}
{{- end }}

{{/* Whether admission records the users of jobs and pods: it needs MutatingAdmissionPolicy, as the gate. */}}
{{- define "gpupack.recordsUsers" -}}
{{- $wanted := toString .Values.admission.gatePods -}}
{{- if eq $wanted "true" }}true
{{- else if and (eq $wanted "auto") (semverCompare ">=1.36.0-0" (include "gpupack.kubeVersion" (list . "admission.gatePods to true or false"))) }}true
{{- end }}
{{- end }}

{{/* Whether admission translates NVIDIA's resources in labelled namespaces; it needs the same. */}}
{{- define "gpupack.translatesResources" -}}
{{- if and .Values.admission.translateResources (eq .Values.scheduler.mode "decisive") }}
{{- include "gpupack.recordsUsers" . }}
{{- end }}
{{- end }}

{{- define "gpupack.tlsSecret" -}}
{{- .Values.scheduler.tls.existingSecret | default "gpupack-extender-certificate" -}}
{{- end }}

{{/*
Certificates that component `certificates` issues: those for which no Secret is named. A JSON list of
{secret, service, host, validityDays}.
*/}}
{{- define "gpupack.issued" -}}
{{- $services := list (dict "secret" (include "gpupack.tlsSecret" .) "service" "gpupack-extender" "tls" .Values.scheduler.tls) }}
{{- if .Values.api.enabled }}
{{- $services = append $services (dict "secret" (include "gpupack.apiTlsSecret" .) "service" "gpupack-api" "tls" .Values.api.tls) }}
{{- end }}
{{- if .Values.cost.enabled }}
{{- $services = append $services (dict "secret" (include "gpupack.costTlsSecret" .) "service" "gpupack-cost" "tls" .Values.cost.tls) }}
{{- end }}
{{- if include "gpupack.metricsPort" . }}
{{- $services = append $services (dict "secret" (include "gpupack.metricsTlsSecret" .) "service" "gpupack-metrics" "tls" .Values.monitoring.tls) }}
{{- end }}
{{- $issued := list }}
{{- range $services }}
{{- if not .tls.existingSecret }}
{{- $host := printf "%s.%s.svc" .service $.Release.Namespace }}
{{- $issued = append $issued (dict "secret" .secret "service" .service "host" $host "validityDays" (int .tls.validityDays)) }}
{{- end }}
{{- end }}
{{- toJson $issued }}
{{- end }}

{{/* Checks that values.schema.json cannot make. */}}
{{- define "gpupack.check" -}}
{{- if not .Values.image.registry }}
{{- fail "set image.registry to the registry of your images, such as registry.example.com/team: the project publishes no images" }}
{{- end }}
{{- if and (eq .Values.agent.inventory "simulated") (not .Values.agent.simulated.nodes) }}
{{- fail "agent.inventory is simulated, but agent.simulated.nodes lists no GPUs: add an entry such as {match: \"*\", devices: [{model: NVIDIA H200, memoryMiB: 143771, count: 8}]}" }}
{{- end }}
{{- if and .Values.cost.enabled (not .Values.api.enabled) }}
{{- fail "cost.enabled needs api.enabled: only the API queries the cost service" }}
{{- end }}
{{- include "gpupack.checkOthersResources" (list "observedResources" .Values.observedResources) }}
{{- range $vendor, $known := .Values.vendors }}
{{- if $known }}
{{- include "gpupack.checkOthersResources" (list (printf "vendors.%s.resources" $vendor) $known.resources) }}
{{- end }}
{{- end }}
{{- range $model, $price := .Values.cost.prices }}
{{- if regexMatch "^[0-9]{1,4} *[xX] " $model }}
{{- fail (printf "cost.prices: %q counts GPUs: give the price of one GPU for an hour, by its model, such as %q" $model (regexReplaceAll "^[0-9]{1,4} *[xX] +" $model "")) }}
{{- end }}
{{- end }}
{{- $election := .Values.scheduler.kubeScheduler.leaderElection }}
{{- if le (int $election.leaseDurationSeconds) (int $election.renewDeadlineSeconds) }}
{{- fail (printf "scheduler.kubeScheduler.leaderElection: leaseDurationSeconds (%v) must be more than renewDeadlineSeconds (%v): otherwise a second leader starts before the first one has given up" $election.leaseDurationSeconds $election.renewDeadlineSeconds) }}
{{- end }}
{{- $bindSeconds := add .Values.operator.bindTimeoutSeconds (div 1024 (int .Values.operator.bindWorkersPerSecond)) }}
{{- if le (int .Values.scheduler.kubeScheduler.extenderTimeoutSeconds) (int $bindSeconds) }}
{{- fail (printf "scheduler.kubeScheduler.extenderTimeoutSeconds (%v) must be more than %v, the time that operator.bindTimeoutSeconds and bindWorkersPerSecond give a gang of 1,024 workers: otherwise kube-scheduler gives up Bindings that wait for the rest of their gang" .Values.scheduler.kubeScheduler.extenderTimeoutSeconds $bindSeconds) }}
{{- end }}
{{- if and .Values.monitoring.enabled (gt (include "gpupack.seconds" .Values.monitoring.scrapeTimeout | int) (include "gpupack.seconds" .Values.monitoring.interval | int)) }}
{{- fail (printf "monitoring.scrapeTimeout (%s) is more than monitoring.interval (%s): prometheus-operator ignores such PodMonitors" .Values.monitoring.scrapeTimeout .Values.monitoring.interval) }}
{{- end }}
{{- $limited := list }}
{{- range .Values.queue.default.gpus }}
{{- if has .model $limited }}
{{- fail (printf "queue.default.gpus: model %s is listed twice: write one entry for a model" .model) }}
{{- end }}
{{- $limited = append $limited .model }}
{{- end }}
{{- range $model, $ranges := .Values.shares.correctThreadPercentages }}
{{- $before := 1 }}
{{- range $range := $ranges }}
{{- range $end := $range }}
{{- if lt (int $end) $before }}
{{- fail (printf "shares.correctThreadPercentages: the ranges of %s are not in ascending order: %s" $model (toJson $ranges)) }}
{{- end }}
{{- $before = int $end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Seconds of a time such as 30s or 2m. */}}
{{- define "gpupack.seconds" -}}
{{- mul (regexFind "^[0-9]+" . | int) (ternary 60 1 (hasSuffix "m" .)) }}
{{- end }}

{{/*
Refuses resources that other device plugins cannot hand out. Its argument is a list: the path of the
value, and the value.
*/}}
{{- define "gpupack.checkOthersResources" -}}
{{- $path := first . }}
{{- range $resource := last . }}
{{- if hasPrefix "gpupack.dev/" $resource }}
{{- fail (printf "%s: %s is a resource of gpupack's own: name only those through which other device plugins hand out GPUs, such as nvidia.com/gpu" $path $resource) }}
{{- end }}
{{- if or (contains "kubernetes.io/" $resource) (hasPrefix "requests." $resource) }}
{{- fail (printf "%s: Kubernetes reserves the name %s, so no device plugin hands it out: name extended resources such as nvidia.com/gpu" $path $resource) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Namespace of burn-ins; the components know it by this name. */}}
{{- define "gpupack.acceptanceNamespace" -}}
gpupack-acceptance
{{- end }}
