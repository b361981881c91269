{{/*
CEL that several policies need. CEL has no user-defined functions, so the text is assembled here. Each
piece is one line of the policy and names the container `c`.
*/}}

{{/* A list of strings. */}}
{{- define "gpupack.cel.texts" -}}
[{{ range $i, $text := . }}{{ if $i }}, {{ end }}'{{ $text }}'{{ end }}]
{{- end }}

{{/*
The requests of a container. Only limits: for an extended resource Kubernetes accepts no request without
an equal limit.
*/}}
{{- define "gpupack.cel.limits" -}}
c.?resources.?limits.orValue({})
{{- end }}

{{/* Whether a container requests a resource of gpupack. */}}
{{- define "gpupack.cel.requestsGpus" -}}
{{ include "gpupack.cel.limits" . }}.exists(name, name.startsWith('gpupack.dev/'))
{{- end }}

{{/* Whether a container requests GPUs by a name of NVIDIA's device plugin or of HAMi. */}}
{{- define "gpupack.cel.requestsNvidia" -}}
{{ include "gpupack.cel.limits" . }}.exists(name, name in ['nvidia.com/gpu', 'nvidia.com/gpumem'] || name.startsWith('nvidia.com/mig-'))
{{- end }}

{{/* Whether HAMi would give a container a part of a GPU. Without memory it gives all of its memory. */}}
{{- define "gpupack.cel.hasNvidiaShare" -}}
('nvidia.com/gpumem' in {{ include "gpupack.cel.limits" . }} && string({{ include "gpupack.cel.limits" . }}[?'nvidia.com/gpucores'].orValue('1')) != '100')
{{- end }}

{{/*
The resources of gpupack in place of NVIDIA's and HAMi's. The argument is the expression of the map. A share
without a part of the compute gets 10 %, as `gpupack convert` gives it: ten of them fit on a GPU.
*/}}
{{- define "gpupack.cel.translated" -}}
{{ . }}.transformMapEntry(name, amount, !(name in ['nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpucores']) || (name == 'nvidia.com/gpu' && !{{ include "gpupack.cel.hasNvidiaShare" . }}) || (name == 'nvidia.com/gpumem'), name == 'nvidia.com/gpu' ? {'gpupack.dev/gpu': string(amount)} : name == 'nvidia.com/gpumem' ? ({{ include "gpupack.cel.hasNvidiaShare" . }} ? {'gpupack.dev/gpu-share': '1', 'gpupack.dev/gpu-memory': string(quantity(string(amount)).asInteger()) + 'Mi', 'gpupack.dev/gpu-percent': string({{ include "gpupack.cel.limits" . }}[?'nvidia.com/gpucores'].orValue('10'))} : ('nvidia.com/gpu' in {{ include "gpupack.cel.limits" . }} ? {} : {'gpupack.dev/gpu': '1'})) : name.startsWith('nvidia.com/mig-') ? {'gpupack.dev/mig-' + name.substring(15): string(amount)} : {name: string(amount)})
{{- end }}

{{/*
The patches of one list of containers and of their limits or requests. Called with (list $ containers limits).
*/}}
{{- define "gpupack.cel.translatedAll" -}}
variables.numbers.filter(i, i < object.spec.?{{ index . 1 }}.orValue([]).size() && [object.spec.{{ index . 1 }}[i]].exists(c, has(c.resources.{{ index . 2 }}) && {{ include "gpupack.cel.requestsNvidia" (index . 0) }})).map(i, JSONPatch{op: 'add', path: '/spec/{{ index . 1 }}/' + string(i) + '/resources/{{ index . 2 }}', value: [object.spec.{{ index . 1 }}[i]].map(c, {{ include "gpupack.cel.translated" (printf "c.resources.%s" (index . 2)) }})[0]})
{{- end }}

{{/* Containers and init containers of a pod. Ephemeral containers cannot request resources. */}}
{{- define "gpupack.cel.containers" -}}
(object.spec.containers + object.spec.?initContainers.orValue([]))
{{- end }}

{{/* Names of variables that say which GPUs a container sees. Only the agent sets them. */}}
{{- define "gpupack.cel.deviceVariables" -}}
c.?env.orValue([]).map(e, e.name).filter(name, name in ['NVIDIA_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', 'GPUPACK_SIMULATED'] || name.startsWith('GPUPACK_DEVICE'))
{{- end }}

