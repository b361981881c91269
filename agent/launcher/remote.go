// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const sshStatus = 255

// optionsWithValue are ssh's options that take a value.
const optionsWithValue = "bcDEeFIiJLlmOopQRSWw"

// remote runs a command in the worker that has this address, as ssh would: HOST COMMAND…
func remote(arguments []string) int {
	host, command, err := parseArguments(arguments)
	if err != nil {
		logf("%v", err)
		return statusBadArgument
	}
	s, err := readKey(os.Getenv("GPUPACK_MPI_KEY_FILE"))
	if err != nil {
		logf("%v", err)
		return sshStatus
	}
	connection, err := dial(s, host, port)
	if err != nil {
		logf("worker %s: %v", host, err)
		return sshStatus
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(request{Command: command}); err != nil {
		logf("worker %s: %v", host, err)
		return sshStatus
	}
	stream := &frames{ReadWriter: connection}
	go copyInput(stream)
	return copyOutput(stream, host)
}

// parseArguments finds the host behind ssh's options, which mean nothing here.
func parseArguments(arguments []string) (host, command string, err error) {
	for len(arguments) > 0 && strings.HasPrefix(arguments[0], "-") {
		option := arguments[0]
		arguments = arguments[1:]
		if len(option) == 2 && strings.Contains(optionsWithValue, option[1:]) && len(arguments) > 0 {
			arguments = arguments[1:]
		}
	}
	if len(arguments) < 2 {
		return "", "", errors.New("usage: gpupack-rsh HOST COMMAND…")
	}
	host = arguments[0][strings.LastIndex(arguments[0], "@")+1:]
	return host, strings.Join(arguments[1:], " "), nil
}

func dial(s secrets, host string, port int) (*tls.Conn, error) {
	settings, err := s.tls()
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTime}, Config: settings}
	connection, err := dialer.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return connection.(*tls.Conn), nil
}

func copyInput(stream *frames) {
	buffer := make([]byte, 1<<15)
	for {
		count, err := os.Stdin.Read(buffer)
		if count > 0 && stream.send(frameInput, buffer[:count]) != nil {
			return
		}
		if err != nil {
			stream.send(frameInput, nil)
			return
		}
	}
}

func copyOutput(stream *frames, host string) int {
	for {
		kind, content, err := stream.receive()
		if err != nil {
			logf("worker %s: %v", host, err)
			return sshStatus
		}
		switch kind {
		case frameOutput:
			os.Stdout.Write(content)
		case frameErrors:
			os.Stderr.Write(content)
		case frameStatus:
			return int(binary.BigEndian.Uint32(content))
		}
	}
}

// join waits for a worker and begins its session.
func join(g gang, s secrets, index int, deadline time.Time) (*session, string, error) {
	address, err := g.address(index, deadline)
	if err != nil {
		return nil, "", err
	}
	for {
		connection, err := dial(s, address, g.port(index))
		if err == nil {
			if err = json.NewEncoder(connection).Encode(request{Join: true}); err == nil {
				return newSession(connection), address, nil
			}
			connection.Close()
		}
		if time.Now().After(deadline) {
			return nil, "", fmt.Errorf("worker %d (%s) did not connect within %v: %v", index, g.host(index), joinTimeout, err)
		}
		time.Sleep(pause)
		// The pod may run elsewhere now: its name is resolved again.
		if found, err := g.address(index, deadline); err == nil {
			address = found
		}
	}
}
