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
	for path, expected := range map[string]string{
		"/nowhere/key":                     "cannot read the key",
		keyFile(t, 1, keyBytes-1):          "has 31 bytes, not 32",
		keyFile(t, 1, keyBytes+1):          "has 33 bytes, not 32",
		filepath.Dir(keyFile(t, 1, 32)):    "cannot read the key",
		keyFile(t, 1, 0):                   "has 0 bytes",
		filepath.Join(os.DevNull, "below"): "cannot read the key",
	} {
		if _, err := readKey(path); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// handshakeErrors returns the error of either side of a connection; nil: it got the byte of the other.
func handshakeErrors(t *testing.T, server, client *tls.Config) (serverError, clientError error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	result := make(chan error, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			result <- err
			return
		}
		result <- exchangeByte(tls.Server(connection, server))
	}()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	clientError = exchangeByte(tls.Client(connection, client))
	return <-result, clientError
}

func exchangeByte(connection *tls.Conn) error {
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(handshakeTime))
	if _, err := connection.Write([]byte{1}); err != nil {
		return err
	}
	_, err := connection.Read(make([]byte, 1))
	return err
}

func TestWorkersOfOneAttemptAcceptEachOther(t *testing.T) {
	if serverError, clientError := handshakeErrors(t, settingsOf(t, 1), settingsOf(t, 1)); serverError != nil || clientError != nil {
		t.Errorf("the server: %v; the client: %v", serverError, clientError)
	}
}

func TestAClientRefusesAServerWithAnotherKey(t *testing.T) {
	if _, clientError := handshakeErrors(t, settingsOf(t, 2), settingsOf(t, 1)); clientError == nil ||
		!strings.Contains(clientError.Error(), "does not have the key of this attempt") {
		t.Errorf("the client: %v", clientError)
	}
}

// Each client accepts any server; the test is whether the server accepts it.
func TestAServerRefusesClientsWithoutTheKey(t *testing.T) {
	stranger := func(change func(*tls.Config)) *tls.Config {
		settings := settingsOf(t, 2)
		settings.VerifyConnection = nil
		change(settings)
		return settings
	}
	ours := settingsOf(t, 1).Certificates[0]
	for name, settings := range map[string]*tls.Config{
		"a client with another key":      stranger(func(*tls.Config) {}),
		"a client without a certificate": stranger(func(s *tls.Config) { s.Certificates = nil }),
		// A server shows its certificate to every client.
		"a client with our certificate and not its key": stranger(func(s *tls.Config) {
			s.Certificates[0].Certificate = ours.Certificate
		}),
		"a client with the key and an older TLS": stranger(func(s *tls.Config) {
			s.Certificates[0] = ours
			s.MinVersion, s.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		}),
	} {
		if serverError, _ := handshakeErrors(t, settingsOf(t, 1), settings); serverError == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
