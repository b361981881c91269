// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

var (
	openMPI = mpi{name: "Open MPI", path: "/mpirun"}
	hydra   = mpi{name: "MPICH's Hydra", path: "/mpirun", hydra: true}
)

func TestAnMPIIsIdentifiedByItsVersion(t *testing.T) {
	for version, expected := range map[string]mpi{
		"mpirun (Open MPI) 4.1.4\n\nReport bugs to …": openMPI,
		"mpirun.real (OpenRTE) 4.1.2":                 openMPI,
		"HYDRA build details:\n    Version: 4.0.2":    hydra,
		"Intel(R) MPI Library for Linux* OS":          {name: "Intel MPI", path: "/mpirun", hydra: true},
	} {
		if found, err := identifyMPI("/mpirun", version); found != expected || err != nil {
			t.Errorf("%q: %+v, %v", version, found, err)
		}
	}
}

func TestAnUnknownMPIIsNamedByTheFirstLineOfItsVersion(t *testing.T) {
	_, err := identifyMPI("/opt/mpirun", "Platform MPI 9\nall rights reserved")
	if err == nil || !strings.Contains(err.Error(), `/opt/mpirun is of an unknown MPI ("Platform MPI 9")`) {
		t.Error(err)
	}
}

func TestAHostHasAsManyRanksAsAWorkerHasProcesses(t *testing.T) {
	addresses := gang{workers: 2, processes: 8}.hostList([]string{"10.0.0.1", "10.0.0.2"})
	if found := openMPI.hostFile(addresses); found != "10.0.0.1 slots=8\n10.0.0.2 slots=8\n" {
		t.Errorf("Open MPI: %q", found)
	}
	if found := hydra.hostFile(addresses); found != "10.0.0.1:8\n10.0.0.2:8\n" {
		t.Errorf("Hydra: %q", found)
	}
}

func TestRanksArePlacedWorkerByWorkerAndHydraSendsNoEnvironmentAlong(t *testing.T) {
	g := gang{workers: 2, processes: 4}
	if found := strings.Join(hydra.arguments("/hosts", g), " "); found != "-f /hosts -n 8 -ppn 4 -genvnone" {
		t.Errorf("Hydra: %s", found)
	}
	found := strings.Join(openMPI.arguments("/hosts", g), " ")
	if !strings.HasPrefix(found, "--hostfile /hosts -n 8 --map-by slot") {
		t.Errorf("Open MPI: %s", found)
	}
}

// taken is what a program sees: of two values of a variable the last.
func taken(environment []string) map[string]string {
	found := map[string]string{}
	for _, each := range environment {
		name, value, _ := strings.Cut(each, "=")
		found[name] = value
	}
	return found
}

// A tree would have helpers of other workers start helpers, with an agent that they do not have.
func TestAllHelpersAreStartedFromWorker0WhateverTheUserSets(t *testing.T) {
	set := []string{
		"OMPI_MCA_plm_rsh_agent=ssh", "OMPI_MCA_plm_rsh_no_tree_spawn=0", "PRTE_MCA_plm_ssh_no_tree_spawn=0",
		"HYDRA_LAUNCHER=slurm",
	}
	found := taken(openMPI.environment(set, "/agent"))
	for name, expected := range map[string]string{
		"OMPI_MCA_plm_rsh_agent":         "/agent",
		"PRTE_MCA_plm_ssh_agent":         "/agent",
		"OMPI_MCA_plm_rsh_no_tree_spawn": "1",
		"PRTE_MCA_plm_ssh_no_tree_spawn": "1",
		"HYDRA_LAUNCHER":                 "ssh",
		"HYDRA_LAUNCHER_EXEC":            "/agent",
		"I_MPI_HYDRA_BOOTSTRAP":          "ssh",
		"I_MPI_HYDRA_BOOTSTRAP_EXEC":     "/agent",
	} {
		if found[name] != expected {
			t.Errorf("%s is %q", name, found[name])
		}
	}
}

func TestRanksAreBoundToNoCPUUnlessTheUserSaysSo(t *testing.T) {
	const binding = "OMPI_MCA_hwloc_base_binding_policy"
	if found := taken(openMPI.environment(nil, "/agent"))[binding]; found != "none" {
		t.Errorf("by itself: %q", found)
	}
	if found := taken(openMPI.environment([]string{binding + "=core", "A=b"}, "/agent")); found[binding] != "core" || found["A"] != "b" {
		t.Errorf("by the user: %q, %q", found[binding], found["A"])
	}
}

func TestHydraStartsNoRanksInSeveralContainersOfAPod(t *testing.T) {
	openMPI := mpi{name: "Open MPI"}
	shared, separate := gang{pods: [][]int{{0, 1}}}, gang{pods: [][]int{{0}, {1}}}
	if err := hydra.checkPods(shared); err == nil || !strings.Contains(err.Error(), "podPerWorker: true") {
		t.Errorf("shared: %v", err)
	}
	for _, err := range []error{hydra.checkPods(separate), hydra.checkPods(gang{}), openMPI.checkPods(shared)} {
		if err != nil {
			t.Error(err)
		}
	}
}
