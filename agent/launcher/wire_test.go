// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
)

func TestFramesArriveAsTheyWereSent(t *testing.T) {
	stream := &frames{ReadWriter: &bytes.Buffer{}}
	if count, err := (sender{stream, frameErrors}).Write([]byte("said")); count != 4 || err != nil {
		t.Fatal(count, err)
	}
	if err := stream.send(frameInput, nil); err != nil {
		t.Fatal(err)
	}
	for _, expected := range []struct {
		kind    byte
		content string
	}{{frameErrors, "said"}, {frameInput, ""}} {
		kind, content, err := stream.receive()
		if kind != expected.kind || string(content) != expected.content || err != nil {
			t.Errorf("%q %q %v", kind, content, err)
		}
	}
	if _, _, err := stream.receive(); err != io.EOF {
		t.Errorf("behind the last: %v", err)
	}
}

func TestAFrameThatIsTooLargeOrCutOffIsRefused(t *testing.T) {
	head := func(size uint32) []byte {
		return binary.BigEndian.AppendUint32([]byte{frameOutput}, size)
	}
	for expected, sent := range map[string][]byte{
		"a frame of 1048577 bytes is too large": head(largestFrame + 1),
		"unexpected EOF":                        append(head(3), "ab"...),
	} {
		_, _, err := (&frames{ReadWriter: bytes.NewBuffer(sent)}).receive()
		if err == nil || err.Error() != expected {
			t.Errorf("%q: %v", sent, err)
		}
	}
}

// sessions are both sides of one.
func sessions(t *testing.T) (ours, theirs *session) {
	one, other := net.Pipe()
	t.Cleanup(func() { one.Close(); other.Close() })
	return newSession(one), newSession(other)
}

func TestASessionReceivesMessagesBetweenHeartbeats(t *testing.T) {
	ours, theirs := sessions(t)
	failed := &failure{Rank: 3, Of: 4, Status: 5, LastLine: "disk full"}
	go func() {
		for _, sent := range []sessionMessage{{}, {}, {Failed: failed}, {}, {End: &endMessage{Status: 5}}} {
			theirs.send(sent)
		}
		theirs.connection.Close()
	}()
	received, err := ours.receive()
	if err != nil || !reflect.DeepEqual(received.Failed, failed) {
		t.Fatal(received, err)
	}
	if received, err = ours.receive(); err != nil || received.End == nil || received.End.Status != 5 || received.End.Failure != nil {
		t.Fatal(received, err)
	}
	if _, err = ours.receive(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

func TestAnInvalidMessageEndsASession(t *testing.T) {
	ours, theirs := sessions(t)
	go io.WriteString(theirs.connection, "rubbish\n")
	if _, err := ours.receive(); err == nil || !strings.Contains(err.Error(), `"rubbish\n" is not a message`) {
		t.Error(err)
	}
}
