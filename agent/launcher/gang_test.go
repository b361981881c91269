// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"strings"
	"testing"
)

// operatorVariables are the operator's variables for worker 1 of three, with changes.
func operatorVariables(changed map[string]string) func(string) string {
	environment := map[string]string{
		"GPUPACK_WORKERS":              "3",
		"GPUPACK_WORKER_INDEX":         "1",
		"GPUPACK_PROCESSES_PER_WORKER": "8",
		"GPUPACK_MPI_HOSTS":            "train-1-{}.train-1",
		"HOSTNAME":                     "train-1-1",
	}
	for name, value := range changed {
		environment[name] = value
	}
	return func(name string) string { return environment[name] }
}

func TestAGangIsReadFromTheOperatorsVariables(t *testing.T) {
	found, err := gangFromEnvironment(operatorVariables(nil))
	if err != nil {
		t.Fatal(err)
	}
	if found.workers != 3 || found.index != 1 || found.ranks() != 24 || found.pod != "train-1-1" || found.listen != "" {
		t.Errorf("found %+v", found)
	}
}

func TestAnImpossibleGangIsRefusedWithTheReason(t *testing.T) {
	for _, wrong := range []struct{ name, value, expected string }{
		{"GPUPACK_WORKERS", "", `GPUPACK_WORKERS is "", not a whole number`},
		{"GPUPACK_WORKERS", "0", "worker 1 of 0"},
		{"GPUPACK_WORKER_INDEX", "one", `GPUPACK_WORKER_INDEX is "one"`},
		{"GPUPACK_WORKER_INDEX", "-1", "worker -1 of 3"},
		{"GPUPACK_WORKER_INDEX", "3", "worker 3 of 3"},
		{"GPUPACK_PROCESSES_PER_WORKER", "0", "with 0 processes"},
		{"GPUPACK_MPI_HOSTS", "a,b", `"a,b": it contains neither {} nor 3 names`},
		{"GPUPACK_MPI_HOSTS", "", "neither {} nor 3 names"},
	} {
		_, err := gangFromEnvironment(operatorVariables(map[string]string{wrong.name: wrong.value}))
		if err == nil || !strings.Contains(err.Error(), wrong.expected) {
			t.Errorf("%s=%q: %v", wrong.name, wrong.value, err)
		}
	}
}

func TestHostsAreNamedByIndexOrListed(t *testing.T) {
	for hosts, expected := range map[string]string{
		"job-{}.job":    "job-2.job",
		"{}.job-{}.job": "2.job-2.job",
		"a,b,c":         "c",
	} {
		if found := (gang{workers: 3, hosts: hosts}).host(2); found != expected {
			t.Errorf("worker 2 of %q is %q", hosts, found)
		}
	}
}

func TestAnIPv4AddressIsPreferred(t *testing.T) {
	six, four := net.ParseIP("fd00::1"), net.ParseIP("10.0.0.1")
	if found := preferIPv4([]net.IP{six, four}); !found.Equal(four) {
		t.Errorf("of both it is %v", found)
	}
	if found := preferIPv4([]net.IP{six}); !found.Equal(six) {
		t.Errorf("of IPv6 alone it is %v", found)
	}
}
