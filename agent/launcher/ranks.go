// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const socketVariable = "GPUPACK_MPI_SOCKET"

// failure is the end of a rank that failed by itself.
type failure struct {
	Rank         int       `json:"rank"`
	Of           int       `json:"of"`
	Pod          string    `json:"pod"`
	Status       int       `json:"status"`
	Signal       int       `json:"signal,omitempty"`
	At           time.Time `json:"at"`                     // by its node's clock
	LastLine     string    `json:"lastLine,omitempty"`     // the last line of its standard error
	IsWorkerLost bool      `json:"isWorkerLost,omitempty"` // no rank: the whole worker
}

func (f failure) String() string {
	if f.IsWorkerLost {
		return fmt.Sprintf("worker %s is lost", f.Pod)
	}
	rank := fmt.Sprintf("rank %d of %d in pod %s", f.Rank, f.Of, f.Pod)
	if f.Signal != 0 {
		return fmt.Sprintf("%s was ended by signal %d (%v)", rank, f.Signal, syscall.Signal(f.Signal))
	}
	return fmt.Sprintf("%s ended with exit code %d", rank, f.Status)
}

// ranks are those of this pod; each holds a connection to us from its start to its end.
type ranks struct {
	pod      string
	folder   string
	listener net.Listener
	failed   chan failure

	lock      sync.Mutex
	connected map[net.Conn]bool
	isEnding  bool
	status    int // the largest exit status of a rank since then
}

func watchRanks(g gang) (*ranks, error) {
	folder, err := os.MkdirTemp("", "gpupack-mpi-")
	if err != nil {
		return nil, fmt.Errorf("no writable temporary folder: give the worker a writable /tmp, such as an emptyDir: %w", err)
	}
	path := filepath.Join(folder, "ranks")
	listener, err := net.Listen("unix", path)
	if err != nil {
		os.RemoveAll(folder)
		return nil, fmt.Errorf("cannot listen for ranks at %s: if the path has more than 107 bytes, set TMPDIR to a shorter folder: %w", path, err)
	}
	os.Setenv(socketVariable, path)
	if err := saveEnvironment(folder); err != nil {
		listener.Close()
		os.RemoveAll(folder)
		return nil, err
	}
	found := &ranks{pod: g.pod, folder: folder, listener: listener, failed: make(chan failure, g.processes), connected: map[net.Conn]bool{}}
	go found.accept()
	return found, nil
}

func (r *ranks) close() {
	r.listener.Close()
	os.RemoveAll(r.folder)
}

func (r *ranks) accept() {
	for {
		connection, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.lock.Lock()
		r.connected[connection] = true
		if r.isEnding {
			connection.Write([]byte{byte(syscall.SIGTERM)})
		}
		r.lock.Unlock()
		go r.receiveFailure(connection)
	}
}

// receiveFailure serves one rank: it sends how it ended, and then waits until that was received.
func (r *ranks) receiveFailure(connection net.Conn) {
	defer connection.Close()
	var received failure
	err := json.NewDecoder(connection).Decode(&received)
	r.lock.Lock()
	delete(r.connected, connection)
	isEnding := r.isEnding
	if err == nil && isEnding && received.Status > r.status {
		r.status = received.Status
	}
	r.lock.Unlock()
	if err != nil || isEnding {
		return
	}
	received.Pod = r.pod
	select {
	case r.failed <- received:
	default: // as many as there are ranks have failed before
	}
}

// end sends a signal to all ranks of this pod.
func (r *ranks) end(signal syscall.Signal) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.isEnding = true
	for connection := range r.connected {
		connection.Write([]byte{byte(signal)})
	}
}

// allEnded returns a channel that is closed when no rank is left.
func (r *ranks) allEnded() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r.lock.Lock()
			left := len(r.connected)
			r.lock.Unlock()
			if left == 0 {
				return
			}
			time.Sleep(pause)
		}
	}()
	return done
}

// endStatus is the exit status once all ranks have ended as requested.
func (r *ranks) endStatus() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.status != 0 {
		return r.status
	}
	return statusTerminated
}

// writeTerminationMessage writes why this worker ends, to the log and to the termination message, together
// with what the rank itself wrote there or, if it wrote nothing, its last line. A result stays as it is.
func (f failure) writeTerminationMessage() {
	logf("%v", f)
	left, _ := os.ReadFile(os.Getenv("GPUPACK_RESULT_PATH"))
	detail := strings.TrimSpace(string(left))
	if strings.HasPrefix(detail, "{") {
		return
	}
	if detail == "" {
		detail = f.LastLine
	}
	message := f.String()
	if detail != "" {
		message += ": " + detail
	}
	writeMessage(message)
}

func writeMessage(message string) {
	path := os.Getenv("GPUPACK_RESULT_PATH")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o644)
	if err != nil {
		logf("cannot write the termination message: %v", err)
		return
	}
	defer file.Close()
	io.WriteString(file, message)
}
