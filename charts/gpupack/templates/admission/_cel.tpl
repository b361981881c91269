{{/*
CEL that several policies need. CEL has no functions of one's own, so text is put together here.
Each piece stands on one line of the policy and names the container `c`.
*/}}

{{/*
What a container asks for. Limits alone: of an extended resource Kubernetes takes no request without
an equal limit.
*/}}
{{- define "gpupack.cel.limits" -}}
c.?resources.?limits.orValue({})
{{- end }}

{{/* Whether a container asks for anything of gpupack's. */}}
{{- define "gpupack.cel.asks" -}}
{{ include "gpupack.cel.limits" . }}.exists(name, name.startsWith('gpupack.dev/'))
{{- end }}

{{/* Containers and init containers of a pod; ephemeral ones can ask for nothing. */}}
{{- define "gpupack.cel.containers" -}}
(object.spec.containers + object.spec.?initContainers.orValue([]))
{{- end }}

{{/* Names of variables that say which GPUs a container sees, and are the agent's to set. */}}
{{- define "gpupack.cel.deviceVariables" -}}
c.?env.orValue([]).map(e, e.name).filter(name, name in ['NVIDIA_VISIBLE_DEVICES', 'CUDA_VISIBLE_DEVICES', 'GPUPACK_SIMULATED'] || name.startsWith('GPUPACK_DEVICE'))
{{- end }}

{{/*
Whether a container without GPUs of its own wants to see some by NVIDIA's runtime, which on many
nodes obeys this variable. A value from elsewhere (valueFrom) cannot be judged, so it counts.
*/}}
{{- define "gpupack.cel.wantsVisibleDevices" -}}
c.?env.orValue([]).exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES' && (has(e.valueFrom) || !(e.?value.orValue('') in ['', 'void', 'none'])))
{{- end }}

{{/* A policy is bound to everything that it matches. Called with (list $ name). */}}
{{- define "gpupack.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "gpupack.labels" (index . 0) | nindent 4 }}
spec:
  policyName: {{ index . 1 }}
  validationActions: [Deny]
{{- end }}
