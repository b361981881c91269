// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand"
	"os"
	"strings"
	"syscall"
	"testing"
)

// sharingPods has workers 0, 1 and 4 in one pod and 2 and 3 in another, with one process in each.
func sharingPods(t *testing.T, script string) []*launched {
	return ofPods(t, "0-1,4;2-3", 5, script)
}

// ofPods starts workers with one process each.
func ofPods(t *testing.T, layout string, count int, script string, arguments ...string) []*launched {
	t.Parallel()
	hosts := fmt.Sprintf("127.%d.%d.{}", 1+rand.Intn(254), rand.Intn(256))
	key := keyFile(t, 1, keyBytes)
	pods, err := parsePods(layout, count)
	if err != nil {
		t.Fatal(err)
	}
	shared := gang{hosts: hosts, pods: pods}
	var found []*launched
	for index := 0; index < count; index++ {
		workers, _ := shared.podOf(index)
		found = append(found, start(t, []string{
			fmt.Sprintf("GPUPACK_WORKERS=%d", count), fmt.Sprintf("GPUPACK_WORKER_INDEX=%d", index),
			"GPUPACK_PROCESSES_PER_WORKER=1", "GPUPACK_MPI_HOSTS=" + hosts,
			"GPUPACK_MPI_PODS=" + layout,
			"GPUPACK_MPI_LISTEN=" + shared.host(index), "GPUPACK_MPI_KEY_FILE=" + key,
			fmt.Sprintf("HOSTNAME=train-1-%d", workers[0]),
		}, append([]string{
			"run", "--", "/bin/sh", "-c", "rank=$OMPI_COMM_WORLD_RANK\n" + script, "sh",
		}, arguments...)...))
	}
	return found
}

func TestEachRankOfASharedPodRunsInTheContainerOfItsWorker(t *testing.T) {
	workers := sharingPods(t, `echo "rank $rank is worker $GPUPACK_WORKER_INDEX of $HOSTNAME: $OMPI_MCA_smsc $PRTE_MCA_prte_tmpdir_base $OMPI_MCA_orte_tmpdir_base"`)
	for index, each := range workers {
		if status := each.ends(t); status != 0 {
			t.Errorf("worker %d: %d: %s", index, status, each.output)
		}
	}
	const sharing = ": " + "^cma,xpmem,knem /dev/shm /dev/shm"
	expected := []string{
		"rank 0 is worker 0 of train-1-0" + sharing, "rank 1 is worker 1 of train-1-0" + sharing,
		"rank 2 is worker 4 of train-1-0" + sharing, "rank 3 is worker 2 of train-1-2" + sharing,
		"rank 4 is worker 3 of train-1-2" + sharing,
	}
	if found := workers[0].output.lines("rank "); strings.Join(found, "\n") != strings.Join(expected, "\n") {
		t.Errorf("%s", strings.Join(found, "\n"))
	}
}

func TestARankHasMoreArgumentsThanAShellsCommandCanBeLong(t *testing.T) {
	long := strings.Repeat("'", 100_000)
	workers := ofPods(t, "0-1", 2, `[ "$1" = "$2" ] && echo "rank $rank has $# arguments of ${#1} characters"`, long, long)
	for index, each := range workers {
		if status := each.ends(t); status != 0 {
			t.Errorf("worker %d: %d: %.200s", index, status, each.output)
		}
	}
	for rank, line := range workers[0].output.lines("rank ") {
		if line != fmt.Sprintf("rank %d has 2 arguments of 100000 characters", rank) {
			t.Errorf("%.200s", line)
		}
	}
}

func TestARankRunsInTheFolderOfMpirunsHelperIfItExists(t *testing.T) {
	for folder, expected := range map[string]string{"/": "/", "/no/such/folder": ""} {
		wanted := request{Rank: &rankStart{Arguments: []string{"pwd"}, Folder: folder}}
		if found := wanted.program().Dir; found != expected {
			t.Errorf("%s: %q", folder, found)
		}
	}
}

