// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pod returns the ranks of a pod.
func pod(t *testing.T) *ranks {
	t.Setenv(socketVariable, "")
	found, err := watchRanks(gang{workers: 1, processes: 2, pod: "train-1-0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(found.close)
	return found
}

func comes(t *testing.T) net.Conn {
	connection, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	connection.SetDeadline(time.Now().Add(ackTime))
	return connection
}

// fails returns when the pod has received it.
func fails(t *testing.T, rank net.Conn, how failure) {
	if err := json.NewEncoder(rank).Encode(how); err != nil {
		t.Fatal(err)
	}
	if left, err := io.ReadAll(rank); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

func TestATemporaryFolderWithTooLongANameIsAnErrorAndStaysUnchanged(t *testing.T) {
	folder := filepath.Join(t.TempDir(), strings.Repeat("a", 120))
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", folder)
	_, err := watchRanks(gang{workers: 1, processes: 2, pod: "train-1-0"})
	if err == nil || !strings.Contains(err.Error(), "set TMPDIR to a shorter folder") {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

func TestThePodsFirstProcessReceivesARanksFailure(t *testing.T) {
	found := pod(t)
	fails(t, comes(t), failure{Rank: 1, Of: 2, Status: 5})
	if failed := <-found.failed; failed.Rank != 1 || failed.Status != 5 || failed.Pod != "train-1-0" {
		t.Errorf("%+v", failed)
	}
}

func TestARankThatEndsWellIsNoFailure(t *testing.T) {
	found := pod(t)
	comes(t).Close()
	select {
	case <-found.allEnded():
	case failed := <-found.failed:
		t.Errorf("%+v", failed)
	}
}

func TestRanksThatEndAsRequestedAreNoFailuresAndTheLargestStatusCounts(t *testing.T) {
	found := pod(t)
	rank, other := comes(t), comes(t)
	receives := func(rank net.Conn) {
		var signal [1]byte
		if _, err := io.ReadFull(rank, signal[:]); err != nil || signal[0] != byte(syscall.SIGTERM) {
			t.Error(signal, err)
		}
	}
	// A rank that connects later gets the signal as well.
	found.end(syscall.SIGTERM)
	receives(rank)
	receives(other)
	if status := found.endStatus(); status != statusTerminated {
		t.Errorf("without a status it is %d", status)
	}
	fails(t, rank, failure{Status: 7})
	fails(t, other, failure{Status: 3})
	late := comes(t)
	receives(late)
	if status := found.endStatus(); status != 7 {
		t.Errorf("it is %d", status)
	}
	if len(found.failed) > 0 {
		t.Errorf("%+v", <-found.failed)
	}
}

func TestTheTerminationMessageHasTheFailureAndTheRanksMessageOrLastLine(t *testing.T) {
	failed := failure{Rank: 3, Of: 4, Pod: "train-1-1", Status: 5, LastLine: "disk full"}
	killed := failure{Rank: 3, Of: 4, Pod: "train-1-1", Status: 137, Signal: 9}
	lost := failure{Pod: "1 (train-1-1)", IsWorkerLost: true}
	for _, each := range []struct {
		failed         failure
		left, expected string
	}{
		{failed, "", "rank 3 of 4 in pod train-1-1 ended with exit code 5: disk full"},
		{failed, "out of memory\n", "rank 3 of 4 in pod train-1-1 ended with exit code 5: out of memory"},
		{failed, ` {"verified": false}`, ` {"verified": false}`},
		{killed, "", "rank 3 of 4 in pod train-1-1 was ended by signal 9 (killed)"},
		{lost, "", "worker 1 (train-1-1) is lost"},
	} {
		path := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(path, []byte(each.left), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GPUPACK_RESULT_PATH", path)
		each.failed.writeTerminationMessage()
		if found, _ := os.ReadFile(path); string(found) != each.expected {
			t.Errorf("%q", found)
		}
	}
}
