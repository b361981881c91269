// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	longestLine = 400
	// A child of the program may keep its standard error open for longer than it lives itself.
	flushTime = 200 * time.Millisecond
)

// lastLine copies a program's standard error, and keeps its last line with text.
type lastLine struct {
	reader, writer *os.File
	ended          chan struct{}
	text           []byte
}

func captureErrors(program *exec.Cmd) (*lastLine, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	program.Stderr = writer
	return &lastLine{reader: reader, writer: writer, ended: make(chan struct{})}, nil
}

// start must follow the start of the program, which then has its end of the pipe.
func (l *lastLine) start() {
	l.writer.Close()
	go func() {
		defer close(l.ended)
		buffer := make([]byte, 1<<15)
		for {
			count, err := l.reader.Read(buffer)
			os.Stderr.Write(buffer[:count])
			l.add(buffer[:count])
			if err != nil {
				return
			}
		}
	}()
}

func (l *lastLine) add(more []byte) {
	text := bytes.TrimRight(append(l.text, more...), "\r\n\t ")
	ended := len(text) < len(l.text)+len(more)
	if start := bytes.LastIndexByte(text, '\n'); start >= 0 {
		text = text[start+1:]
	}
	if len(text) > longestLine {
		text = text[:longestLine]
	}
	l.text = append([]byte{}, text...)
	if ended {
		l.text = append(l.text, '\n')
	}
}

func (l *lastLine) line() string {
	select {
	case <-l.ended:
		return strings.TrimSpace(strings.ToValidUTF8(string(l.text), "?"))
	case <-time.After(flushTime):
		return ""
	}
}
