// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	asLauncher = "GPUPACK_MPI_TEST_AS_LAUNCHER"
	patience   = 30 * time.Second
)

// TestMain has this binary stand for the launcher as well, and for mpirun, which no test needs.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "mpirun" {
		os.Exit(stubMpirun(os.Args[1:]))
	}
	if os.Getenv(asLauncher) != "" {
		main()
	}
	os.Exit(m.Run())
}

// output is what a worker and its ranks have written.
type output struct {
	lock sync.Mutex
	text bytes.Buffer
	grew chan struct{}
}

func (o *output) Write(more []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	select {
	case o.grew <- struct{}{}:
	default:
	}
	return o.text.Write(more)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.String()
}

// lines are those that begin so, in their order.
func (o *output) lines(start string) []string {
	found := []string{}
	for _, line := range strings.Split(o.String(), "\n") {
		if strings.HasPrefix(line, start) {
			found = append(found, line)
		}
	}
	sort.Strings(found)
	return found
}

func (o *output) await(t *testing.T, text string, count int) {
	late := time.After(patience)
	for strings.Count(o.String(), text) < count {
		select {
		case <-o.grew:
		case <-late:
			t.Fatalf("%q did not come %d times: %s", text, count, o)
		}
	}
}

// launched is a process of the launcher.
type launched struct {
	*exec.Cmd
	output  *output
	message string // the file of its termination message
}

func start(t *testing.T, environment []string, arguments ...string) *launched {
	folder, err := os.MkdirTemp("", "gpupack-mpi-test-") // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(folder, "mpirun")); err != nil {
		t.Fatal(err)
	}
	began := &launched{
		Cmd: exec.Command(self, arguments...), output: &output{grew: make(chan struct{}, 1)},
		message: filepath.Join(folder, "message"),
	}
	began.Env = append(os.Environ(), asLauncher+"=1", "TMPDIR="+folder, "GPUPACK_RESULT_PATH="+began.message,
		"PATH="+folder+":"+os.Getenv("PATH"))
	began.Env = append(began.Env, environment...)
	began.Stdout, began.Stderr = began.output, began.output
	if err := began.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		began.Process.Kill()
		began.Wait()
		os.RemoveAll(folder)
	})
	return began
}

// ends is the status with which it does.
func (l *launched) ends(t *testing.T) int {
	late := time.AfterFunc(patience, func() { l.Process.Kill() })
	defer late.Stop()
	l.Wait()
	if l.ProcessState.ExitCode() < 0 {
		t.Errorf("it did not end by itself: %s", l.output)
	}
	return l.ProcessState.ExitCode()
}

func (l *launched) left() string {
	content, _ := os.ReadFile(l.message)
	return string(content)
}

// gangOfTwo has two processes in each worker, with unique addresses on loopback.
func gangOfTwo(t *testing.T) (worker func(index int) []string, host string) {
	hosts := fmt.Sprintf("127.%d.%d.{}", 1+rand.Intn(254), rand.Intn(256))
	key := keyFile(t, 1, keyBytes)
	return func(index int) []string {
		return []string{
			"GPUPACK_WORKERS=2", fmt.Sprintf("GPUPACK_WORKER_INDEX=%d", index),
			"GPUPACK_PROCESSES_PER_WORKER=2", "GPUPACK_MPI_HOSTS=" + hosts,
			"GPUPACK_MPI_LISTEN=" + gang{hosts: hosts}.host(index), "GPUPACK_MPI_KEY_FILE=" + key,
			fmt.Sprintf("HOSTNAME=train-1-%d", index),
		}
	}, gang{hosts: hosts}.host(1)
}

// runs has a gang of two run a script of the shell, in which $rank is the rank's number.
func runs(t *testing.T, script string) (first, second *launched) {
	t.Parallel()
	worker, _ := gangOfTwo(t)
	command := []string{"run", "--", "/bin/sh", "-c", "rank=$OMPI_COMM_WORLD_RANK\n" + script}
	return start(t, worker(0), command...), start(t, worker(1), command...)
}

func init() { rand.Seed(time.Now().UnixNano()) }

func TestAnInvalidCallPrintsTheUsage(t *testing.T) {
	for _, arguments := range [][]string{
		{}, {"run"}, {"run", "--"}, {"run", "true"}, {"run", "true", "--"}, {"rank", "true", "x"},
		{"remote", "host"}, {"serve", "--", "true"}, {"--help"},
	} {
		called := start(t, nil, arguments...)
		if status := called.ends(t); status != statusBadArgument || !strings.Contains(called.output.String(), "usage: gpupack-") {
			t.Errorf("%q: status %d, %s", arguments, status, called.output)
		}
	}
}

func TestAWorkerWithInvalidVariablesWritesAMessage(t *testing.T) {
	worker, _ := gangOfTwo(t)
	for wrong, expected := range map[string]string{
		"GPUPACK_WORKERS=two":                `GPUPACK_WORKERS is "two"`,
		"GPUPACK_MPI_KEY_FILE=/nowhere/key":  "cannot read the key of this attempt",
		"GPUPACK_MPI_LISTEN=256.256.256.256": "worker 1 cannot listen for worker 0",
	} {
		called := start(t, append(worker(1), wrong), "run", "--", "true")
		if status := called.ends(t); status != statusBadArgument || !strings.Contains(called.left(), expected) {
			t.Errorf("%s: status %d, %q", wrong, status, called.left())
		}
	}
}

