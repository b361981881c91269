// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

func TestTheNumberOfIncompleteHandshakesIsLimited(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := &server{joined: make(chan *session), handshakes: make(chan struct{}, 2)}
	go served.accept(listener, settingsOf(t, 1))
	silent := make([]net.Conn, 3)
	for index := range silent {
		if silent[index], err = net.Dial("tcp", listener.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer silent[index].Close()
	}
	silent[2].SetReadDeadline(time.Now().Add(patience))
	if _, err := silent[2].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the third: %v", err)
	}
	silent[1].SetReadDeadline(time.Now().Add(pause))
	if _, err := silent[1].Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the second: %v", err)
	}
}
