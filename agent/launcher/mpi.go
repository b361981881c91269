// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// mpi is an MPI's mpirun, and its options for what every MPI needs.
type mpi struct {
	name  string
	path  string
	hydra bool
}

// findMpirun finds out which MPI the image has: Open MPI, or one that starts ranks by Hydra.
func findMpirun() (mpi, error) {
	for _, name := range []string{"mpirun", "mpiexec"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		output, err := exec.Command(path, "--version").CombinedOutput()
		if err != nil {
			return mpi{}, fmt.Errorf("%s --version: %w: %s", path, err, output)
		}
		return identifyMPI(path, string(output))
	}
	return mpi{}, errors.New("the image has no mpirun on its PATH: install Open MPI, MPICH or another MPI with Hydra")
}

func identifyMPI(path, version string) (mpi, error) {
	for _, known := range []struct {
		mark, name string
		hydra      bool
	}{
		{"Open MPI", "Open MPI", false},
		{"OpenRTE", "Open MPI", false},
		{"Intel(R) MPI", "Intel MPI", true},
		{"HYDRA", "MPICH's Hydra", true},
	} {
		if strings.Contains(version, known.mark) {
			return mpi{known.name, path, known.hydra}, nil
		}
	}
	first, _, _ := strings.Cut(version, "\n")
	return mpi{}, fmt.Errorf("%s is of an unknown MPI (%q): Open MPI, MPICH and others with Hydra can be used", path, first)
}

// checkPods returns why this MPI cannot start the ranks of a gang; nil: it can. Hydra gives a rank an
// open connection, which cannot follow it into another container.
func (m mpi) checkPods(g gang) error {
	for _, workers := range g.pods {
		if m.hydra && len(workers) > 1 {
			return fmt.Errorf("%s cannot start ranks in several containers of a pod: set podPerWorker: true, or use Open MPI", m.name)
		}
	}
	return nil
}

func (m mpi) hostFile(hosts []hostSlots) string {
	var lines strings.Builder
	for _, each := range hosts {
		if m.hydra {
			fmt.Fprintf(&lines, "%s:%d\n", each.address, each.slots)
		} else {
			fmt.Fprintf(&lines, "%s slots=%d\n", each.address, each.slots)
		}
	}
	return lines.String()
}

// arguments place ranks worker by worker. A rank's environment is its own worker's: Hydra would send
// that of worker 0 along, with its index, its GPUs and its pod's name.
func (m mpi) arguments(hosts string, g gang) []string {
	ranks, each := strconv.Itoa(g.ranks()), strconv.Itoa(g.processes)
	if m.hydra {
		return []string{"-f", hosts, "-n", ranks, "-ppn", each, "-genvnone"}
	}
	found := []string{"--hostfile", hosts, "-n", ranks, "--map-by", "slot"}
	if os.Getuid() == 0 {
		found = append(found, "--allow-run-as-root")
	}
	return found
}

// environment has mpirun call us in place of ssh. What the user has set for the MPI stays, except
// the agent. A pod's CPUs are the kubelet's to give: ranks are bound to none, unless the user says so.
func (m mpi) environment(environment []string, agent string) []string {
	usual := []string{
		"OMPI_MCA_hwloc_base_binding_policy=none",
		"PRTE_MCA_hwloc_default_binding_policy=none",
	}
	ours := []string{
		"OMPI_MCA_plm_rsh_agent=" + agent,
		"PRTE_MCA_plm_ssh_agent=" + agent,
		// All its helpers are started from here: those of other workers have no such agent.
		"OMPI_MCA_plm_rsh_no_tree_spawn=1",
		"PRTE_MCA_plm_ssh_no_tree_spawn=1",
		"HYDRA_LAUNCHER=ssh",
		"HYDRA_LAUNCHER_EXEC=" + agent,
		"I_MPI_HYDRA_BOOTSTRAP=ssh",
		"I_MPI_HYDRA_BOOTSTRAP_EXEC=" + agent,
	}
	// Of two values of a variable exec takes the last.
	return append(append(usual, environment...), ours...)
}