{{/*
Variables for which container runtimes show GPUs to a container that sets them, separated by commas:
NVIDIA's, and those of vendors with an observed resource.
*/}}
{{- define "gpupack.runtimeVariables" -}}
{{- $found := list "NVIDIA_VISIBLE_DEVICES" }}
{{- $observed := .Values.observedResources }}
{{- range $vendor := .Values.vendors }}
{{- range $resource := ($vendor | default dict).resources }}
{{- if has $resource $observed }}{{ $found = concat $found ($vendor.runtimeVariables | default list) }}{{ end }}
{{- end }}
{{- end }}
{{- $found | uniq | join "," }}
{{- end }}

{{/*
Whether a container without GPUs requests some from its runtime: on many nodes the runtime obeys such a
variable. A value from elsewhere (valueFrom) cannot be evaluated, so it counts.
*/}}
{{- define "gpupack.cel.wantsVisibleDevices" -}}
c.?env.orValue([]).exists(e, e.name in {{ include "gpupack.cel.texts" (include "gpupack.runtimeVariables" . | splitList ",") }} && (has(e.valueFrom) || !(e.?value.orValue('') in ['', 'void', 'none'])))
{{- end }}

{{/* The first such variable in a list of containers. The list's name is the argument. */}}
{{- define "gpupack.cel.visibleDevicesWanted" -}}
{{ index . 1 }}.map(c, c.?env.orValue([]).filter(e, e.name in {{ include "gpupack.cel.texts" (include "gpupack.runtimeVariables" (index . 0) | splitList ",") }} && (has(e.valueFrom) || !(e.?value.orValue('') in ['', 'void', 'none']))).map(e, e.name)).filter(found, found.size() > 0)[0][0]
{{- end }}

{{/* Names of annotations that only the scheduler writes and that this request changes. An empty value counts. */}}
{{- define "gpupack.cel.schedulersChanged" -}}
['gpupack.dev/devices', 'gpupack.dev/workers', 'gpupack.dev/gang-memory', 'gpupack.dev/placement', 'gpupack.dev/preemption'].filter(name, object.metadata.?annotations[?name].hasValue() != (oldObject != null && oldObject.metadata.?annotations[?name].hasValue()) || object.metadata.?annotations[?name].orValue('') != (oldObject == null ? '' : oldObject.metadata.?annotations[?name].orValue('')))
{{- end }}

{{/*
Annotations of this request that request devices from a container runtime. A plugin of the runtime often puts
its own name before the domain (nvidia.cdi.k8s.io). Called with protectHosts.
*/}}
{{- define "gpupack.cel.hostAnnotations" -}}
object.metadata.?annotations.orValue({}).map(name, name).filter(name, (name.startsWith('io.kubernetes.cri-o.Devices') || {{ include "gpupack.cel.texts" .annotationDomains }}.exists(domain, ('.' + name.split('/')[0]).endsWith('.' + domain))) && (oldObject == null || oldObject.metadata.?annotations[?name] != object.metadata.?annotations[?name]))
{{- end }}

{{/*
What restricts a pod to nodes, as numbers, each one a variable of the policy. Called with the text of
the pod's spec. A pod with 30,000 node selector terms costs every scheduler 20 MiB and more, so the
terms are counted first: if there are too many, no expression walks through them.
*/}}
{{- define "gpupack.cel.selectors" -}}
{{- $spec := . -}}
- name: terms
  expression: >-
    {{ $spec }}.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])
    + {{ $spec }}.?affinity.?nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])
    .map(term, term.preference)
- name: near
  expression: >-
    {{ range $i, $kind := list "podAffinity" "podAntiAffinity" }}{{ if $i }} + {{ end -}}
    {{ $spec }}.?affinity.?{{ $kind }}.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])
    + {{ $spec }}.?affinity.?{{ $kind }}.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])
    .map(term, term.podAffinityTerm){{ end }}
- name: spread
  expression: >-
    {{ $spec }}.?topologySpreadConstraints.orValue([])
- name: parts
  expression: >-
    variables.terms.size() + variables.near.size() + variables.spread.size()
    + {{ $spec }}.?tolerations.orValue([]).size() + {{ $spec }}.?nodeSelector.orValue({}).size()
- name: conditions
  expression: >-
    variables.parts > {{ include "gpupack.maxConditions" . }} ? variables.parts : variables.parts
    + variables.terms.map(term, term.?matchExpressions.orValue([]).size() + term.?matchFields.orValue([]).size()).sum()
    + (variables.near + variables.spread).map(term, term.?labelSelector.?matchExpressions.orValue([]).size()
    + term.?labelSelector.?matchLabels.orValue({}).size()).sum()