func TestARankThatFailsInASharedPodIsKnownByItsWorker(t *testing.T) {
	workers := sharingPods(t, "[ $rank != 4 ] || { echo disk full >&2; exit 5; }\nexec sleep 60")
	if status := workers[0].ends(t); status != 5 {
		t.Errorf("worker 0: %d: %s", status, workers[0].output)
	}
	const message = "rank 4 of 5 in pod train-1-2 ended with exit code 5: disk full"
	if status := workers[3].ends(t); status != 5 || workers[3].left() != message {
		t.Errorf("worker 3: %d: %q", status, workers[3].left())
	}
}

func TestRanksOfSharedPodsSaveTheirStateWhenTheirWorkersEnd(t *testing.T) {
	workers := sharingPods(t, `trap 'echo saved $rank; exit 7' TERM
		echo at work
		while :; do sleep 0.05; done`)
	workers[0].output.await(t, "at work", 5)
	for _, each := range workers {
		each.Process.Signal(syscall.SIGTERM)
	}
	for index, each := range workers {
		if status := each.ends(t); status != 7 {
			t.Errorf("worker %d: %d: %s", index, status, each.output)
		}
	}
	if found := strings.Join(workers[0].output.lines("saved"), ","); found != "saved 0,saved 1,saved 2,saved 3,saved 4" {
		t.Errorf("%s", found)
	}
}

func TestInvalidPodsAreRefusedWithTheReason(t *testing.T) {
	for text, expected := range map[string]string{
		"0-1":     "worker 2 is in no pod",
		"0-1;1-2": "worker 1 is in two pods",
		"0-3":     `"0-3" names no workers of 3`,
		"2-0":     `"2-0" names no workers`,
		"a":       `"a" names no workers`,
		"0-2;":    `"" names no workers`,
	} {
		if _, err := parsePods(text, 3); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWorkersOfAPodListenAtDifferentPortsAndHaveItsName(t *testing.T) {
	pods, err := parsePods("0,2;1", 3)
	if err != nil {
		t.Fatal(err)
	}
	g := gang{workers: 3, processes: 2, hosts: "job-{}", pods: pods}
	for index, expected := range []struct {
		host string
		port int
	}{{"job-0", port}, {"job-1", port}, {"job-0", port + 1}} {
		if g.host(index) != expected.host || g.port(index) != expected.port {
			t.Errorf("worker %d: %s:%d", index, g.host(index), g.port(index))
		}
	}
	found := g.hostList([]string{"10.0.0.1", "10.0.0.2", "10.0.0.1"})
	if len(found) != 2 || found[0] != (hostSlots{"10.0.0.1", 4}) || found[1] != (hostSlots{"10.0.0.2", 2}) {
		t.Errorf("%+v", found)
	}
}

func TestOnlyVariablesThatAnMPIAddsAreForwarded(t *testing.T) {
	before := []string{"A=1", "B=2", "PATH=/bin"}
	now := []string{"A=1", "B=3", "PATH=/bin", "PMIX_RANK=4", "PWD=/tmp", "BASH_FUNC_x%%=() {}", "WORDS=it's\nhere"}
	if found := strings.Join(changedVariables(before, now), "|"); found != "B=3|PMIX_RANK=4|WORDS=it's\nhere" {
		t.Errorf("%q", found)
	}
}

func TestAUsersMPISettingsStayInASharedPod(t *testing.T) {
	pods, _ := parsePods("0-1", 2)
	t.Setenv("OMPI_MCA_smsc", "cma")
	for _, name := range []string{"PMIX_MCA_gds", "OMPI_MCA_btl_vader_single_copy_mechanism"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	gang{pods: pods}.setSharedPodVariables()
	if found := os.Getenv("OMPI_MCA_smsc") + " " + os.Getenv("PMIX_MCA_gds"); found != "cma hash" {
		t.Errorf("%s", found)
	}
}