func TestEachRankHasTheEnvironmentOfItsOwnWorker(t *testing.T) {
	first, second := runs(t, `echo "rank $rank of worker $GPUPACK_WORKER_INDEX in $HOSTNAME"`)
	if one, other := first.ends(t), second.ends(t); one != 0 || other != 0 {
		t.Fatalf("%d, %d: %s%s", one, other, first.output, second.output)
	}
	expected := "rank 0 of worker 0 in train-1-0,rank 1 of worker 0 in train-1-0," +
		"rank 2 of worker 1 in train-1-1,rank 3 of worker 1 in train-1-1"
	if found := strings.Join(first.output.lines("rank "), ","); found != expected {
		t.Errorf("%s", found)
	}
}

func TestARankThatFailsEndsAllWorkersAndBothWriteWhy(t *testing.T) {
	for how, expected := range map[string]struct {
		status  int
		message string
	}{
		"echo disk full >&2; exit 5": {5, "rank 3 of 4 in pod train-1-1 ended with exit code 5: disk full"},
		"kill -9 $$":                 {137, "rank 3 of 4 in pod train-1-1 was ended by signal 9 (killed)"},
	} {
		how, expected := how, expected
		t.Run(how, func(t *testing.T) {
			first, second := runs(t, "[ $rank != 3 ] || { "+how+"; }\nexec sleep 60")
			one, other := first.ends(t), second.ends(t)
			if one != expected.status || other != expected.status {
				t.Errorf("%d, %d: %s%s", one, other, first.output, second.output)
			}
			if first.left() != expected.message || second.left() != expected.message {
				t.Errorf("%q, %q", first.left(), second.left())
			}
		})
	}
}

func TestAProgramThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	worker, _ := gangOfTwo(t)
	first := start(t, worker(0), "run", "--", "no-such-program")
	start(t, worker(1), "run", "--", "no-such-program")
	if status := first.ends(t); status != 127 || !strings.Contains(first.left(), `"no-such-program": executable file not found`) {
		t.Errorf("%d: %q", status, first.left())
	}
}

func TestAllRanksThatEndAsRequestedSaveTheirState(t *testing.T) {
	first, second := runs(t, `trap 'sleep 0.$rank; echo saved $rank; exit 7' TERM
		echo at work
		while :; do sleep 0.05; done`)
	first.output.await(t, "at work", 4)
	for _, each := range []*launched{first, second} {
		each.Process.Signal(syscall.SIGTERM)
	}
	if one, other := first.ends(t), second.ends(t); one != 7 || other != 7 {
		t.Errorf("%d, %d: %s%s", one, other, first.output, second.output)
	}
	if found := strings.Join(first.output.lines("saved"), ","); found != "saved 0,saved 1,saved 2,saved 3" {
		t.Errorf("%s", found)
	}
}

func TestAWorkerThatLosesWorker0EndsItsRanksWithAMessage(t *testing.T) {
	first, second := runs(t, "echo at work\nexec sleep 60")
	first.output.await(t, "at work", 4)
	first.Process.Kill()
	if status := second.ends(t); status != statusPeers || !strings.Contains(second.left(), "worker 0 is lost") {
		t.Errorf("%d: %q", status, second.left())
	}
}

func TestACommandInAWorkerHasItsInputItsOutputsAndItsStatus(t *testing.T) {
	t.Parallel()
	worker, host := gangOfTwo(t)
	second := start(t, worker(1), "run", "--", "true")
	second.output.await(t, "waits for worker 0", 1)
	called := exec.Command(second.Path, "remote", "-x", host, "cat; echo $GPUPACK_WORKER_INDEX >&2; exit 3")
	called.Env = append(second.Env, "GPUPACK_WORKER_INDEX=0")
	called.Stdin = strings.NewReader("input")
	var output, complained strings.Builder
	called.Stdout, called.Stderr = &output, &complained
	called.Run()
	if status := called.ProcessState.ExitCode(); status != 3 || output.String() != "input" || complained.String() != "1\n" {
		t.Errorf("%d, %q, %q", status, output.String(), complained.String())
	}
}

func TestNoCommandRunsWithoutTheKey(t *testing.T) {
	t.Parallel()
	worker, host := gangOfTwo(t)
	second := start(t, worker(1), "run", "--", "true")
	second.output.await(t, "waits for worker 0", 1)
	called := start(t, append(worker(0), "GPUPACK_MPI_KEY_FILE="+keyFile(t, 2, keyBytes)), "remote", host, "echo let in >&2")
	if status := called.ends(t); status != sshStatus || strings.Contains(called.output.String(), "let in") {
		t.Errorf("%d: %s", status, called.output)
	}
	second.output.await(t, "refused a connection", 1)
}
