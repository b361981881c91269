// SPDX-License-Identifier: Apache-2.0
// Stands in for NVIDIA's libnvidia-ml.so.1: two GPUs that answer, where there is no driver.
//
//     cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 stand_in_nvml.c
//
// Calls that it lacks are, to a caller, those of an older driver.

#include <stdio.h>
#include <string.h>

#define GPUS 2
#define SUCCESS 0
#define INVALID_ARGUMENT 2

typedef struct {
  unsigned long long total, free, used;
} memory;

static char gpus[GPUS];

static int index_of(void *device) { return (char *)device - gpus; }

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code ? "an error" : "no error"; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
  snprintf(version, length, "580.95.05");
  return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { return *version = 13010, SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = GPUS, SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (index >= GPUS) return INVALID_ARGUMENT;
  return *device = gpus + index, SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-5a5a5a5a-0000-0000-0000-%012d", index_of(device));
  return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  (void)device;
  snprintf(name, length, "NVIDIA Stand-in");
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
  (void)device;
  *info = (memory){80ull << 30, 80ull << 30, 0};
  return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
  return *minor = index_of(device), SUCCESS;
}

// pynvml takes a driver without these for one that does not fit it.
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *found) {
  return (void)device, (void)found, *count = 0, SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, void *found) {
  return (void)device, (void)found, *count = 0, SUCCESS;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, void *found) {
  return (void)device, (void)found, *count = 0, SUCCESS;
}
