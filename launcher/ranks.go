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

// failure is how a rank ended that failed by itself.
type failure struct {
	Rank   int       `json:"rank"`
	Of     int       `json:"of"`
	Pod    string    `json:"pod"`
	Status int       `json:"status"`
	Signal int       `json:"signal,omitempty"`
	At     time.Time `json:"at"`              // by its node's clock
	Words  string    `json:"words,omitempty"` // the last line of its standard error
	Gone   bool      `json:"gone,omitempty"`  // no rank: the whole worker
}

func (f failure) String() string {
	if f.Gone {
		return fmt.Sprintf("worker %s is gone", f.Pod)
	}
	who := fmt.Sprintf("rank %d of %d in pod %s", f.Rank, f.Of, f.Pod)
	if f.Signal != 0 {
		return fmt.Sprintf("%s was ended by signal %d (%v)", who, f.Signal, syscall.Signal(f.Signal))
	}
	return fmt.Sprintf("%s ended with exit code %d", who, f.Status)
}

// ranks are those of this pod; each holds a connection to us from its start to its end.
type ranks struct {
	pod      string
	folder   string
	listener net.Listener
	failed   chan failure

	lock   sync.Mutex
	here   map[net.Conn]bool
	told   bool // to end
	status int  // the gravest with which one has left since it was told
}

func watchRanks(g gang) (*ranks, error) {
	folder, err := os.MkdirTemp("", "gpupack-mpi-")
	if err != nil {
		return nil, fmt.Errorf("there is no writable temporary folder: give the worker a writable /tmp, such as an emptyDir: %w", err)
	}
	path := filepath.Join(folder, "ranks")
	listener, err := net.Listen("unix", path)
	if err != nil {
		os.RemoveAll(folder)
		return nil, fmt.Errorf("ranks cannot be heard at %s: where that has more than 107 bytes, set TMPDIR to a shorter folder: %w", path, err)
	}
	os.Setenv(socketVariable, path)
	if err := saveEnvironment(folder); err != nil {
		listener.Close()
		os.RemoveAll(folder)
		return nil, err
	}
	found := &ranks{pod: g.pod, folder: folder, listener: listener, failed: make(chan failure, g.processes), here: map[net.Conn]bool{}}
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
		r.here[connection] = true
		if r.told {
			connection.Write([]byte{byte(syscall.SIGTERM)})
		}
		r.lock.Unlock()
		go r.hear(connection)
	}
}

// hear one rank: it says nothing but how it ended, and then waits for us to have heard it.
func (r *ranks) hear(connection net.Conn) {
	defer connection.Close()
	var said failure
	err := json.NewDecoder(connection).Decode(&said)
	r.lock.Lock()
	delete(r.here, connection)
	told := r.told
	if err == nil && told && said.Status > r.status {
		r.status = said.Status
	}
	r.lock.Unlock()
	if err != nil || told {
		return
	}
	said.Pod = r.pod
	select {
	case r.failed <- said:
	default: // as many as there are ranks have failed before
	}
}

// end tells all ranks of this pod to end.
func (r *ranks) end(signal syscall.Signal) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.told = true
	for connection := range r.here {
		connection.Write([]byte{byte(signal)})
	}
}

// gone says when no rank is left.
func (r *ranks) gone() <-chan struct{} {
	said := make(chan struct{})
	go func() {
		defer close(said)
		for {
			r.lock.Lock()
			left := len(r.here)
			r.lock.Unlock()
			if left == 0 {
				return
			}
			time.Sleep(pause)
		}
	}()
	return said
}

// ended is the status to leave with once all ranks were told to end and are gone.
func (r *ranks) ended() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.status != 0 {
		return r.status
	}
	return statusTerminated
}

// leave says why this worker ends: in the log, and in the termination message, beside what the rank
// itself has left there or else said last. A result that it left stays as it is.
func (f failure) leave() {
	say("%v", f)
	left, _ := os.ReadFile(os.Getenv("GPUPACK_RESULT_PATH"))
	said := strings.TrimSpace(string(left))
	if strings.HasPrefix(said, "{") {
		return
	}
	if said == "" {
		said = f.Words
	}
	message := f.String()
	if said != "" {
		message += ": " + said
	}
	leaveMessage(message)
}

func leaveMessage(message string) {
	path := os.Getenv("GPUPACK_RESULT_PATH")
	if path == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o644)
	if err != nil {
		say("no message can be left: %v", err)
		return
	}
	defer file.Close()
	io.WriteString(file, message)
}
