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
	// Workers of one pod have one network: each listens at a port of its own, from this one on.
	port = 29401

	// A gang's pods start together; the image of one may have to be pulled first.
	joinTimeout = 10 * time.Minute
	pause       = 250 * time.Millisecond
)

// gang is this worker's place among the workers of its job, as the operator sets it.
type gang struct {
	workers   int
	index     int
	processes int     // of each worker
	hosts     string  // names of the workers, see host
	pods      [][]int // indices of the workers in each pod, ascending; nil: each has a pod of its own
	listen    string  // the address to listen at; empty: all of this pod
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
		return gang{}, fmt.Errorf("worker %d of %d with %d processes is impossible",
			found.index, found.workers, found.processes)
	}
	if listed := strings.Count(found.hosts, ",") + 1; !strings.Contains(found.hosts, "{}") && listed != found.workers {
		return gang{}, fmt.Errorf("GPUPACK_MPI_HOSTS is %q: it contains neither {} nor %d names", found.hosts, found.workers)
	}
	pods, err := parsePods(get("GPUPACK_MPI_PODS"), found.workers)
	if err != nil {
		return gang{}, err
	}
	found.pods = pods
	found.pod = get("HOSTNAME")
	if found.pod == "" {
		found.pod, _ = os.Hostname()
	}
	return found, nil
}

// parsePods reads pods such as 0-3,6;4-5: those of a pod between semicolons, pods in the order of
// their first workers. Each worker must be in one of them.
func parsePods(text string, workers int) ([][]int, error) {
	if text == "" {
		return nil, nil
	}
	var pods [][]int
	seen := make([]bool, workers)
	for _, part := range strings.Split(text, ";") {
		var pod []int
		for _, span := range strings.Split(part, ",") {
			low, high, isSpan := strings.Cut(span, "-")
			first, err := strconv.Atoi(low)
			last := first
			if err == nil && isSpan {
				last, err = strconv.Atoi(high)
			}
			if err != nil || first < 0 || last >= workers || first > last {
				return nil, fmt.Errorf("GPUPACK_MPI_PODS is %q: %q names no workers of %d", text, span, workers)
			}
			for index := first; index <= last; index++ {
				if seen[index] {
					return nil, fmt.Errorf("GPUPACK_MPI_PODS is %q: worker %d is in two pods", text, index)
				}
				seen[index] = true
				pod = append(pod, index)
			}
		}
		pods = append(pods, pod)
	}
	for index, isPresent := range seen {
		if !isPresent {
			return nil, fmt.Errorf("GPUPACK_MPI_PODS is %q: worker %d is in no pod", text, index)
		}
	}
	return pods, nil
}

func (g gang) ranks() int { return g.workers * g.processes }

// podOf is the workers of the pod in which a worker is, and its place among them.
func (g gang) podOf(index int) (workers []int, place int) {
	for _, workers := range g.pods {
		for place, each := range workers {
			if each == index {
				return workers, place
			}
		}
	}
	return []int{index}, 0
}

// port is where a worker listens.
func (g gang) port(index int) int {
	_, place := g.podOf(index)
	return port + place
}

// hostSlots is a line of a host file: a pod's address, and how many ranks run there.
type hostSlots struct {
	address string
	slots   int
}

// hostList has a line for each pod, given the address of each worker.
func (g gang) hostList(addresses []string) []hostSlots {
	var found []hostSlots
	for index, address := range addresses {
		if workers, place := g.podOf(index); place == 0 {
			found = append(found, hostSlots{address, g.processes * len(workers)})
		}
	}
	return found
}

// host is the name of a worker: that of the first one in its pod. GPUPACK_MPI_HOSTS has {} for the
// index, so that it stays short for a thousand of them, or lists the names.
func (g gang) host(index int) string {
	workers, _ := g.podOf(index)
	index = workers[0]
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
			return preferIPv4(found).String(), nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the name %s of worker %d is unknown: %v", g.host(index), index, err)
		}
		time.Sleep(pause)
	}
}

// preferIPv4 is an IPv4 address where there is one: not every MPI takes others in a host file.
func preferIPv4(addresses []net.IP) net.IP {
	for _, address := range addresses {
		if address.To4() != nil {
			return address
		}
	}
	return addresses[0]
}
