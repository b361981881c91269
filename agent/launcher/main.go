// SPDX-License-Identifier: Apache-2.0

// gpupack-mpi starts mpirun's helpers in the workers of a gang without ssh.
//
// It is one static binary, so that it runs in any image that has an MPI. An init container lays it
// into each worker's pod, and the operator puts it before the container's command:
//
//	gpupack-mpi run -- COMMAND…   the container's first process. Worker 0 runs mpirun over all
//	                              workers, which listen for it and run its commands
//	gpupack-mpi remote HOST …     what mpirun calls in place of ssh (also by its name gpupack-rsh)
//	gpupack-mpi rank -- COMMAND…  what mpirun starts for each rank: it reports how the rank ended
//
// docs/adr/0054-mpirun-without-ssh.md has the reasons.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Exit statuses, as docs/results.md lists them.
const (
	statusOther       = 1
	statusBadArgument = 2
	statusPeers       = 6
	statusTerminated  = 128 + 15
)

// remoteName is what the binary is called where mpirun takes a path and no arguments.
const remoteName = "gpupack-rsh"

const usage = "usage: gpupack-mpi run|rank -- COMMAND… or gpupack-mpi remote HOST COMMAND…"

func main() {
	if filepath.Base(os.Args[0]) == remoteName {
		os.Exit(remote(os.Args[1:]))
	}
	if len(os.Args) < 3 {
		exit(statusBadArgument, errors.New(usage))
	}
	switch verb, rest := os.Args[1], os.Args[2:]; verb {
	case "run":
		os.Exit(run(command(rest)))
	case "rank":
		os.Exit(rank(command(rest)))
	case "remote":
		os.Exit(remote(rest))
	default:
		exit(statusBadArgument, errors.New(usage))
	}
}

// command is what follows "--".
func command(arguments []string) []string {
	if arguments[0] != "--" || len(arguments) < 2 {
		exit(statusBadArgument, errors.New(usage))
	}
	return arguments[1:]
}

// run is a container's first process: the launcher in worker 0, a server in each other.
func run(command []string) int {
	gang, err := gangFromEnvironment(os.Getenv)
	if err != nil {
		return failWorker(statusBadArgument, err)
	}
	secrets, err := readKey(os.Getenv("GPUPACK_MPI_KEY_FILE"))
	if err != nil {
		return failWorker(statusBadArgument, err)
	}
	gang.setSharedPodVariables()
	ranks, err := watchRanks(gang)
	if err != nil {
		return failWorker(statusOther, err)
	}
	defer ranks.close()
	if gang.index > 0 {
		return serve(gang, secrets, ranks)
	}
	return launch(gang, secrets, ranks, command)
}

func logf(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "gpupack-mpi: "+format+"\n", values...)
}

// failWorker writes why a worker ends to its log and its termination message.
func failWorker(status int, err error) int {
	logf("%v", err)
	writeMessage(err.Error())
	return status
}

func exit(status int, err error) {
	logf("%v", err)
	os.Exit(status)
}
