// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keyFile is a key of one repeated byte.
func keyFile(t *testing.T, of byte, size int) string {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, bytes.Repeat([]byte{of}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func secretsOf(t *testing.T, of byte) secrets {
	found, err := readKey(keyFile(t, of, keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func settingsOf(t *testing.T, of byte) *tls.Config {
	settings, err := secretsOf(t, of).tls()
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestAKeyThatIsMissingOrOfAnotherSizeIsRefused(t *testing.T) {
	for path, says := range map[string]string{
		"/nowhere/key":                     "cannot be read",
		keyFile(t, 1, keyBytes-1):          "has 31 bytes, not 32",
		keyFile(t, 1, keyBytes+1):          "has 33 bytes, not 32",
		filepath.Dir(keyFile(t, 1, 32)):    "cannot be read",
		keyFile(t, 1, 0):                   "has 0 bytes",
		filepath.Join(os.DevNull, "below"): "cannot be read",
	} {
		if _, err := readKey(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// met is what either side of a connection says of it: nil where it has a byte of the other.
func met(t *testing.T, server, client *tls.Config) (ofServer, ofClient error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	said := make(chan error, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			said <- err
			return
		}
		said <- exchanged(tls.Server(connection, server))
	}()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ofClient = exchanged(tls.Client(connection, client))
	return <-said, ofClient
}

func exchanged(connection *tls.Conn) error {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := connection.Write([]byte{1}); err != nil {
		return err
	}
	_, err := connection.Read(make([]byte, 1))
	return err
}

func TestWorkersOfOneAttemptTakeEachOther(t *testing.T) {
	if ofServer, ofClient := met(t, settingsOf(t, 1), settingsOf(t, 1)); ofServer != nil || ofClient != nil {
		t.Errorf("the server: %v; the client: %v", ofServer, ofClient)
	}
}

func TestAWorkerSaysNothingToAServerWithAnotherKey(t *testing.T) {
	if _, ofClient := met(t, settingsOf(t, 2), settingsOf(t, 1)); ofClient == nil ||
		!strings.Contains(ofClient.Error(), "has not the key of this attempt") {
		t.Errorf("the client: %v", ofClient)
	}
}

// Each of them takes any server: what is asked is whether the server takes it.
func TestAWorkerLetsNobodyInWhoDoesNotProveTheKey(t *testing.T) {
	stranger := func(change func(*tls.Config)) *tls.Config {
		settings := settingsOf(t, 2)
		settings.VerifyConnection = nil
		change(settings)
		return settings
	}
	ours := settingsOf(t, 1).Certificates[0]
	for who, settings := range map[string]*tls.Config{
		"who has another key": stranger(func(*tls.Config) {}),
		"who shows nothing":   stranger(func(s *tls.Config) { s.Certificates = nil }),
		// A server shows its certificate to whoever asks.
		"who shows our certificate and has not its key": stranger(func(s *tls.Config) {
			s.Certificates[0].Certificate = ours.Certificate
		}),
		"who has the key and speaks an older TLS": stranger(func(s *tls.Config) {
			s.Certificates[0] = ours
			s.MinVersion, s.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		}),
	} {
		if ofServer, _ := met(t, settingsOf(t, 1), settings); ofServer == nil {
			t.Errorf("%s was let in", who)
		}
	}
}
