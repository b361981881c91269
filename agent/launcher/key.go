// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

const keyBytes = 32

// secrets are what the workers of one attempt share with no others.
//
// From the attempt's key all of them derive the same Ed25519 key. Either side of a connection shows
// a certificate of that key and takes no other: TLS 1.3 has it prove that it has the key, agrees on
// fresh keys for the connection, and protects messages from being read, changed or repeated.
type secrets struct {
	private ed25519.PrivateKey
}

func readKey(path string) (secrets, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return secrets{}, fmt.Errorf("cannot read the key of this attempt: %w", err)
	}
	if len(content) != keyBytes {
		return secrets{}, fmt.Errorf("the key in %s has %d bytes, not %d", path, len(content), keyBytes)
	}
	derive := hmac.New(sha256.New, content)
	derive.Write([]byte("gpupack.dev/mpi ed25519"))
	return secrets{ed25519.NewKeyFromSeed(derive.Sum(nil))}, nil
}

// tls makes the settings of either side.
func (s secrets) tls() (*tls.Config, error) {
	certificate, err := s.certificate()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAnyClientCert,
		// Names and authorities prove nothing here: the key does, which VerifyConnection checks.
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true,
		VerifyConnection:       s.verifyPeer,
	}, nil
}

func (s secrets) verifyPeer(state tls.ConnectionState) error {
	if len(state.PeerCertificates) != 1 {
		return errors.New("the other side shows no certificate")
	}
	public, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || !bytes.Equal(public, s.private.Public().(ed25519.PublicKey)) {
		return errors.New("the other side does not have the key of this attempt")
	}
	return nil
}

func (s secrets) certificate() (tls.Certificate, error) {
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(0, 0), // clocks of nodes differ; the key lives as long as its attempt
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, s.private.Public(), s.private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot create a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: s.private}, nil
}
