{{/* The counts of "gpupack.cel.selectors", over variables.rolePods together. */}}
{{- define "gpupack.cel.roleSelectors" -}}
{{- $node := "pod.?affinity.?nodeAffinity" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $preferred := "preferredDuringSchedulingIgnoredDuringExecution" -}}
- name: roleTerms
  expression: >-
    variables.rolePods.map(pod, {{ $node }}.?{{ $required }}.?nodeSelectorTerms.orValue([])
    + {{ $node }}.?{{ $preferred }}.orValue([]).map(term, term.preference))
- name: roleNear
  expression: >-
    variables.rolePods.map(pod, pod.?topologySpreadConstraints.orValue([])
    {{- range $kind := list "podAffinity" "podAntiAffinity" }}
    + pod.?affinity.?{{ $kind }}.?{{ $required }}.orValue([])
    + pod.?affinity.?{{ $kind }}.?{{ $preferred }}.orValue([]).map(term, term.podAffinityTerm)
    {{- end }})
- name: roleParts
  expression: >-
    variables.roleTerms.map(terms, terms.size()).sum() + variables.roleNear.map(terms, terms.size()).sum()
    + variables.rolePods.map(pod, pod.?tolerations.orValue([]).size() + pod.?nodeSelector.orValue({}).size()).sum()
- name: roleConditions
  expression: >-
    variables.roleParts > {{ include "gpupack.maxConditions" . }} ? variables.roleParts : variables.roleParts
    + variables.roleTerms.map(terms, terms.map(term,
    term.?matchExpressions.orValue([]).size() + term.?matchFields.orValue([]).size()).sum()).sum()
    + variables.roleNear.map(terms, terms.map(term, term.?labelSelector.?matchExpressions.orValue([]).size()
    + term.?labelSelector.?matchLabels.orValue({}).size()).sum()).sum()
- name: roleValues
  expression: >-
    variables.roleConditions > {{ include "gpupack.maxConditions" . }} ? 0 :
    variables.roleTerms.map(terms, terms.map(term, (term.?matchExpressions.orValue([]) + term.?matchFields.orValue([]))
    .map(condition, condition.?values.orValue([]).size()).sum()).sum()).sum()
    + variables.roleNear.map(terms, terms.map(term, term.?labelSelector.?matchExpressions.orValue([])
    .map(condition, condition.?values.orValue([]).size()).sum()).sum()).sum()
{{- end }}
