// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// Reports of ranks can come after mpirun has ended.
	lateReportTime = 500 * time.Millisecond
	// mpirun ends the other ranks by itself, or is ended: MPICH's waits for those of other hosts.
	mpirunEndTime = 2 * time.Second
	// The worker whose rank has failed ends first: so it is known as the cause.
	headStartTime = 3 * time.Second
)

// report is a failure in a worker.
type report struct {
	worker int
	failure
}

// launcher is worker 0: it runs mpirun over all workers.
type launcher struct {
	gang      gang
	ranks     *ranks
	sessions  []*session // by index; none of worker 0
	addresses []string
	reports   chan report
}

func launch(g gang, s secrets, r *ranks, command []string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	l := &launcher{
		gang: g, ranks: r, reports: make(chan report, 2*g.ranks()),
		sessions: make([]*session, g.workers), addresses: make([]string, g.workers),
	}
	joined := make(chan error, 1)
	go func() { joined <- l.joinAll(s) }()
	select {
	case err := <-joined:
		if err != nil {
			return failWorker(statusPeers, err)
		}
	case <-signals:
		return statusTerminated
	}
	found, err := findMpirun()
	if err == nil {
		err = found.checkPods(l.gang)
	}
	if err != nil {
		return failWorker(statusBadArgument, err)
	}
	mpirun, err := l.mpirun(found, command)
	if err == nil {
		err = mpirun.Start()
	}
	if err != nil {
		return failWorker(statusOther, fmt.Errorf("cannot start mpirun: %w", err))
	}
	return l.wait(mpirun, signals)
}

// joinAll begins a session with each other worker.
func (l *launcher) joinAll(s secrets) error {
	deadline := time.Now().Add(joinTimeout)
	own, err := l.gang.address(0, deadline)
	if err != nil {
		return err
	}
	l.addresses[0] = own
	errs := make([]error, l.gang.workers)
	var all sync.WaitGroup
	for index := 1; index < l.gang.workers; index++ {
		all.Add(1)
		go func(index int) {
			defer all.Done()
			l.sessions[index], l.addresses[index], errs[index] = join(l.gang, s, index, deadline)
			if errs[index] == nil {
				go l.sessions[index].sendHeartbeats()
				go l.receiveReports(index)
			}
		}(index)
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *launcher) receiveReports(index int) {
	for {
		received, err := l.sessions[index].receive()
		if err != nil {
			gone := failure{Pod: fmt.Sprintf("%d (%s)", index, l.gang.host(index)), Status: statusPeers, IsWorkerLost: true, At: time.Now()}
			l.reports <- report{index, gone}
			return
		}
		if received.Failed != nil {
			l.reports <- report{index, *received.Failed}
		}
	}
}

// mpirun is the command over all workers. Its host file has addresses: only the
// pod's own name service knows the short form of its name, to which some MPIs shorten names.
func (l *launcher) mpirun(found mpi, command []string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	agent := filepath.Join(l.ranks.folder, remoteName)
	if err := os.Symlink(self, agent); err != nil {
		return nil, err
	}
	hosts := filepath.Join(l.ranks.folder, "hosts")
	if err := os.WriteFile(hosts, []byte(found.hostFile(l.gang.hostList(l.addresses))), 0o644); err != nil {
		return nil, err
	}
	arguments := append(found.arguments(hosts, l.gang), self, "rank", "--")
	mpirun := exec.Command(found.path, append(arguments, command...)...)
	mpirun.Env = found.environment(os.Environ(), agent)
	mpirun.Stdout, mpirun.Stderr = os.Stdout, os.Stderr
	mpirun.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	logf("%d ranks in %d workers, by %s", l.gang.ranks(), l.gang.workers, found.name)
	return mpirun, nil
}

func (l *launcher) wait(mpirun *exec.Cmd, signals <-chan os.Signal) int {
	ended := make(chan error, 1)
	go func() { ended <- mpirun.Wait() }()
	var late <-chan time.Time
	var failed []report
	isEnding := false
	seen := func(found report) {
		if isEnding {
			return
		}
		failed = append(failed, found)
		if late == nil {
			late = time.After(mpirunEndTime)
		}
	}
	for {
		select {
		case found := <-l.ranks.failed:
			seen(report{0, found})
		case found := <-l.reports:
			seen(found)
		case each := <-signals:
			isEnding = true
			l.ranks.end(each.(syscall.Signal))
		case <-late:
			l.ranks.end(syscall.SIGKILL)
			syscall.Kill(-mpirun.Process.Pid, syscall.SIGKILL)
		case err := <-ended:
			if isEnding {
				return l.ranks.endStatus()
			}
			if err != nil || failed != nil {
				failed = l.lateReports(failed)
			}
			return l.end(earliest(failed), err)
		}
	}
}

// lateReports adds the reports that come just after mpirun's end.
func (l *launcher) lateReports(failed []report) []report {
	deadline := time.After(lateReportTime)
	for {
		select {
		case found := <-l.ranks.failed:
			failed = append(failed, report{0, found})
		case found := <-l.reports:
			failed = append(failed, found)
		case <-deadline:
			return failed
		}
	}
}

// earliest is the rank that failed before all others: a peer that loses it fails within milliseconds,
// and its report may be here sooner. A whole worker that is gone comes before its ranks' peers.
func earliest(failed []report) *report {
	var found *report
	for index := range failed {
		each := &failed[index]
		if each.IsWorkerLost {
			return each
		}
		if found == nil || each.At.Before(found.At) {
			found = each
		}
	}
	return found
}

// end notifies the others and returns the exit status. Of a failure only the worker of the failed
// rank is notified: the Job's controller ends the others, or they notice that worker 0 has ended.
func (l *launcher) end(failed *report, err error) int {
	if failed == nil && err == nil {
		for _, each := range l.sessions[1:] {
			each.send(sessionMessage{End: &endMessage{}})
		}
		return 0
	}
	l.ranks.end(syscall.SIGKILL)
	if failed == nil {
		// The end of the log says why: mpirun's own message.
		var ended *exec.ExitError
		if errors.As(err, &ended) && ended.ExitCode() > 0 {
			return ended.ExitCode()
		}
		return statusOther
	}
	if failed.worker > 0 {
		if !failed.IsWorkerLost {
			l.sessions[failed.worker].send(sessionMessage{End: &endMessage{Status: failed.Status, Failure: &failed.failure}})
		}
		time.Sleep(headStartTime)
	}
	failed.writeTerminationMessage()
	return failed.Status
}