- name: values
  expression: >-
    variables.conditions > {{ include "gpupack.maxConditions" . }} ? 0 :
    variables.terms.map(term, (term.?matchExpressions.orValue([]) + term.?matchFields.orValue([]))
    .map(condition, condition.?values.orValue([]).size()).sum()).sum()
    + (variables.near + variables.spread).map(term, term.?labelSelector.?matchExpressions.orValue([])
    .map(condition, condition.?values.orValue([]).size()).sum()).sum()
{{- end }}

{{/* The bounds of the counts of "gpupack.cel.selectors". The extender has the same bounds. */}}
{{- define "gpupack.maxConditions" -}}512{{- end }}
{{- define "gpupack.maxValues" -}}4096{{- end }}
{{/* GPUs of one node: as many as a GPUNode may list. The extender has the same bound. */}}
{{- define "gpupack.maxGpus" -}}128{{- end }}
{{/* The largest priority of a PriorityClass that an administrator may create. */}}
{{- define "gpupack.maxClassPriority" -}}1000000000{{- end }}
{{/* The size of a GPUJob's pod template, as CEL writes it. */}}
{{- define "gpupack.maxTemplateBytes" -}}262144{{- end }}

{{- define "gpupack.cel.selectorsBounded" -}}
- expression: variables.conditions <= {{ include "gpupack.maxConditions" . }}
  messageExpression: >-
    'nodeSelector, affinity, tolerations and topology spread may have {{ include "gpupack.maxConditions" . }} terms and
    expressions in all, not ' + string(variables.conditions) + ': name nodes by a label that they share'
- expression: variables.values <= {{ include "gpupack.maxValues" . }}
  messageExpression: >-
    'the expressions of affinity and topology spread may have {{ include "gpupack.maxValues" . }} values in all, not ' +
    string(variables.values) + ': name nodes by a label that they share'
{{- end }}

{{/* Namespaces in which no GPUJob runs, as the items of a list: the operator must not create pods next to the accounts in them. */}}
{{- define "gpupack.systemNamespaces" -}}
'kube-system', '{{ .Release.Namespace }}'
{{- end }}

{{/*
Fields of matchConstraints with the API server's defaults. Server-side apply handles matchConstraints as
one field: if a default is left out, what is applied differs from what is stored, and `kubectl apply
--server-side` reports a conflict with the manager that applied the same before, such as helm.
*/}}
{{- define "gpupack.matchDefaults" -}}
matchPolicy: Equivalent
objectSelector: {}
{{- end }}

{{- define "gpupack.allNamespaces" -}}
{{ include "gpupack.matchDefaults" . }}
namespaceSelector: {}
{{- end }}

{{/*
Namespaces whose pods have no access to the devices of nodes. Only a cluster administrator may label
namespaces, so the label `privileged` is the administrator's decision.
*/}}
{{- define "gpupack.servedNamespaces" -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
        {{- concat (list .Release.Namespace) .Values.admission.protectHosts.exemptNamespaces | uniq | toYaml | nindent 8 }}
    - key: pod-security.kubernetes.io/enforce
      operator: NotIn
      values: [privileged]
{{ include "gpupack.matchDefaults" . }}
{{- end }}

{{/*
A policy is bound to everything that it matches. Called with (list $ name), and with the action if it is
not Deny.
*/}}
{{- define "gpupack.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "gpupack.labels" (index . 0) | nindent 4 }}
spec:
  policyName: {{ index . 1 }}
  validationActions: [{{ if gt (len .) 2 }}{{ index . 2 }}{{ else }}Deny{{ end }}]
{{- end }}

{{/* The resources of MIG slices that can be requested. */}}
{{- define "gpupack.migResources" -}}
[{{ range $i, $profile := .Values.migProfiles }}{{ if $i }}, {{ end }}'gpupack.dev/mig-{{ $profile | replace "+" "." }}'{{ end }}]
{{- end }}

{{/* Workloads that create pods from a template. */}}
{{- define "gpupack.workloadRules" -}}
- apiGroups: [apps]
  apiVersions: [v1]
  operations: [CREATE, UPDATE]
  resources: [deployments, statefulsets, replicasets, daemonsets]
  scope: "*"
- apiGroups: [batch]
  apiVersions: [v1]
  operations: [CREATE, UPDATE]
  resources: [jobs, cronjobs]
  scope: "*"
- apiGroups: [""]
  apiVersions: [v1]
  operations: [CREATE, UPDATE]
  resources: [replicationcontrollers]
  scope: "*"
{{- end }}

{{/* The spec of the pods that such a workload creates. */}}
{{- define "gpupack.cel.workloadPod" -}}
request.resource.resource == 'cronjobs' ? dyn(object).spec.jobTemplate.spec.template.spec : dyn(object).spec.?template.?spec.orValue({'containers': []})
{{- end }}
