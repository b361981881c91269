// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// Workers of one pod are one host for an MPI, so that their ranks pass data through memory. mpirun's
// helper runs in the container of the pod's first worker and starts the ranks of all of them there:
// those of the others are passed on to the containers that have their GPUs.
//
//	mpirun's helper ─► rank 0 ─► program                    container of worker 0
//	                └► rank 1 ─► loopback ─► rank ─► program  container of worker 1

// localRankVariables are the variables in which MPIs set the index of a rank on its host.
var localRankVariables = []string{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}

// sharedPodVariables are settings for MPIs whose ranks on a host do not see each other's processes or
// temporary files. Copies by process id, CUDA's older handles of memory, which go by process id as
// well, and a store of files are off. mpirun's helper leaves files for all ranks of its host, such as
// the topology, without which Open MPI's ranks crash: it leaves them in the memory that the
// containers of a pod share.
var sharedPodVariables = map[string]string{
	"OMPI_MCA_orte_tmpdir_base":                "/dev/shm",
	"PRTE_MCA_prte_tmpdir_base":                "/dev/shm",
	"OMPI_MCA_btl_vader_single_copy_mechanism": "none",
	"OMPI_MCA_btl_smcuda_use_cuda_ipc":         "0",
	"OMPI_MCA_smsc":                            "^cma,xpmem,knem",
	"PMIX_MCA_gds":                             "hash",
}

// environmentFile has what a container's first process was given, for its ranks to compare.
const environmentFile = "environment"

var isName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// setSharedPodVariables sets what an MPI needs in a shared pod; the user's settings stay.
func (g gang) setSharedPodVariables() {
	if workers, _ := g.podOf(g.index); len(workers) < 2 {
		return
	}
	for name, value := range sharedPodVariables {
		if _, isSet := os.LookupEnv(name); !isSet {
			os.Setenv(name, value)
		}
	}
}

// workerOfRank is the worker whose container is to run this rank, where that is not this one, and
// the gang by which it is found.
func workerOfRank(get func(string) string) (g gang, worker int, isElsewhere bool) {
	if get("GPUPACK_MPI_PODS") == "" {
		return g, 0, false
	}
	g, err := gangFromEnvironment(get)
	if err != nil {
		exit(statusBadArgument, err)
	}
	workers, place := g.podOf(g.index)
	local := number(localRankVariables...)
	if place != 0 || len(workers) < 2 {
		return g, 0, false
	}
	if local < 0 || local >= len(workers)*g.processes {
		exit(statusBadArgument, fmt.Errorf(
			"local rank %d of %d: the MPI sets none of %s; set podPerWorker: true in the GPUJob",
			local, len(workers)*g.processes, strings.Join(localRankVariables, ", ")))
	}
	worker = workers[local/g.processes]
	return g, worker, worker != g.index
}

// forward runs a rank in the container of another worker of this pod.
func forward(g gang, worker int, command []string) int {
	s, err := readKey(os.Getenv("GPUPACK_MPI_KEY_FILE"))
	if err != nil {
		logf("%v", err)
		return sshStatus
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwardedSignals...)
	address := g.listen
	if address == "" {
		address = "localhost"
	}
	connection, err := dial(s, address, g.port(worker))
	if err != nil {
		logf("worker %d of this pod: %v", worker, err)
		return sshStatus
	}
	defer connection.Close()
	wanted, err := rankToStart(command)
	if err == nil {
		err = json.NewEncoder(connection).Encode(request{Rank: wanted})
	}
	if err != nil {
		logf("worker %d of this pod: %v", worker, err)
		return sshStatus
	}
	stream := &frames{ReadWriter: connection}
	go copyInput(stream)
	go func() {
		for each := range signals {
			stream.send(frameSignal, []byte{byte(each.(syscall.Signal))})
		}
	}()
	return copyOutput(stream, fmt.Sprintf("%d of this pod", worker))
}

// rankToStart is the rank in this folder, with what its MPI has set for it.
func rankToStart(command []string) (*rankStart, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	given, err := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv(socketVariable)), environmentFile))
	if err != nil {
		return nil, fmt.Errorf("cannot read the container's first environment: %w", err)
	}
	folder, _ := os.Getwd()
	return &rankStart{
		Arguments: append([]string{self, "rank", "--"}, command...),
		Variables: changedVariables(strings.Split(string(given), "\x00"), os.Environ()),
		Folder:    folder,
	}, nil
}

// changedVariables are the variables that were set or changed; those of a shell's own are left out.
func changedVariables(before, now []string) []string {
	known := map[string]bool{}
	for _, each := range before {
		known[each] = true
	}
	var found []string
	for _, each := range now {
		name, _, _ := strings.Cut(each, "=")
		isShells := name == "_" || name == "PWD" || name == "OLDPWD" || name == "SHLVL"
		if !known[each] && !isShells && isName.MatchString(name) {
			found = append(found, each)
		}
	}
	return found
}

// saveEnvironment is called by a container's first process, once it has set its own variables.
func saveEnvironment(folder string) error {
	content := strings.Join(os.Environ(), "\x00")
	if err := os.WriteFile(filepath.Join(folder, environmentFile), []byte(content), 0o600); err != nil {
		return fmt.Errorf("cannot save the environment for ranks: %w", err)
	}
	return nil
}
