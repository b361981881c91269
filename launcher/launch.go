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
	newsTime = 500 * time.Millisecond
	// mpirun ends the other ranks by itself, or is ended: MPICH's waits for those of other hosts.
	mpirunTime = 2 * time.Second
	// The worker whose rank has failed ends first: by that it is known as the cause.
	lingerTime = 3 * time.Second
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
	met := make(chan error, 1)
	go func() { met <- l.meet(s) }()
	select {
	case err := <-met:
		if err != nil {
			return refuse(statusPeers, err)
		}
	case <-signals:
		return statusTerminated
	}
	found, err := findMpirun()
	if err == nil {
		err = found.startsRanksOf(l.gang)
	}
	if err != nil {
		return refuse(statusBadArgument, err)
	}
	mpirun, err := l.mpirun(found, command)
	if err == nil {
		err = mpirun.Start()
	}
	if err != nil {
		return refuse(statusOther, fmt.Errorf("mpirun cannot be started: %w", err))
	}
	return l.wait(mpirun, signals)
}

// meet begins a session with each other worker.
func (l *launcher) meet(s secrets) error {
	deadline := time.Now().Add(joinTime)
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
				go l.sessions[index].beat()
				go l.hear(index)
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

func (l *launcher) hear(index int) {
	for {
		said, err := l.sessions[index].hear()
		if err != nil {
			gone := failure{Pod: fmt.Sprintf("%d (%s)", index, l.gang.host(index)), Status: statusPeers, Gone: true, At: time.Now()}
			l.reports <- report{index, gone}
			return
		}
		if said.Failed != nil {
			l.reports <- report{index, *said.Failed}
		}
	}
}

// mpirun is the command over all workers. Its host file has addresses: of a pod's name nobody but
// its own name service knows the short form, which some MPIs cut names down to.
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
	say("%d ranks in %d workers, by %s", l.gang.ranks(), l.gang.workers, found.name)
	return mpirun, nil
}

func (l *launcher) wait(mpirun *exec.Cmd, signals <-chan os.Signal) int {
	over := make(chan error, 1)
	go func() { over <- mpirun.Wait() }()
	var late <-chan time.Time
	var failed []report
	told := false
	seen := func(found report) {
		if told {
			return
		}
		failed = append(failed, found)
		if late == nil {
			late = time.After(mpirunTime)
		}
	}
	for {
		select {
		case found := <-l.ranks.failed:
			seen(report{0, found})
		case found := <-l.reports:
			seen(found)
		case each := <-signals:
			told = true
			l.ranks.end(each.(syscall.Signal))
		case <-late:
			l.ranks.end(syscall.SIGKILL)
			syscall.Kill(-mpirun.Process.Pid, syscall.SIGKILL)
		case err := <-over:
			if told {
				return l.ranks.ended()
			}
			if err != nil || failed != nil {
				failed = l.news(failed)
			}
			return l.end(first(failed), err)
		}
	}
}

// news adds the reports that come just after mpirun's end.
func (l *launcher) news(failed []report) []report {
	over := time.After(newsTime)
	for {
		select {
		case found := <-l.ranks.failed:
			failed = append(failed, report{0, found})
		case found := <-l.reports:
			failed = append(failed, found)
		case <-over:
			return failed
		}
	}
}

// first is the rank that failed before all others: a peer that loses it fails within milliseconds,
// and its report may be here sooner. A whole worker that is gone comes before its ranks' peers.
func first(failed []report) *report {
	var found *report
	for index := range failed {
		each := &failed[index]
		if each.Gone {
			return each
		}
		if found == nil || each.At.Before(found.At) {
			found = each
		}
	}
	return found
}

// end tells the others, and is the status to leave with. Of a failure the worker where it was is
// told alone: the others are ended by the Job's controller, or notice that we are gone.
func (l *launcher) end(failed *report, err error) int {
	if failed == nil && err == nil {
		for _, each := range l.sessions[1:] {
			each.tell(word{End: &ending{}})
		}
		return 0
	}
	l.ranks.end(syscall.SIGKILL)
	if failed == nil {
		// The end of the log says why: mpirun's own words.
		var ended *exec.ExitError
		if errors.As(err, &ended) && ended.ExitCode() > 0 {
			return ended.ExitCode()
		}
		return statusOther
	}
	if failed.worker > 0 {
		if !failed.Gone {
			l.sessions[failed.worker].tell(word{End: &ending{Status: failed.Status, Yours: &failed.failure}})
		}
		time.Sleep(lingerTime)
	}
	failed.leave()
	return failed.Status
}
