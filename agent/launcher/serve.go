// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	// The largest number of connections whose handshake is not complete.
	maxHandshakes = 256
	// Longer than worker 0 takes to end, so that its end is known as the first.
	orphanTime = 5 * time.Second
	// For ranks to end after SIGTERM; the kubelet ends the container at its own time.
	killTime = 2 * time.Second
)

// server is a worker other than 0: it runs the programs of worker 0's mpirun.
type server struct {
	gang       gang
	ranks      *ranks
	joined     chan *session
	handshakes chan struct{}
}

func serve(g gang, s secrets, r *ranks) int {
	settings, err := s.tls()
	if err != nil {
		return failWorker(statusOther, err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(g.listen, strconv.Itoa(g.port(g.index))))
	if err != nil {
		return failWorker(statusBadArgument, fmt.Errorf("worker %d cannot listen for worker 0: %w", g.index, err))
	}
	defer listener.Close()
	served := &server{gang: g, ranks: r, joined: make(chan *session), handshakes: make(chan struct{}, maxHandshakes)}
	go served.accept(listener, settings)
	logf("worker %d of %d waits for worker 0", g.index, g.workers)
	return served.wait()
}

func (s *server) wait() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	late := time.After(joinTimeout)
	var joined *session
	ended := make(chan endMessage, 1)
	lost := make(chan error, 1)
	var gone <-chan struct{}
	isEnding := false
	for {
		select {
		case joined = <-s.joined:
			late = nil
			go joined.sendHeartbeats()
			go func() {
				received, err := joined.receive()
				if err == nil && received.End != nil {
					ended <- *received.End
					return
				}
				lost <- err
			}()
		case failed := <-s.ranks.failed:
			logf("%v", failed)
			if joined != nil {
				joined.send(sessionMessage{Failed: &failed})
			}
		case how := <-ended:
			if isEnding && how.Failure == nil {
				return s.ranks.endStatus()
			}
			if how.Failure != nil {
				s.ranks.end(syscall.SIGKILL)
				how.Failure.writeTerminationMessage()
			}
			return how.Status
		case <-gone:
			return s.ranks.endStatus()
		case err := <-lost:
			if isEnding {
				lost = nil
				gone = s.ranks.allEnded()
				continue
			}
			s.ranks.end(syscall.SIGKILL)
			time.Sleep(orphanTime)
			return failWorker(statusPeers, fmt.Errorf("worker 0 is lost: %v", err))
		case <-late:
			return failWorker(statusPeers, fmt.Errorf("worker 0 did not connect within %v", joinTimeout))
		case each := <-signals:
			if joined == nil {
				return statusTerminated
			}
			// Ranks may save what they have, and those of other workers, too: mpirun's helper here
			// has to stay until worker 0 has ended, or mpirun would end them all.
			isEnding = true
			s.ranks.end(each.(syscall.Signal))
		}
	}
}

func (s *server) accept(listener net.Listener, settings *tls.Config) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(pause) // such as too many open files
			continue
		}
		select {
		case s.handshakes <- struct{}{}:
			go s.handle(tls.Server(connection, settings))
		default:
			connection.Close()
		}
	}
}

func (s *server) handle(connection *tls.Conn) {
	defer connection.Close()
	lines := bufio.NewReader(connection)
	wanted, err := s.readRequest(connection, lines)
	<-s.handshakes
	if err != nil {
		logf("refused a connection from %v: %v", connection.RemoteAddr(), err)
		return
	}
	if !wanted.Join {
		s.execute(wanted.program(), &frames{ReadWriter: readWriter{lines, connection}})
		return
	}
	joined := &session{connection: connection, lines: lines}
	select {
	case s.joined <- joined:
		select {} // until the process ends
	case <-time.After(handshakeTime):
	}
}

func (s *server) readRequest(connection *tls.Conn, lines *bufio.Reader) (request, error) {
	connection.SetDeadline(time.Now().Add(handshakeTime))
	defer connection.SetDeadline(time.Time{})
	if err := connection.Handshake(); err != nil {
		return request{}, err
	}
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return request{}, err
	}
	var wanted request
	err = json.Unmarshal(bytes.TrimSpace(line), &wanted)
	return wanted, err
}

type readWriter struct {
	io.Reader
	io.Writer
}

// program is what to run, in this container's own environment: a command by the shell, as ssh does,
// or a rank.
func (r request) program() *exec.Cmd {
	if r.Rank == nil || len(r.Rank.Arguments) == 0 {
		return exec.Command("/bin/sh", "-c", r.Command)
	}
	found := exec.Command(r.Rank.Arguments[0], r.Rank.Arguments[1:]...)
	found.Env = append(os.Environ(), r.Rank.Variables...)
	// A folder is entered by its right to search (1), which its list does not need.
	if seen, err := os.Stat(r.Rank.Folder); err == nil && seen.IsDir() && syscall.Access(r.Rank.Folder, 1) == nil {
		found.Dir = r.Rank.Folder
	}
	return found
}

// execute runs a program. It ends when the connection does, unless it has become a daemon, as Open
// MPI's does by itself.
func (s *server) execute(program *exec.Cmd, stream *frames) {
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	program.Stdout, program.Stderr = sender{stream, frameOutput}, sender{stream, frameErrors}
	input, err := program.StdinPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		stream.send(frameErrors, []byte(fmt.Sprintf("gpupack-mpi: %s: %v\n", program.Path, err)))
		stream.send(frameStatus, binary.BigEndian.AppendUint32(nil, uint32(startStatus(err))))
		return
	}
	left := make(chan struct{})
	go func() {
		for {
			kind, content, err := stream.receive()
			if err != nil {
				break
			}
			switch {
			case kind == frameSignal && len(content) == 1:
				program.Process.Signal(syscall.Signal(content[0]))
			case kind == frameInput && len(content) == 0:
				input.Close()
			case kind == frameInput:
				input.Write(content)
			}
		}
		input.Close()
		select {
		case <-left:
			// A daemon that it has left behind may not have its own process group yet.
			return
		default:
		}
		syscall.Kill(-program.Process.Pid, syscall.SIGTERM)
		time.Sleep(killTime)
		syscall.Kill(-program.Process.Pid, syscall.SIGKILL)
	}()
	program.Wait()
	close(left)
	status := program.ProcessState.ExitCode()
	if status < 0 {
		status = 128 + int(program.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	stream.send(frameStatus, binary.BigEndian.AppendUint32(nil, uint32(status)))
}
