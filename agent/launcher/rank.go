// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// mpirun signals a rank's whole process group: the program may have ended before this process receives it.
	// No longer than that: a peer that notices the loss has mpirun end this rank as well.
	echoTime = 50 * time.Millisecond
	ackTime  = 5 * time.Second
)

var forwardedSignals = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// rank runs one rank's program and reports a failure to the first process of the pod.
//
// A rank that mpirun has ended is no failure: it ends all others when one has failed. When the pod
// itself ends the status goes to its first process alone, and mpirun sees none: it would
// kill the others in the middle of what they save.
func rank(command []string) int {
	if g, worker, isElsewhere := workerOfRank(os.Getenv); isElsewhere {
		return forward(g, worker, command)
	}
	runtime.LockOSThread() // the program ends with the thread that started it
	program := exec.Command(command[0], command[1:]...)
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	program.Stdin, program.Stdout = os.Stdin, os.Stdout
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwardedSignals...)
	pod, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		logf("cannot report this rank's end to the pod's first process: %v", err)
	}
	last, err := captureErrors(program)
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		logf("%v", err)
		return reportFailure(pod, failure{Status: startStatus(err), At: time.Now(), LastLine: err.Error()})
	}
	last.start()
	var byMpirun, byPod atomic.Bool
	go func() {
		for each := range signals {
			byMpirun.Store(true)
			program.Process.Signal(each)
		}
	}()
	if pod != nil {
		go func() {
			var number [1]byte
			for {
				if _, err := pod.Read(number[:]); err != nil {
					return
				}
				byPod.Store(true)
				program.Process.Signal(syscall.Signal(number[0]))
			}
		}()
	}
	program.Wait()
	ended := program.ProcessState.Sys().(syscall.WaitStatus)
	how := failure{Status: ended.ExitStatus(), At: time.Now()}
	if ended.Signaled() {
		how.Status, how.Signal = 128+int(ended.Signal()), int(ended.Signal())
	}
	how.LastLine = last.line()
	if how.Status == 0 {
		return 0
	}
	if how.Signal == int(syscall.SIGTERM) {
		time.Sleep(echoTime)
	}
	if byPod.Load() {
		reportFailure(pod, how)
		return 0
	}
	if byMpirun.Load() && ended.Signaled() {
		return how.Status
	}
	return reportFailure(pod, how)
}

// reportFailure returns when the pod's first process knows of the failure.
func reportFailure(pod net.Conn, how failure) int {
	how.Rank = number("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
	how.Of = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
	if pod == nil {
		return how.Status
	}
	json.NewEncoder(pod).Encode(how)
	pod.SetReadDeadline(time.Now().Add(ackTime))
	var closed [1]byte
	for {
		if _, err := pod.Read(closed[:]); err != nil {
			return how.Status
		}
	}
}

// startStatus is what a shell would say: 127 of a program that is not there, 126 of another error.
func startStatus(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return 127
	}
	return 126
}

// number is the first of these variables that is one; -1 where none is.
func number(names ...string) int {
	for _, name := range names {
		if found, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return found
		}
	}
	return -1
}
