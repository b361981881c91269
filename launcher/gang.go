// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	port = 29401

	// A gang's pods start together; the image of one may have to be pulled first.
	joinTime = 10 * time.Minute
	pause    = 250 * time.Millisecond
)

// gang is this worker's place among the workers of its job, as the operator tells it.
type gang struct {
	workers   int
	index     int
	processes int    // of each worker
	hosts     string // names of the workers, see host
	listen    string // the address to listen at; empty: all of this pod
	pod       string
}

func gangFromEnvironment(get func(string) string) (gang, error) {
	found := gang{
		hosts:  get("GPUPACK_MPI_HOSTS"),
		listen: get("GPUPACK_MPI_LISTEN"),
	}
	for name, number := range map[string]*int{
		"GPUPACK_WORKERS":              &found.workers,
		"GPUPACK_WORKER_INDEX":         &found.index,
		"GPUPACK_PROCESSES_PER_WORKER": &found.processes,
	} {
		value, err := strconv.Atoi(get(name))
		if err != nil {
			return gang{}, fmt.Errorf("%s is %q, not a whole number", name, get(name))
		}
		*number = value
	}
	if found.workers < 1 || found.index < 0 || found.index >= found.workers || found.processes < 1 {
		return gang{}, fmt.Errorf("worker %d of %d with %d processes cannot be",
			found.index, found.workers, found.processes)
	}
	if listed := strings.Count(found.hosts, ",") + 1; !strings.Contains(found.hosts, "{}") && listed != found.workers {
		return gang{}, fmt.Errorf("GPUPACK_MPI_HOSTS is %q: it names no {} and not %d workers", found.hosts, found.workers)
	}
	found.pod = get("HOSTNAME")
	if found.pod == "" {
		found.pod, _ = os.Hostname()
	}
	return found, nil
}

func (g gang) ranks() int { return g.workers * g.processes }

// host is the name of a worker. GPUPACK_MPI_HOSTS has {} for its index, so that it stays short for
// a thousand of them, or lists the names.
func (g gang) host(index int) string {
	if strings.Contains(g.hosts, "{}") {
		return strings.ReplaceAll(g.hosts, "{}", strconv.Itoa(index))
	}
	return strings.Split(g.hosts, ",")[index]
}

// address waits until a worker's name is known: a pod has one some time after its address.
func (g gang) address(index int, deadline time.Time) (string, error) {
	for {
		found, err := net.LookupIP(g.host(index))
		if err == nil && len(found) > 0 {
			return preferred(found).String(), nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the name %s of worker %d is unknown: %v", g.host(index), index, err)
		}
		time.Sleep(pause)
	}
}

// preferred is an IPv4 address where there is one: not every MPI takes others in a host file.
func preferred(addresses []net.IP) net.IP {
	for _, address := range addresses {
		if address.To4() != nil {
			return address
		}
	}
	return addresses[0]
}
