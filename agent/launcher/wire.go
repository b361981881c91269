// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// Either side of a session sends heartbeats, and is lost when none arrives within the timeout: a node
	// that loses its power closes no connection.
	heartbeatInterval = 5 * time.Second
	sessionTimeout    = 20 * time.Second

	handshakeTime = 10 * time.Second
	largestFrame  = 1 << 20
)

// request is the first line on a connection: a session, or a command to run.
type request struct {
	Join    bool       `json:"join,omitempty"`
	Command string     `json:"command,omitempty"` // as a shell's
	Rank    *rankStart `json:"rank,omitempty"`
}

// rankStart is a rank to run as it was to run elsewhere. No shell reads it: Linux allows one argument
// 128 KiB, and a rank's arguments and variables may have more together.
type rankStart struct {
	Arguments []string `json:"arguments"`
	Variables []string `json:"variables"`
	Folder    string   `json:"folder,omitempty"` // if it exists
}

// sessionMessage is a line that one side of a session sends to the other.
type sessionMessage struct {
	Failed *failure    `json:"failed,omitempty"` // worker: a rank of mine failed
	End    *endMessage `json:"end,omitempty"`    // launcher: the job has ended
}

// endMessage ends a session: the exit status, and the failure if it was of this worker.
type endMessage struct {
	Status  int      `json:"status"`
	Failure *failure `json:"failure,omitempty"`
}

// session is a launcher's or a worker's side of the connection that lasts as long as the job.
type session struct {
	connection net.Conn
	lines      *bufio.Reader
	writing    sync.Mutex
}

func newSession(connection net.Conn) *session {
	return &session{connection: connection, lines: bufio.NewReader(connection)}
}

func (s *session) send(sent sessionMessage) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.connection.SetWriteDeadline(time.Now().Add(sessionTimeout))
	return json.NewEncoder(s.connection).Encode(sent)
}

// receive waits for the next message that is no heartbeat.
func (s *session) receive() (sessionMessage, error) {
	for {
		s.connection.SetReadDeadline(time.Now().Add(sessionTimeout))
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return sessionMessage{}, err
		}
		var received sessionMessage
		if err := json.Unmarshal(line, &received); err != nil {
			return sessionMessage{}, fmt.Errorf("%q is not a message of a session: %w", line, err)
		}
		if received.Failed != nil || received.End != nil {
			return received, nil
		}
	}
}

func (s *session) sendHeartbeats() {
	for s.send(sessionMessage{}) == nil {
		time.Sleep(heartbeatInterval)
	}
}

// Frames of a command's connection: a kind, four bytes of length, and so many bytes.
const (
	frameInput  = 'i' // of length 0: the end
	frameOutput = 'o'
	frameErrors = 'e'
	frameStatus = 's' // four bytes: the command's exit status
	frameSignal = 'k' // one byte: a signal for the command
)

type frames struct {
	io.ReadWriter
	writing sync.Mutex
}

func (f *frames) send(kind byte, content []byte) error {
	f.writing.Lock()
	defer f.writing.Unlock()
	head := [5]byte{kind}
	binary.BigEndian.PutUint32(head[1:], uint32(len(content)))
	_, err := f.Write(append(head[:], content...))
	return err
}

func (f *frames) receive() (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > largestFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes is too large", size)
	}
	content := make([]byte, size)
	_, err := io.ReadFull(f, content)
	return head[0], content, err
}

// sender is a stream of one kind of frames.
type sender struct {
	*frames
	kind byte
}

func (s sender) Write(content []byte) (int, error) {
	return len(content), s.send(s.kind, content)
}
